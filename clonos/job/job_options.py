"""Types of a job's options as keywords, for editors and type checkers. ``clonos.config`` checks the values.

A test compares the names and the types with the options that ``clonos.config`` has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypedDict

from clonos.config import SlotKind
from clonos.core.model.options import Compression, OnDivergence, PlacementKind, SpillPolicy, StandbyKind
from clonos.core.ports.redaction import Redact
from clonos.core.scaling.autoscaler import ScalingPolicy
from clonos.core.scaling.functions import Decide, ScalingListener

Duration = str | float | timedelta
"""A length of time: "500ms", "5s", a timedelta, or a number of seconds."""

Size = str | float
"""A size: "128MiB", "4GB", or a number of bytes."""

Text = str | os.PathLike[str]


class StartOptions(TypedDict, total=False):
    """Options that are keywords of ``Job``, ``Job.start`` and ``Job.run`` (docs/options.md)."""

    allow_dropped_state: bool
    allow_injection: bool
    capture_on_failure: bool
    calls_ahead_max: int
    causal_logging: bool
    channel_delay: Duration
    checkpoint: int | None
    checkpoint_every: Duration
    checkpoint_failures_max: int | None
    checkpoint_pause_min: Duration
    checkpoint_timeout: Duration
    checkpoints_retained: int
    clock_tick: Duration
    compress: Literal["remote", "always", "never"] | Compression
    credit_window: Size
    data_host: Text
    data_ports: Text
    domains: int
    failures_per_epoch_max: int
    fault_points: Text
    from_savepoint: Text
    heartbeat: Duration
    inflight_disk: Size
    inflight_memory: Size
    intercept: bool
    keepers: int
    lease: Duration
    lineage: Text
    log_memory: Size
    max_parallelism: int
    metrics: Text
    metrics_host: Text
    metrics_port: int | None
    on_divergence: Literal["fail", "rollback", "accept"] | OnDivergence
    on_scale: ScalingListener | None
    orphan_after: Duration
    overwrite: bool
    parallelism: int
    placement: Literal["spread", "pack"] | PlacementKind
    py_files: str | Sequence[Text]
    move_tasks: bool
    move_timeout: Duration
    record: str | Sequence[Text]
    record_code: bool
    record_folder: Text
    record_keep: int
    record_limit: Size
    redact: Redact | None
    replicas: int | None
    rescale_timeout: Duration
    resume: bool
    sharing_depth: int | None
    scale: Mapping[str, tuple[int, int]]
    scale_catch_up: Duration
    scale_down_after: Duration
    scale_dry_run: bool
    scale_latency: Duration
    scale_policy: Literal["throughput", "lag", "latency"] | ScalingPolicy | Decide
    scale_window: Duration
    slot_trace: Text
    slots_wait: Duration
    snapshot_chain_max: int
    snapshot_inline: Size
    spare_slots: int
    spill_policy: Literal["eager", "availability", "epoch"] | SpillPolicy
    standby: Literal["passive", "hot"] | StandbyKind
    standbys: int
    step_cost: Duration
    step_records_first: int
    step_records_max: int
    store: Text
    telemetry: Text
    trace_every: Duration
    watermark_drift_max: Duration
    widths: str | Sequence[Text]


Slots = Literal["auto", "spark", "process", "thread"] | SlotKind


class JobOptions(StartOptions, total=False):
    """Options that are keywords of ``Job``."""

    master: Text
    slots: Slots
