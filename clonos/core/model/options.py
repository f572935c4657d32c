"""Options of a job as the core reads them, with the unit last in each name. ``clonos.config`` fills them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SpillPolicy(StrEnum):
    """Policy that decides when elements of an in-flight log are written to disk."""

    EAGER = "eager"  # each chunk as soon as it is full
    AVAILABILITY = "availability"  # when the memory budget is nearly used up, oldest first
    EPOCH = "epoch"  # an epoch at a time, when the next one begins and the budget is short


class StandbyKind(StrEnum):
    """Way in which a standby follows its task."""

    PASSIVE = "passive"  # keeps a mirror of the state, updated at each checkpoint
    HOT = "hot"  # also runs a shadow, which replays the task's log as it grows


class PlacementKind(StrEnum):
    """Order in which tasks take slots, where there are more slots than tasks."""

    SPREAD = "spread"  # one failure domain after the other, so that a loss concerns few tasks
    PACK = "pack"  # as few hosts and domains as possible, so that less travels between them


class OnDivergence(StrEnum):
    """Measure for a replay that differs from the first execution of its task."""

    FAIL = "fail"  # end the job
    ROLLBACK = "rollback"  # all tasks begin again at the last checkpoint, once per epoch
    ACCEPT = "accept"  # go on with a warning; what is in the state and what has left may disagree


class Compression(StrEnum):
    """Choice of the connections on which the elements of channels are compressed."""

    REMOTE = "remote"  # between slots on different hosts
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the runtime.

    Durations are in the unit of the name, sizes in bytes per slot unless the comment says otherwise.
    """

    heartbeat_ms: int = 100
    lease_ms: int = 5_000
    orphan_after_ms: int = 60_000
    slots_wait_ms: int = 60_000
    checkpoint_every_ms: int = 5_000
    checkpoint_timeout_ms: int = 60_000
    checkpoint_pause_min_ms: int = 0  # from the end of a checkpoint to the next that is due by time
    checkpoint_failures_max: int | None = None  # failed checkpoints in succession before the job fails; None: any
    checkpoints_retained: int = 2  # completed checkpoints whose objects are kept, 2 at least
    standbys: int = 1
    standby: StandbyKind = StandbyKind.PASSIVE  # default for steps that do not choose a kind
    keepers: int = 1
    placement: PlacementKind = PlacementKind.SPREAD
    move_tasks: bool = True  # move tasks that share a slot since a loss
    move_timeout_ms: int = 10_000  # from the suspension of a task that moves until its move is given up
    rescale_timeout_ms: int = 30_000  # from the cut of a change of widths until the change is given up
    sharing_depth: int | None = None
    replicas: int | None = None  # other domains that must hold a log before sharing of it stops; None: it never stops
    max_parallelism: int = 128
    step_cost_us: int = 5_000  # target duration of a step
    step_records_max: int = 16_384
    step_records_first: int = 64
    credit_window_bytes: int = 4 << 20  # per channel, at most
    channel_delay_ms: int = 200  # target length of a channel's queue, in time that its receiver needs for it
    inflight_memory_bytes: int = 128 << 20
    inflight_disk_bytes: int = 4 << 30  # soft limit at 80 %, hard at 100 %
    log_memory_bytes: int = 64 << 20
    spill_policy: SpillPolicy = SpillPolicy.AVAILABILITY
    snapshot_chain_max: int = 16  # incremental snapshots before the whole state is stored again
    snapshot_inline_bytes: int = 4 << 20  # changes up to this size are encoded at the barrier, larger ones afterwards
    calls_ahead_max: int = 32  # outcomes of plain calls that may wait for the end of the step before they are shipped
    clock_tick_ms: int = 0  # resolution of the coarse clock; 0: one CLOCK entry per step
    watermark_drift_max_ns: int = 0  # event time by which a source may be ahead of the slowest one; 0: no limit
    intercept: bool = False  # record clocks, random numbers and HTTP clients of libraries in all functions of steps
    trace_every_ms: int = 0  # least time between two steps of a source whose records' way is traced; 0: none is
    failures_per_epoch_max: int = 8  # incarnations of one task between two completed checkpoints
    on_divergence: OnDivergence = OnDivergence.FAIL
    causal_logging: bool = True  # off only as a negative control and for measurements
    compress: Compression = Compression.REMOTE  # LZ4 on channels
