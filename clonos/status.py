"""What a running job tells about itself: behind the live display, the metrics file and ``Handle.status()``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from clonos.core.model.progress import TaskPhase


class Phase(StrEnum):
    """Where a job stands."""

    STARTING = "starting"  # slots are born and register
    RUNNING = "running"
    STOPPING = "stopping"  # a last checkpoint is on its way
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task as its current view and its slot's last status have it. ``slot`` 0: it waits for one.

    ``counters``: by name, see ``TaskCounter`` (docs/operations.md lists them).
    """

    name: str
    incarnation: int
    slot: int
    pid: int
    domain: str
    phase: TaskPhase
    counters: Mapping[str, int]
    standbys: int  # that could take over now
    keepers: int  # that hold all the task holds
    hot_standbys: int = 0  # that follow it step by step


@dataclass(frozen=True, slots=True)
class SlotState:
    """A living slot. ``domain``: what dies together."""

    slot: int
    pid: int
    domain: str
    host: str


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """One recovery of one task. ``reached``: milestones with the wall clock in ns, in order."""

    task: str
    failed_incarnation: int
    incarnation: int  # the successor's; 0 until there is one
    cause: str
    reached: Mapping[str, int]

    @property
    def is_over(self) -> bool:
        """Whether the task has caught up."""
        return "caught_up" in self.reached


@dataclass(frozen=True, slots=True)
class Status:
    """A job at one instant. ``checkpoint``: the last completed one, whose number names the epoch behind it."""

    job: str
    phase: Phase
    job_id: str = ""
    checkpoint: int = 0
    generation: int = 0  # number of the view that began it: 1, or that of the last rollback
    view: int = 0
    slots: tuple[SlotState, ...] = ()
    tasks: tuple[TaskState, ...] = ()
    recoveries: tuple[RecoveryState, ...] = ()
    alarms: tuple[str, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    fault_points: str = ""  # address of who may strike at named points of the job's processes; empty: not armed
