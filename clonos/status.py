"""Status of a running job: the source of the live display, of the metrics file and of ``Handle.status()``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from clonos.core.model.progress import TaskPhase


class Phase(StrEnum):
    """Phase of a job."""

    STARTING = "starting"  # slots start and register
    RUNNING = "running"
    STOPPING = "stopping"  # the final checkpoint is being taken
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class TaskState:
    """State of one task, from the current view and from the last status that its slot sent.

    ``slot`` and ``pid``: 0 while the task waits for a slot. ``counters``: by name, see ``TaskCounter``
    (docs/operations.md lists them).
    """

    name: str
    incarnation: int
    slot: int
    pid: int
    domain: str
    phase: TaskPhase
    counters: Mapping[str, int]
    standbys: int  # that hold a state and could take over now
    keepers: int  # that hold the whole log of the task
    hot_standbys: int = 0  # that replay each step as it happens
    hot_key: str = ""  # of which most of its latest records are; empty if no key stands out
    hot_key_share: float = 0.0  # of its latest records
    late_records: Mapping[str, int] = field(default_factory=dict)  # by step, without steps that have none


def by_step(tasks: Iterable[TaskState], counter: str) -> Counter[str]:
    """Returns a counter summed over the tasks of each step, in their order."""
    found: Counter[str] = Counter()
    for task in tasks:
        found[task.name.rpartition("/")[0]] += task.counters.get(counter, 0)
    return found


def late_by_step(tasks: Iterable[TaskState]) -> Counter[str]:
    """Returns the late records of each step that has any, summed over tasks, in their order."""
    found: Counter[str] = Counter()
    for task in tasks:
        found.update(task.late_records)
    return found


def late_text(late: Mapping[str, int]) -> str:
    """Returns the counts of late records by step, as in "sessions 12, merge 3"."""
    return ", ".join(f"{step} {count:,}" for step, count in late.items())


@dataclass(frozen=True, slots=True)
class SlotState:
    """One living slot. ``domain``: failure domain, the processes that fail together with it."""

    slot: int
    pid: int
    domain: str
    host: str


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """One recovery of one task. ``reached``: wall clock of each milestone in nanoseconds since the Unix epoch, in
    order."""

    task: str
    failed_incarnation: int
    incarnation: int  # of the successor; 0 until it is placed
    cause: str
    reached: Mapping[str, int]

    @property
    def is_over(self) -> bool:
        """True when the task has caught up."""
        return "caught_up" in self.reached


@dataclass(frozen=True, slots=True)
class Status:
    """State of a job at one instant. ``checkpoint``: number of the last completed checkpoint, which also numbers the
    epoch after it."""

    job: str
    phase: Phase
    job_id: str = ""
    checkpoint: int = 0
    generation: int = 0  # number of the view that began the generation: 1, or that of the last rollback
    view: int = 0
    slots: tuple[SlotState, ...] = ()
    tasks: tuple[TaskState, ...] = ()
    recoveries: tuple[RecoveryState, ...] = ()
    alarms: tuple[str, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    fault_points: str = ""  # host:port of the listener of fault points; empty: not armed
