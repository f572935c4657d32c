"""A scenario: job x faults x moments x patterns x limits x expected outcome. What is in a scenario file, as types.

``scenario_file`` reads one; the runners for real processes and for the simulated world carry it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from clonos.io.process.fault_points import FaultPoint


class FaultKind(StrEnum):
    """What goes wrong."""

    KILL_WORKER = "kill_worker"  # SIGKILL for the process of a task
    KILL_DOMAIN = "kill_domain"  # for all processes that die together, an executor
    KILL_DRIVER = "kill_driver"  # for the driver, then resume
    PAUSE = "pause"  # SIGSTOP, after a while SIGCONT
    PARTITION = "partition"  # the whole host of a task, on Spark: no packet goes in or out
    CUT = "cut"  # no connection, and none can be made
    HALF_OPEN = "half_open"  # connections stand, what the victim sends vanishes
    RESET = "reset"  # connections break by RST, new ones are let through
    DELAY = "delay"  # latency with jitter
    THROTTLE = "throttle"  # bytes per second
    SLICE = "slice"  # packets come in small pieces
    CORRUPT = "corrupt"  # bits flip on the way
    DISK_FULL = "disk_full"  # no room to spill
    DISK_FAILING = "disk_failing"  # no file can be written: spill, snapshots, metadata
    DISK_SLOW = "disk_slow"  # each segment, snapshot and piece of metadata waits before it is written
    SERVICE_ERROR = "service_error"  # the HTTP service answers 500
    SERVICE_SLOW = "service_slow"  # it answers late, mostly later than anybody waits
    SERVICE_HANG = "service_hang"  # it takes requests and does not answer
    SERVICE_DOWN = "service_down"  # nobody listens
    USER_ERROR = "user_error"  # user code raises at a record: once, or whenever it sees it
    CLOCK_STEP = "clock_step"  # the wall clock of all processes is set
    ATTACK = "attack"  # hostile neighbours at the ports of driver and slots


class Weapon(StrEnum):
    """What an attack is made with."""

    NO_KEYS = "no_keys"  # connections without encryption
    WRONG_KEYS = "wrong_keys"  # with the key of another driver, and with a client key that nobody knows
    HALF_HANDSHAKES = "half_handshakes"  # connections that stop in mid-greeting, and garbage
    LONG_FRAMES = "long_frames"  # 256 MiB claimed before a key is shown
    CROWD = "crowd"  # thousands of idle and of slow connections
    FULL_TABLE = "full_table"  # a crowd at a driver that may have few files more than it has
    FLOOD = "flood"  # of messages, with the driver's public key and with the key of a slot
    UNFINISHED = "unfinished"  # messages in pieces without an end, by somebody with a slot's key
    LIAR = "liar"  # by the same, messages that a slot may not send
    ALL = "all"  # one after the other


class Pattern(StrEnum):
    """Whom it befalls, seen from the victim."""

    ONE = "one"
    LINKED = "linked"  # and a task that it feeds
    UNLINKED = "unlinked"  # and one that no channel joins with it
    SIBLINGS = "siblings"  # and another task of the same step
    AT_ONCE = "at_once"  # ``count`` tasks together
    IN_A_ROW = "in_a_row"  # the same task ``count`` times
    WITH_STANDBY = "with_standby"  # and whatever processes host its standby and its keepers
    STANDBY = "standby"  # these only: the victim itself lives on
    LAYER = "layer"  # all tasks of the step
    ALL = "all"


class ScenarioOutcome(StrEnum):
    """How it shall end."""

    EXACTLY_ONCE = "exactly_once"  # nothing lost, twice or contradicted, and no rollback
    ROLLBACK = "rollback"  # the same, behind a rollback: a table's rows since the checkpoint are withdrawn
    EITHER = "exactly_once_or_rollback"  # whichever it takes
    FAILS = "fails"  # the job fails aloud


OF_HELPERS: Final = (Pattern.WITH_STANDBY, Pattern.STANDBY)
"""They strike the slots that could take over for the victim."""

COUNTED: Final = (Pattern.AT_ONCE, Pattern.IN_A_ROW)
"""They have a ``count``."""

NETWORK: Final = (
    FaultKind.CUT,
    FaultKind.HALF_OPEN,
    FaultKind.RESET,
    FaultKind.DELAY,
    FaultKind.THROTTLE,
    FaultKind.SLICE,
)
"""What goes through Toxiproxy."""

SERVICE: Final = (FaultKind.SERVICE_ERROR, FaultKind.SERVICE_SLOW, FaultKind.SERVICE_HANG, FaultKind.SERVICE_DOWN)
"""Their victim is the step whose calls fail; empty: all steps."""

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
)
"""What ends by itself after ``lasts``."""

VICTIMLESS: Final = (FaultKind.KILL_DRIVER, FaultKind.CLOCK_STEP, FaultKind.ATTACK)
TASKLESS: Final = (*VICTIMLESS, *SERVICE, FaultKind.USER_ERROR)
"""They befall no process."""

LEAVES_ZOMBIES: Final = (FaultKind.PAUSE, FaultKind.PARTITION, *NETWORK, FaultKind.CORRUPT)
"""After them, a task that was replaced may go on for a moment, and ask the service once more."""

STATUS_POINTS: Final = {
    "checkpoint": "a checkpoint has completed",
    "recovering": "a recovery has its view and is not over",
}
"""Seen from outside; all others are fault points, at which whoever reaches one waits until the fault has struck."""

FAULT_POINTS: Final[dict[str, str]] = {
    FaultPoint.START: "the thread of an incarnation begins: after a death, its replay",
    FaultPoint.LOG_END: "a task has replayed its log and asks leave to go live",
    FaultPoint.LIVE: "it has got leave",
    FaultPoint.EMISSION: "a step was done, nothing of it has left",
    FaultPoint.ALIGNING: "the same, while a barrier has come by one input and not by all",
    FaultPoint.ALIGNED: "a barrier was put into the stream, with the snapshot",
    FaultPoint.END_OF_STREAM: "a task has ended its stream",
    FaultPoint.INTENT: "a call with an effect is announced in the log",
    FaultPoint.CALL: "the outside is about to be called",
    FaultPoint.CALLED: "the outside has answered, and nobody else knows",
    FaultPoint.SPILLING: "a segment of an in-flight log is about to be written to disk",
    FaultPoint.SNAPSHOT_BEGUN: "a snapshot is about to be written to the store",
    FaultPoint.SNAPSHOT_WRITTEN: "it is there, and nobody knows",
    FaultPoint.WHOLE_STATE_BEGUN: "all of a task's state is about to be written beside its snapshots",
    FaultPoint.WHOLE_STATE_WRITTEN: "it is there, and nobody knows",
    FaultPoint.OUTSIDE_OPENED: "a sink has opened its outside",
    FaultPoint.OUTSIDE_WRITTEN: "the outside has it, and nobody else knows",
    FaultPoint.METADATA_BEGUN: "all have acknowledged a checkpoint, which is about to be made durable",
    FaultPoint.METADATA_WRITTEN: "it is durable, and nobody knows",
    FaultPoint.COMMITTED: "a transactional sink has committed, and nobody knows",
}
"""Also a message's word and ``delivered``, such as ``standby_update delivered``: it has come, nobody has read it."""


def is_fault_point(point: str) -> bool:
    """Whether processes wait there."""
    return point in FAULT_POINTS or point.endswith(" delivered")


@dataclass(frozen=True, slots=True)
class FaultTrigger:
    """When: ``seconds`` after every task was live, after ``records`` read, or at a ``point`` for the ``nth`` time.

    ``task``: the step at which the point is watched; empty: the victim, or any task where there is none.
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
    """One fault. ``victim``: a step by name, empty for any. What else is given depends on the kind: ``KEYS_OF``."""

    kind: FaultKind
    at: FaultTrigger
    victim: str = ""
    pattern: Pattern = Pattern.ONE
    count: int = 2  # of at_once and in_a_row
    quiescent: bool = True  # waits until every task is live and has its standbys and keepers
    all_slots: bool = (
        False  # waits, too, until as many processes as at the start are there: the victim is alone in its own
    )
    lasts_ms: int = 1_000
    latency_ms: int = 100
    jitter_ms: int = 50
    bytes_per_second: int = 10_000
    piece_bytes: int = 16
    every_bytes: int = 4_096  # one flipped bit in so many
    step_ms: int = 3_600_000  # by which the wall clock is set forth
    again: bool = False  # user code raises whenever it sees the record
    weapon: Weapon = Weapon.ALL
    connections: int = 10_000  # of a crowd, in all


@dataclass(frozen=True, slots=True)
class ScenarioLimits:
    """What may be taken. Reaching one is a failed scenario."""

    seconds: float = 120.0  # for the whole run
    recovery_ms: int = 10_000  # from a fault until the struck task has caught up
    rollbacks: int = 0
    disturbed: int = 0  # healthy tasks that lose their process or incarnation
    calls_repeated: int | None = None  # questions that the service was asked again
    stop_after: float = 0.0  # seconds after which a job without an end is stopped, once it is live; 0: never
    retained_bytes: int = 65_536  # in logs and in-flight logs, beyond those at the start, once a checkpoint has come
    memory_peak_bytes: int = 300_000_000  # by which a process may grow while it is attacked
    memory_left_bytes: int = 100_000_000  # and what of it may stay


@dataclass(frozen=True, slots=True)
class Expected:
    """What the oracle shall find."""

    outcome: ScenarioOutcome = ScenarioOutcome.EXACTLY_ONCE
    lost: int = 0
    duplicated: int = 0
    contradicted: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run of one job. ``options`` are those of the job, ``job_options`` the arguments of whoever makes it."""

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
        """Whether a connection is meddled with."""
        return any(fault.kind in NETWORK for fault in self.faults)

    @property
    def needs_relay(self) -> bool:
        """Whether bytes are corrupted."""
        return any(fault.kind is FaultKind.CORRUPT for fault in self.faults)

    @property
    def needs_fault_points(self) -> bool:
        """Whether processes must wait at points."""
        return any(is_fault_point(fault.at.point) or fault.kind is FaultKind.DISK_SLOW for fault in self.faults)

    @property
    def needs_attackers(self) -> bool:
        """Whether processes are attacked."""
        return any(fault.kind is FaultKind.ATTACK for fault in self.faults)

    @property
    def needs_hosts(self) -> bool:
        """Whether a host is cut off."""
        return any(fault.kind is FaultKind.PARTITION for fault in self.faults)

    @property
    def needs_clock_shim(self) -> bool:
        """Whether the wall clock is set."""
        return any(fault.kind is FaultKind.CLOCK_STEP for fault in self.faults)


KEYS_OF: Final[Mapping[str, tuple[FaultKind, ...]]] = {
    "lasts": LASTING,
    "latency": (FaultKind.DELAY, FaultKind.SERVICE_SLOW, FaultKind.DISK_SLOW),
    "jitter": (FaultKind.DELAY,),
    "bytes_per_second": (FaultKind.THROTTLE,),
    "piece_bytes": (FaultKind.SLICE,),
    "every_bytes": (FaultKind.CORRUPT,),
    "step": (FaultKind.CLOCK_STEP,),
    "again": (FaultKind.USER_ERROR,),
    "weapon": (FaultKind.ATTACK,),
    "connections": (FaultKind.ATTACK,),
    "victim": tuple(kind for kind in FaultKind if kind not in VICTIMLESS),
    "pattern": tuple(kind for kind in FaultKind if kind not in TASKLESS),
}
"""Keys that mean something for these kinds only."""
