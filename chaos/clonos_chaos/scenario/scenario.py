"""Types of a scenario: job x faults x triggers x patterns x limits x expected outcome.

``scenario_file`` reads scenarios; the runners for real processes and for the simulated world execute them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from clonos.io.process.fault_points import FaultPoint


class FaultKind(StrEnum):
    """Kind of a fault."""

    KILL_WORKER = "kill_worker"  # SIGKILL for the process of a task
    KILL_DOMAIN = "kill_domain"  # SIGKILL for a failure domain, such as an executor
    KILL_DRIVER = "kill_driver"  # SIGKILL for the driver, then resume
    PAUSE = "pause"  # SIGSTOP, after a while SIGCONT
    PARTITION = "partition"  # the host of a task, on Spark: no packet passes
    CUT = "cut"  # connections break, and none can be made
    HALF_OPEN = "half_open"  # connections stay open, but what the victim sends is lost
    RESET = "reset"  # connections break by RST, new ones work
    DELAY = "delay"  # latency with jitter
    THROTTLE = "throttle"  # bytes per second
    SLICE = "slice"  # data arrives in small pieces
    CORRUPT = "corrupt"  # bits are flipped in transit
    DISK_FULL = "disk_full"  # no space for spill files
    DISK_FAILING = "disk_failing"  # no file can be written: spill, snapshots, metadata
    DISK_SLOW = "disk_slow"  # writes of segments, snapshots and metadata are delayed
    VOLUME_FULL = "volume_full"  # the file systems of spill, store or output have no space left
    FILE_TABLE_FULL = "file_table_full"  # the process can open no further file or connection
    MEMORY_LIMIT = "memory_limit"  # the process gets little further memory
    SERVICE_ERROR = "service_error"  # the HTTP service answers 500
    SERVICE_SLOW = "service_slow"  # it answers late, mostly after the timeout
    SERVICE_HANG = "service_hang"  # it accepts requests and does not answer
    SERVICE_DOWN = "service_down"  # it refuses connections
    USER_ERROR = "user_error"  # user code raises at a record: once, or each time
    CLOCK_STEP = "clock_step"  # the wall clock of all processes jumps
    ATTACK = "attack"  # hostile processes connect to driver and slots


class Weapon(StrEnum):
    """Kind of an attack."""

    NO_KEYS = "no_keys"  # connections without encryption
    WRONG_KEYS = "wrong_keys"  # with the key of another driver, and with an unknown client key
    HALF_HANDSHAKES = "half_handshakes"  # connections that stop in mid-greeting, and garbage
    LONG_FRAMES = "long_frames"  # frames that announce 256 MiB before authentication
    CROWD = "crowd"  # thousands of idle and of slow connections
    FULL_TABLE = "full_table"  # a crowd at a driver with few free file descriptors
    FLOOD = "flood"  # messages with the driver's public key and with the key of a slot
    UNFINISHED = "unfinished"  # messages in pieces that never end, with the key of a slot
    LIAR = "liar"  # messages that a slot may not send, with the key of a slot
    ALL = "all"  # in turn


class Pattern(StrEnum):
    """Processes that a fault hits, relative to the victim."""

    ONE = "one"
    LINKED = "linked"  # the victim and a task downstream
    UNLINKED = "unlinked"  # the victim and a task without a channel to it
    SIBLINGS = "siblings"  # the victim and another task of the same step
    AT_ONCE = "at_once"  # ``count`` tasks simultaneously
    IN_A_ROW = "in_a_row"  # the victim ``count`` times
    WITH_STANDBY = "with_standby"  # the victim and the processes of its standby and its keepers
    STANDBY = "standby"  # the processes of its standby and keepers, but not the victim
    LAYER = "layer"  # all tasks of the step
    DRIVER = "driver"  # the driver's process alone
    ALL = "all"


class Volume(StrEnum):
    """Folder of a job that has a small file system of its own."""

    SPILL = "spill"
    STORE = "store"
    OUTPUT = "output"
    TABLE = "table"
    ALL = "all"


class ScenarioOutcome(StrEnum):
    """Expected outcome of a run."""

    EXACTLY_ONCE = "exactly_once"  # nothing lost, duplicated or contradicted, and no rollback
    ROLLBACK = "rollback"  # the same after a rollback, which withdraws a table's rows since the checkpoint
    EITHER = "exactly_once_or_rollback"  # either of them
    FAILS = "fails"  # the job fails with an error
    RESUMED = "resumed"  # the same, and a driver that resumes it then is exactly-once after the rollback


BACKUP_PATTERNS: Final = (Pattern.WITH_STANDBY, Pattern.STANDBY)
"""Patterns that hit the slots that could take over from the victim."""

COUNTED: Final = (Pattern.AT_ONCE, Pattern.IN_A_ROW)
"""Patterns with a ``count``."""

NETWORK: Final = (
    FaultKind.CUT,
    FaultKind.HALF_OPEN,
    FaultKind.RESET,
    FaultKind.DELAY,
    FaultKind.THROTTLE,
    FaultKind.SLICE,
)
"""Faults that need Toxiproxy."""

SERVICE: Final = (FaultKind.SERVICE_ERROR, FaultKind.SERVICE_SLOW, FaultKind.SERVICE_HANG, FaultKind.SERVICE_DOWN)
"""Faults of the service: the victim is the step whose calls fail; empty: all steps."""

DISK: Final = (FaultKind.DISK_FULL, FaultKind.DISK_FAILING, FaultKind.DISK_SLOW)
LASTING: Final = (
    *NETWORK,
    *SERVICE,
    *DISK,
    FaultKind.PARTITION,
    FaultKind.CORRUPT,
    FaultKind.PAUSE,
    FaultKind.CLOCK_STEP,
    FaultKind.ATTACK,
    FaultKind.VOLUME_FULL,
    FaultKind.FILE_TABLE_FULL,
    FaultKind.MEMORY_LIMIT,
)
"""Faults with a duration, ``lasts``."""

OF_RESOURCES: Final = (
    FaultKind.DISK_FAILING,
    FaultKind.DISK_SLOW,
    FaultKind.FILE_TABLE_FULL,
    FaultKind.MEMORY_LIMIT,
)
"""Faults that may hit the driver, by the patterns ``driver`` and ``all``."""

VICTIMLESS: Final = (FaultKind.KILL_DRIVER, FaultKind.CLOCK_STEP, FaultKind.ATTACK, FaultKind.VOLUME_FULL)
TASKLESS: Final = (*VICTIMLESS, *SERVICE, FaultKind.USER_ERROR)
"""Faults that hit no process of a task."""

LEAVES_ZOMBIES: Final = (FaultKind.PAUSE, FaultKind.PARTITION, *NETWORK, FaultKind.CORRUPT)
"""Faults after which a replaced task may run on for a moment and call the service once more."""

STATUS_POINTS: Final = {
    "checkpoint": "a checkpoint has completed",
    "recovering": "a recovery has its view and has not ended",
}
"""Points seen in the job's status. At all others, fault points, a thread waits until the fault is injected."""

FAULT_POINTS: Final[dict[str, str]] = {
    FaultPoint.START: "the thread of an incarnation begins: after a death, its replay",
    FaultPoint.LOG_END: "a task has replayed its log and requests to go live",
    FaultPoint.LIVE: "the task goes live",
    FaultPoint.EMISSION: "a step has ended, and none of its output has left",
    FaultPoint.ALIGNING: "the same, while a barrier has come on some inputs",
    FaultPoint.ALIGNED: "a barrier was emitted, with the snapshot",
    FaultPoint.SUSPENDED: "a task makes no further step, because it moves to another process",
    FaultPoint.END_OF_STREAM: "a task has ended its stream",
    FaultPoint.INTENT: "a call with an effect is announced in the log",
    FaultPoint.CALL: "the external system is about to be called",
    FaultPoint.CALLED: "the external system has answered, and the outcome is not replicated",
    FaultPoint.SPILLING: "a segment of an in-flight log is about to be written to disk",
    FaultPoint.SNAPSHOT_BEGUN: "a snapshot is about to be written to the store",
    FaultPoint.SNAPSHOT_WRITTEN: "it is stored, and not acknowledged",
    FaultPoint.WHOLE_STATE_BEGUN: "all of a task's state is about to be written beside its snapshots",
    FaultPoint.WHOLE_STATE_WRITTEN: "it is stored, and not acknowledged",
    FaultPoint.SINK_OPENED: "a sink has registered at its external system",
    FaultPoint.SINK_WRITTEN: "the external system has the rows, and has not confirmed them",
    FaultPoint.METADATA_BEGUN: "all tasks have acknowledged a checkpoint, which is about to be made durable",
    FaultPoint.METADATA_WRITTEN: "it is durable, and not published",
    FaultPoint.COMMITTED: "a transactional sink has committed, and the commit is not recorded",
}
"""Fault points. Also ``<message> delivered``, such as ``standby_update delivered``: it has come, and is unread."""


def is_fault_point(point: str) -> bool:
    """Returns whether processes wait at a point."""
    return point in FAULT_POINTS or point.endswith(" delivered")


@dataclass(frozen=True, slots=True)
class FaultTrigger:
    """Trigger: ``seconds`` after all tasks were live, after ``records`` read, or the ``nth`` time at a ``point``.

    ``task``: step at which the point counts; empty: the victim, or any task without a victim.
    """

    seconds: float | None = None
    records: int | None = None
    point: str = ""
    nth: int = 1
    task: str = ""

    def __str__(self) -> str:
        if self.point:
            return f"{self.point} {self.nth}"
        return f"{self.seconds:g} s" if self.seconds is not None else f"{self.records} records"


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """Fault of a scenario. ``victim``: a step by name; empty: any. ``KEYS_OF`` lists the keys of each kind."""

    kind: FaultKind
    at: FaultTrigger
    victim: str = ""
    pattern: Pattern = Pattern.ONE
    count: int = 2  # of at_once and in_a_row
    quiescent: bool = True  # waits until every task is live and has its standbys and keepers
    all_slots: bool = False  # waits until as many slots as at the start are there: the victim is alone in its slot
    lasts_ms: int = 1_000
    latency_ms: int = 100
    jitter_ms: int = 50
    bytes_per_second: int = 10_000
    piece_bytes: int = 16
    every_bytes: int = 4_096  # one bit is flipped about every this many bytes
    step_ms: int = 3_600_000  # by which the wall clock jumps; negative: back
    volume: Volume = Volume.ALL
    more_bytes: int = 0  # of memory that a limited process still gets
    again: bool = False  # user code raises each time that it sees the record
    weapon: Weapon = Weapon.ALL
    connections: int = 10_000  # of a crowd, in all


@dataclass(frozen=True, slots=True)
class ScenarioLimits:
    """Limits of a run. A run beyond one of them fails."""

    seconds: float = 120.0  # for the whole run
    recovery_ms: int = 10_000  # from a fault until the task has caught up
    rollbacks: int = 0
    disturbed: int = 0  # healthy tasks that lose their process or incarnation
    moves: int = 0  # planned moves that there must be at least
    calls_repeated: int | None = None  # repeated calls of the service
    stop_after: float = 0.0  # seconds after which a job without an end is stopped, once it is live; 0: never
    retained_bytes: int = 65_536  # in logs and in-flight logs after a checkpoint, beyond those at the start
    memory_peak_bytes: int = 300_000_000  # by which a process may grow while it is attacked
    memory_left_bytes: int = 100_000_000  # which it may keep afterwards


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected findings of the oracle."""

    outcome: ScenarioOutcome = ScenarioOutcome.EXACTLY_ONCE
    lost: int = 0
    duplicated: int = 0
    contradicted: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run of one job. ``options``: of the job. ``job_options``: arguments of the function that makes the job."""

    name: str
    job: str
    about: str = ""
    oracle: str = ""  # "module:function" of the user's own job
    options: Mapping[str, Any] = field(default_factory=dict)
    job_options: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[FaultSpec, ...] = ()
    limits: ScenarioLimits = ScenarioLimits()
    expected: Expected = Expected()

    @property
    def needs_toxiproxy(self) -> bool:
        """Returns whether a fault goes through Toxiproxy."""
        return any(fault.kind in NETWORK for fault in self.faults)

    @property
    def needs_relay(self) -> bool:
        """Returns whether bytes are corrupted."""
        return any(fault.kind is FaultKind.CORRUPT for fault in self.faults)

    @property
    def needs_fault_points(self) -> bool:
        """Returns whether processes must wait at fault points."""
        return any(is_fault_point(fault.at.point) or fault.kind is FaultKind.DISK_SLOW for fault in self.faults)

    @property
    def needs_attackers(self) -> bool:
        """Returns whether processes are attacked."""
        return any(fault.kind is FaultKind.ATTACK for fault in self.faults)

    @property
    def needs_hosts(self) -> bool:
        """Returns whether a host is cut off."""
        return any(fault.kind is FaultKind.PARTITION for fault in self.faults)

    @property
    def needs_clock_shim(self) -> bool:
        """Returns whether the wall clock is set."""
        return any(fault.kind is FaultKind.CLOCK_STEP for fault in self.faults)

    @property
    def needs_volumes(self) -> bool:
        """Returns whether folders of the job have small file systems of their own."""
        return any(fault.kind is FaultKind.VOLUME_FULL for fault in self.faults)


KEYS_OF: Final[Mapping[str, tuple[FaultKind, ...]]] = {
    "lasts": LASTING,
    "latency": (FaultKind.DELAY, FaultKind.SERVICE_SLOW, FaultKind.DISK_SLOW),
    "jitter": (FaultKind.DELAY,),
    "bytes_per_second": (FaultKind.THROTTLE,),
    "piece_bytes": (FaultKind.SLICE,),
    "every_bytes": (FaultKind.CORRUPT,),
    "step": (FaultKind.CLOCK_STEP,),
    "volume": (FaultKind.VOLUME_FULL,),
    "more_bytes": (FaultKind.MEMORY_LIMIT,),
    "again": (FaultKind.USER_ERROR,),
    "weapon": (FaultKind.ATTACK,),
    "connections": (FaultKind.ATTACK,),
    "victim": tuple(kind for kind in FaultKind if kind not in VICTIMLESS),
    "pattern": tuple(kind for kind in FaultKind if kind not in TASKLESS),
}
"""Keys that apply to these kinds only."""
