"""All that a coordinator knows: the states of its machines, and the few tables that join them.

Handlers (``forming``, ``running``, ``succession``) act on it; each machine's rules are in its own file. Tables that
follow from others are kept beside them because a tick for 2,000 tasks must stay below 10 ms.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, metadata_of_start
from clonos.core.coordinator import checkpoint_machine, failure_detector, failure_policy, view_machine
from clonos.core.coordinator.checkpoint_ledger import Ledger
from clonos.core.coordinator.coordinator_effects import (
    Effect,
    Ending,
    JobDone,
    JobFailed,
    Milestone,
    RecoveryEvent,
    ReleaseSlot,
    Send,
)
from clonos.core.coordinator.placement import Assignment, replication_targets
from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.control_messages import Completed, Register, Release, SlotAddress, SlotStatus, View

RECOVERIES_MAX = 1_000
"""Recoveries whose timeline is remembered; older ones are forgotten."""

# ------------------------------------------------------------------ phases of the job


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing has begun."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Slots of an earlier coordinator may live: hears who hosts what, until a lease has passed (protocol 9).

    Who has spoken, but not said yet by which view, is waited for, until ``last_ns`` at most.
    """

    until_ns: int
    last_ns: int
    heard: View | None  # the highest view that a slot has installed


@dataclass(frozen=True, slots=True)
class Starting:
    """Waits for slots to register before anything is activated."""

    begun_ns: int
    asked_elsewhere_ns: int  # when slots in another domain were asked for last


@dataclass(frozen=True, slots=True)
class Running:
    """A view stands."""


@dataclass(frozen=True, slots=True)
class Closing:
    """Nothing is left to do but to commit the last output."""


@dataclass(frozen=True, slots=True)
class Over:
    """The job has ended: whoever still speaks is released."""

    reason: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """Somebody else is coordinator: silence."""


Phase = Idle | Listening | Starting | Running | Closing | Over | Replaced


class JobPhase(StrEnum):
    """A phase by its name, for a status."""

    IDLE = "idle"
    LISTENING = "listening"
    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"
    OVER = "over"
    REPLACED = "replaced"


def name_of(phase: Phase) -> JobPhase:
    """The name of a phase."""
    match phase:
        case Idle():
            return JobPhase.IDLE
        case Listening():
            return JobPhase.LISTENING
        case Starting():
            return JobPhase.STARTING
        case Running():
            return JobPhase.RUNNING
        case Closing():
            return JobPhase.CLOSING
        case Over():
            return JobPhase.OVER
        case Replaced():
            return JobPhase.REPLACED


class CoordinatorState:
    """The coordinator's memory. ``effects`` is what the present event has led to so far."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan, self.options = plan, options
        self.limits = failure_detector.DetectorLimits.of(options)
        self.targets = replication_targets(plan, options.standbys, options.keepers)
        self.effects: list[Effect] = []
        self.phase: Phase = Idle()
        self.term, self.job_id = 0, ""
        self.versions: dict[str, str] = {}
        self.can_spread = True
        self.now_ns = 0  # wall clock, for the timeline only
        self.clock = failure_detector.WakingClock()
        # slots
        self.addresses: dict[SlotId, SlotAddress] = {}  # of the living ones
        self.registers: dict[SlotId, Register] = {}
        self.statuses: dict[SlotId, SlotStatus] = {}
        self.last_statuses: tuple[SlotStatus, ...] = ()  # of the slots that lived when the job ended
        self.lives: dict[SlotId, failure_detector.Life] = {}
        self.mutual_suspicions = failure_detector.MutualSuspicions()
        self.slots_needed = 0
        self.slots_requested = 0  # and not here yet
        self.requested_ns = 0
        self.refusals = 0  # since a slot last registered
        self.refused_ns = 0
        self.refusal = ""
        self.unplaced_since_ns: int | None = None  # since when there has been a task without a slot
        # views
        self.views: view_machine.State = view_machine.Unformed(0, "")
        self.assignment: tuple[Assignment, ...] = ()  # by the view that stands
        self.hosted: dict[SlotId, list[TaskId]] = {}  # by the view that stands
        self.behind_view: dict[SlotId, None] = {}
        self.behind_completed: dict[SlotId, None] = {}
        self.repeated_ns = 0
        # what the next view shall change
        self.failed_tasks: dict[
            TaskId, bool
        ] = {}  # tasks without a living incarnation; True: the successor is cautious
        self.is_rollback_due = False
        self.is_mending_due = False  # slots or the readiness of riders have changed
        self.is_balanced = False  # every rider sits well, is there once and nothing is left to drop
        # checkpoints
        start = metadata_of_start(plan, "", 0)
        nobody = (None,) * len(plan.tasks)
        self.checkpoints: checkpoint_machine.State = checkpoint_machine.Collecting(
            Ledger(plan, 0, 1, nobody, CheckpointId(0), (), {}, start, start, ())
        )
        self.due_ns = 0
        self.postponed_ns: int | None = None  # since when a checkpoint that is due waits for a recovery
        self.is_draining = False
        self.drain_number = CheckpointId(0)
        self.over_soft_limit: dict[SlotId, None] = {}  # slots whose last status said so
        # tasks
        self.phases: dict[TaskId, TaskPhase] = {}
        self.unsettled: dict[TaskId, None] = {}  # neither live nor final
        self.records: dict[TaskId, failure_policy.RecoveryRecord] = {}
        self.rollbacks = 0  # since the last completed checkpoint
        self.backlogs: dict[TaskId, deque[int]] = {}  # what live tasks reported last
        self.open_recoveries: dict[TaskId, failure_policy.Recovery] = {}
        self.recoveries: list[failure_policy.Recovery] = []
        self.said: dict[str, str] = {}  # alarms about the placement, so that each is told once

    # ------------------------------------------------------------------ short names

    @property
    def awake_ns(self) -> int:
        """Waking time: all durations are counted in it."""
        return self.clock.awake_ns

    @property
    def is_running(self) -> bool:
        """True while a view stands and the job goes on."""
        return isinstance(self.phase, Running)

    @property
    def ledger(self) -> Ledger:
        """What is written down about checkpoints."""
        return self.checkpoints.ledger

    @property
    def completed(self) -> CheckpointMetadata:
        """The last completed checkpoint."""
        return self.checkpoints.ledger.completed

    @property
    def view(self) -> View:
        """The view that stands; only after there is one."""
        assert isinstance(self.views, view_machine.Standing), self.views
        return self.views.view

    def domains(self) -> dict[SlotId, str]:
        """The domain of each living slot, by id."""
        return {slot: self.addresses[slot].domain for slot in sorted(self.addresses)}

    def hosts(self) -> dict[str, str]:
        """The host of each domain, as far as it is known."""
        return {register.domain: register.host for _, register in sorted(self.registers.items())}

    def is_current(self, task: TaskId, incarnation: Incarnation) -> bool:
        """True for the living incarnation of a task."""
        return 0 <= task < len(self.plan.tasks) and self.ledger.incarnations[task] == incarnation

    def is_home(self, slot: SlotId, task: TaskId) -> bool:
        """True for a task that the view that stands has in this slot."""
        return 0 <= task < len(self.plan.tasks) and self.view.placements[task].slot == slot

    # ------------------------------------------------------------------ effects

    def emit(self, *effects: Effect) -> None:
        """Adds to what the present event leads to."""
        self.effects.extend(effects)

    def tell(self, milestone: Milestone, task: TaskId, incarnation: int, cause: str) -> None:
        """An entry of the recovery timeline."""
        self.emit(RecoveryEvent(milestone, self.now_ns, task, incarnation, cause))

    def release(self, slot: SlotId, reason: str) -> None:
        """Ends a slot, for good."""
        self.lives[slot] = failure_detector.step(self.lives[slot], failure_detector.Ended(reason))
        self.forget_slot(slot)
        self.emit(Send(slot, Release(slot, reason)), ReleaseSlot(slot, reason))

    def forget_slot(self, slot: SlotId) -> None:
        """A slot is gone: nothing is sent to it any more."""
        tables = (self.addresses, self.registers, self.statuses, self.behind_view, self.behind_completed)
        for table in (*tables, self.over_soft_limit):
            table.pop(slot, None)
        self.mutual_suspicions = self.mutual_suspicions.forget(slot)

    def finish(self, ending: Ending, reason: str) -> None:
        """The job has ended well, or was ended."""
        self._release_all(reason)
        self.emit(JobDone(ending, self.completed.checkpoint))
        self.phase = Over(reason)

    def fail(self, failed: JobFailed) -> None:
        """The job has failed."""
        self._release_all(failed.reason)
        self.emit(failed)
        self.phase = Over(failed.reason)

    def _release_all(self, reason: str) -> None:
        self.last_statuses = tuple(self.statuses.values())
        for slot in sorted(self.addresses):
            self.release(slot, reason)

    def completed_message(self) -> Completed:
        """What is told to slots of the last completed checkpoint; slots take it in the generation that they are in."""
        tasks = tuple((entry.task, entry.incarnation, entry.log_offset_bytes) for entry in self.completed.tasks)
        return Completed(self.completed.checkpoint, self.ledger.generation, tasks)

    def note_view(self, slot: SlotId, installed: ViewNumber) -> None:
        """A slot says which view it has installed."""
        if installed >= self.view.number:
            self.behind_view.pop(slot, None)
        else:
            self.behind_view[slot] = None

    def validate(self) -> None:
        """Asserts what holds between two events.

        Invariant: pending checkpoints ascend behind the completed one; each registered slot has an address and a life;
        a task has one incarnation in the ledger and in the view; counters are not negative.
        """
        ledger = self.ledger
        numbers = [ledger.completed.checkpoint, *[pending.number for pending in ledger.pending]]
        assert all(earlier < later for earlier, later in pairwise(numbers)), numbers
        assert numbers[-1] <= ledger.highest, (numbers, ledger.highest)
        assert ledger.previous.checkpoint <= ledger.completed.checkpoint, ledger.previous
        assert self.addresses.keys() <= self.lives.keys(), (self.addresses, self.lives)
        assert self.behind_view.keys() | self.behind_completed.keys() <= self.addresses.keys(), self.behind_view
        assert self.over_soft_limit.keys() <= self.addresses.keys(), self.over_soft_limit
        assert min(self.slots_requested, self.refusals, self.rollbacks) >= 0, self.slots_requested
        assert self.slots_needed >= 0 and self.term >= 0, (self.slots_needed, self.term)

    def note_completed(self, slot: SlotId, completed: CheckpointId) -> None:
        """A slot says which completed checkpoint it knows."""
        if completed >= self.completed.checkpoint:
            self.behind_completed.pop(slot, None)
        else:
            self.behind_completed[slot] = None
