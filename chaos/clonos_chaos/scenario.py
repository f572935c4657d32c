"""A scenario: job x faults x moments x patterns x limits x expected outcome. What is in a scenario file, as types.

``scenario_file`` reads one; the runners for real processes and for the simulated world carry it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


class Kind(StrEnum):
    """What goes wrong."""

    KILL_WORKER = "kill_worker"  # SIGKILL for the process of a task
    KILL_DOMAIN = "kill_domain"  # for all processes that die together, an executor
    KILL_DRIVER = "kill_driver"  # for the driver, then resume
    PAUSE = "pause"  # SIGSTOP, after a while SIGCONT
    CUT = "cut"  # no connection, and none can be made
    HALF_OPEN = "half_open"  # connections stand, what the victim sends vanishes
    RESET = "reset"  # connections break by RST, new ones are let through
    DELAY = "delay"  # latency with jitter
    THROTTLE = "throttle"  # bytes per second
    SLICE = "slice"  # packets come in small pieces
    CORRUPT = "corrupt"  # bits flip on the way
    DISK_FULL = "disk_full"  # no room to spill
    SERVICE_ERROR = "service_error"  # the HTTP service answers 500
    SERVICE_HANG = "service_hang"  # it takes requests and does not answer
    SERVICE_DOWN = "service_down"  # nobody listens


class Pattern(StrEnum):
    """Whom it befalls, seen from the victim."""

    ONE = "one"
    LINKED = "linked"  # and a task that it feeds
    UNLINKED = "unlinked"  # and one that no channel joins with it
    SIBLINGS = "siblings"  # and another task of the same step
    AT_ONCE = "at_once"  # ``count`` tasks together
    IN_A_ROW = "in_a_row"  # the same task ``count`` times
    WITH_STANDBY = "with_standby"  # and whatever process hosts its standby
    LAYER = "layer"  # all tasks of the step
    ALL = "all"


class Outcome(StrEnum):
    """How it shall end."""

    EXACTLY_ONCE = "exactly_once"  # nothing lost, twice or contradicted, and no rollback
    ROLLBACK = "rollback"  # the same for transactional sinks; what immediate ones repeat is announced by an alarm
    FAILS = "fails"  # the job fails aloud


NETWORK: Final = (Kind.CUT, Kind.HALF_OPEN, Kind.RESET, Kind.DELAY, Kind.THROTTLE, Kind.SLICE)
"""What goes through Toxiproxy."""

SERVICE: Final = (Kind.SERVICE_ERROR, Kind.SERVICE_HANG, Kind.SERVICE_DOWN)
LASTING: Final = (*NETWORK, *SERVICE, Kind.CORRUPT, Kind.PAUSE, Kind.DISK_FULL)
"""What ends by itself after ``lasts``."""

VICTIMLESS: Final = (*SERVICE, Kind.KILL_DRIVER)

POINTS: Final = {
    "checkpoint": "a checkpoint has completed",
    "recovering": "a recovery has its view and is not over",
    "call": "the service was asked and has not answered yet; the victim is who asks",
    "called": "the service has just answered; the victim is who asked",
    "committed": "a transactional sink has committed",
}
"""Points of the protocol that can be seen from outside a real process; the simulated world has more."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When: ``seconds`` after every task was live, after ``records`` read, or at a ``point`` for the ``nth`` time."""

    seconds: float | None = None
    records: int | None = None
    point: str = ""
    nth: int = 1

    def __str__(self) -> str:
        if self.point:
            return f"{self.point} {self.nth}"
        return f"{self.seconds:g} s" if self.seconds is not None else f"{self.records} records"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``victim``: a step by name, empty for any. What else is given depends on the kind: ``KEYS_OF``."""

    kind: Kind
    at: Moment
    victim: str = ""
    pattern: Pattern = Pattern.ONE
    count: int = 2  # of at_once and in_a_row
    calm: bool = True  # waits until every task is live and has its standbys and keepers
    lasts_ms: int = 1_000
    latency_ms: int = 100
    jitter_ms: int = 50
    bytes_per_second: int = 10_000
    piece_bytes: int = 16
    every_bytes: int = 4_096  # one flipped bit in so many


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be taken. Reaching one is a failed scenario."""

    seconds: float = 60.0  # for the whole run
    recovery_ms: int = 10_000  # from a fault until the struck task has caught up
    rollbacks: int = 0
    disturbed: int = 0  # healthy tasks that lose their process or incarnation
    calls_repeated: int | None = None  # questions that the service was asked again


@dataclass(frozen=True, slots=True)
class Expected:
    """What the oracle shall find."""

    outcome: Outcome = Outcome.EXACTLY_ONCE
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
    faults: tuple[Fault, ...] = ()
    limits: Limits = Limits()
    expected: Expected = Expected()

    @property
    def needs_toxiproxy(self) -> bool:
        """Whether a connection is meddled with."""
        return any(fault.kind in NETWORK for fault in self.faults)

    @property
    def needs_relay(self) -> bool:
        """Whether bytes are corrupted."""
        return any(fault.kind is Kind.CORRUPT for fault in self.faults)


KEYS_OF: Final[Mapping[str, tuple[Kind, ...]]] = {
    "lasts": LASTING,
    "latency": (Kind.DELAY,),
    "jitter": (Kind.DELAY,),
    "bytes_per_second": (Kind.THROTTLE,),
    "piece_bytes": (Kind.SLICE,),
    "every_bytes": (Kind.CORRUPT,),
    "victim": tuple(kind for kind in Kind if kind not in VICTIMLESS),
    "pattern": tuple(kind for kind in Kind if kind not in VICTIMLESS),
}
"""Keys that mean something for these kinds only."""
