"""Options of a job as the core knows them: typed, with unit last in the name. ``clonos.config`` fills them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SpillPolicy(StrEnum):
    """When the in-flight log goes to disk."""

    EAGER = "eager"  # every chunk at once
    AVAILABILITY = "availability"  # when the memory budget is nearly used up, oldest first
    EPOCH = "epoch"  # an epoch at a time, when the next one begins and the budget is short


class StandbyKind(StrEnum):
    """How standbys follow their task."""

    PASSIVE = "passive"  # a mirror of its state, from checkpoint to checkpoint
    HOT = "hot"  # a shadow besides, step by step


class Compression(StrEnum):
    """Between which slots the elements of channels are compressed."""

    REMOTE = "remote"  # on different hosts
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Options:
    """What steers the runtime. Durations in the unit of the name, sizes in bytes, per slot where not said otherwise."""

    heartbeat_ms: int = 100
    lease_ms: int = 5_000
    orphan_after_ms: int = 60_000
    slots_wait_ms: int = 60_000
    checkpoint_every_ms: int = 5_000
    checkpoint_timeout_ms: int = 60_000
    standbys: int = 1
    standby: StandbyKind = StandbyKind.PASSIVE  # of steps that do not say it themselves
    keepers: int = 1
    sharing_depth: int | None = None
    replicas: int | None = None  # domains besides its own that hold a log before sharing stops; None: never
    max_parallelism: int = 128
    step_cost_us: int = 5_000  # a step aims at this much work
    step_records_max: int = 16_384
    step_records_first: int = 64
    credit_window_bytes: int = 4 << 20  # per channel, at most
    channel_delay_ms: int = 200  # a channel's queue aims at this much work of its receiver
    inflight_memory_bytes: int = 128 << 20
    inflight_disk_bytes: int = 4 << 30  # soft limit at 80 %, hard at 100 %
    log_memory_bytes: int = 64 << 20
    spill_policy: SpillPolicy = SpillPolicy.AVAILABILITY
    snapshot_chain_max: int = 16  # snapshots that build on each other before all of the state is stored again
    snapshot_inline_bytes: int = 4 << 20  # changes of state that a barrier encodes itself
    calls_ahead_max: int = 32  # outcomes of plain calls that wait for the end of the step to be shipped
    clock_tick_ms: int = 0  # coarse clock: one CLOCK entry for every so many ms; 0: one a step
    failures_per_epoch_max: int = 8  # incarnations of one task between two completed checkpoints
    causal_logging: bool = True  # off only as a negative control and for measurements
    compress: Compression = Compression.REMOTE  # LZ4 on channels
