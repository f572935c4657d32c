"""State of the coordinator: the states of its machines and the tables that join them (protocol 5, 6, 8 and 9).

The handlers in ``startup``, ``takeover``, ``event_handlers`` and ``failover`` act on it; the rules of each machine are
in its own module. Some tables could be derived from others; they are kept because a tick for 2,000 tasks must stay
below 10 ms.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, metadata_of_start
from clonos.core.coordinator import (
    checkpoint_machine,
    failure_detector,
    failure_policy,
    rescale_machine,
    view_machine,
)
from clonos.core.coordinator.checkpoint_ledger import CheckpointHistory, Ledger, without_pending
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
from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskPhase
from clonos.core.placement.assignment import Assignment, replication_targets
from clonos.core.placement.placement_rules import rules_of
from clonos.core.placement.survivability import StandingAlarms, names_of
from clonos.core.wire.control_messages import Completed, Register, Release, SlotAddress, SlotStatus, View

RECOVERIES_MAX = 1_000
"""Maximum number of recoveries whose timeline is remembered. Older ones are dropped."""

RESCALE_REFUSALS_MAX = 100
"""Maximum number of refused changes of widths whose reason is remembered."""

# ------------------------------------------------------------------ phases of the job


@dataclass(frozen=True, slots=True)
class Idle:
    """Phase before the job begins."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Phase in which a new coordinator learns what slots of an earlier one host, until a lease has passed (protocol 9).

    It waits longer, at most until ``last_ns``, for slots that have sent a message but not their installed view. It ends
    early when each of the ``named`` slots, if there are any, has reported its view or is known to have ended.
    """

    until_ns: int
    last_ns: int
    highest_view: View | None  # highest view that a slot has installed
    named: tuple[SlotId, ...] = ()
    registers: tuple[Register, ...] = ()
    only_adopts: bool = False


@dataclass(frozen=True, slots=True)
class Starting:
    """Phase in which the job waits for slots to register, before any task is activated."""

    begun_ns: int
    asked_elsewhere_ns: int  # when slots in another domain were last requested


@dataclass(frozen=True, slots=True)
class Running:
    """Phase in which a view is in force."""


@dataclass(frozen=True, slots=True)
class Closing:
    """Phase in which only the last output is left to commit."""


@dataclass(frozen=True, slots=True)
class Over:
    """Phase after the end of the job. Slots that still send messages are released."""

    reason: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """Phase after another coordinator has taken over. This one sends nothing more."""


Phase = Idle | Listening | Starting | Running | Closing | Over | Replaced


class JobPhase(StrEnum):
    """Phase of the job by name, for a status."""

    IDLE = "idle"
    LISTENING = "listening"
    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"
    OVER = "over"
    REPLACED = "replaced"


def name_of(phase: Phase) -> JobPhase:
    """Returns the name of a phase."""
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


@dataclass(slots=True)
class FirstOutput:
    """First output of transactional sinks. ``since_ns``: when one of them first had a record; None before."""

    since_ns: int | None = None


class StandingWatermark(NamedTuple):
    """Watermark of a source that has not risen since ``since_ns``, when the source had read ``records_in`` records."""

    reached_ns: int
    since_ns: int
    records_in: int


@dataclass(slots=True)
class StandingWatermarks:
    """Watermarks of sources, by task, and the vertices of the sources of which an alarm was raised."""

    of: dict[TaskId, StandingWatermark] = field(default_factory=dict)
    reported: dict[int, None] = field(default_factory=dict)


class RescaleRefusal(NamedTuple):
    """Why a request of other widths came to nothing. ``is_interrupted``: a task has failed meanwhile, so that the same
    request may succeed when it has recovered."""

    reason: str
    is_interrupted: bool


class CoordinatorState:
    """State of the coordinator. ``effects`` collects what the current event leads to."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self.declared, self.plan, self.options = plan, plan, options  # ``plan`` has the widths of the generation
        self.limits = failure_detector.DetectorLimits.of(options)
        self.targets = replication_targets(plan, options.standbys, options.keepers)
        self.rules, self.broken_rules = rules_of(plan, options.placement, ""), ""  # rules that the view breaks
        self.effects: list[Effect] = []
        self.phase: Phase = Idle()
        self.term, self.job_id, self.can_spread = 0, "", True
        self.versions: dict[str, str] = {}
        self.now_ns, self.clock = 0, failure_detector.WakingClock()  # wall clock, used for the timeline only
        # slots
        self.addresses: dict[SlotId, SlotAddress] = {}  # addresses of the living slots
        self.registers: dict[SlotId, Register] = {}
        self.statuses: dict[SlotId, SlotStatus] = {}
        self.last_statuses: tuple[SlotStatus, ...] = ()  # statuses of the slots that lived when the job ended
        self.lives: dict[SlotId, failure_detector.Life] = {}
        self.mutual_suspicions = failure_detector.MutualSuspicions()
        self.slots_requested = 0  # slots that were requested and have not registered yet
        self.slots_needed, self.requested_ns = 0, 0
        self.refusals, self.refused_ns, self.refusal = 0, 0, ""  # refusals since a slot last registered
        self.unplaced_since_ns: int | None = None  # since when a task has been waiting for a slot
        # views
        self.views: view_machine.State = view_machine.Unformed(0, "")
        self.rescale: rescale_machine.State = rescale_machine.Steady()
        self.rescale_refusals: dict[int, RescaleRefusal] = {}  # of the last requests that came to nothing
        self.assignment: tuple[Assignment, ...] = ()  # by the view in force
        self.hosted: dict[SlotId, list[TaskId]] = {}  # by the view in force
        self.behind_view: dict[SlotId, None] = {}
        self.behind_completed: dict[SlotId, None] = {}
        self.repeated_ns, self.warm_ups_asked, self.warm_ups_sent_ns = 0, 0, 0
        # changes that the next view will make
        self.failed_tasks: dict[TaskId, bool] = {}  # without a living incarnation; True: their successors single-step
        self.confirmed: dict[TaskId, int] = {}  # of failed tasks that move: see ``ViewChange``
        self.is_rollback_due = False
        self.is_placement_due = False  # slots, or the readiness of standbys and keepers, have changed
        self.is_view_waiting = False  # a view was due while the metadata of a checkpoint was being written
        self.is_balanced = False  # every task has its standbys and keepers, well placed, and none too many
        # checkpoints
        start = metadata_of_start(plan, "", 0)
        self.checkpoints: checkpoint_machine.State = checkpoint_machine.Collecting(
            Ledger(plan, 0, 1, (None,) * len(plan.tasks), CheckpointId(0), (), {}, start, (), ())
        )
        self.checkpoint_history, self.due_ns, self.checkpoint_completed_ns = CheckpointHistory(), 0, 0
        self.requests: dict[int, None] = {}  # requested checkpoints that have not begun
        self.postponed_ns: int | None = None  # since when a due checkpoint has been waiting for a recovery
        self.first_output: FirstOutput | None = None  # awaited until output of a new job's sinks is committed
        self.is_draining, self.drain_number, self.numbers_unknown_to = False, CheckpointId(0), CheckpointId(0)
        self.over_soft_limit: dict[SlotId, None] = {}  # slots above a soft limit by their last status
        self.phases: dict[TaskId, TaskPhase] = {}
        self.recovering_tasks: dict[TaskId, None] = {}  # tasks that are neither live nor final
        self.records: dict[TaskId, failure_policy.RecoveryRecord] = {}
        self.rollbacks, self.has_diverged = 0, False  # since the last completed checkpoint; one was for a divergence
        self.backlogs: dict[TaskId, deque[int]] = {}  # last reports of live tasks
        self.failed_at = CheckpointId(0)  # the last completed checkpoint when a task failed or moved
        self.suspended_tasks: dict[TaskId, int] = {}  # that move, by this view or the next; since when, in waking time
        self.moves_given_up: dict[TaskId, Incarnation] = {}
        self.open_recoveries: dict[TaskId, failure_policy.Recovery] = {}
        self.recoveries: list[failure_policy.Recovery] = []
        self.standing_alarms, self.standing_watermarks = StandingAlarms(), StandingWatermarks()
        self.last_signs_ns: dict[SlotId, int] = {}  # of slots that may be dead, by the wall clock; 0: unknown

    def adopt_plan(self, completed: CheckpointMetadata) -> None:
        """Takes over the widths of a checkpoint. Whatever is known of tasks is forgotten, because numbers mean others;
        what is known of failures stays with the task of the same name."""
        before, self.plan = self.plan, self.declared.with_widths(dict(completed.widths))
        self.targets = replication_targets(self.plan, self.options.standbys, self.options.keepers)
        self.rules = rules_of(self.plan, self.options.placement, self.rules.driver_host)
        named = [(self.plan.task_named(before.task_name(task)), task) for task in self.records]
        self.records = {new: self.records[old] for new, old in named if new is not None}
        for task in list(self.open_recoveries):
            self.close_recovery(task)
        self.statuses, self.phases, self.backlogs, self.moves_given_up = {}, {}, {}, {}
        self.failed_tasks, self.confirmed, self.recovering_tasks, self.suspended_tasks = {}, {}, {}, {}
        self.standing_watermarks = StandingWatermarks()
        tasks = (None,) * len(self.plan.tasks)
        ledger = replace(without_pending(self.ledger, lambda _: True), plan=self.plan, incarnations=tasks, finals={})
        retained = (*ledger.retained, ledger.completed)  # another coordinator divides its state again
        self.checkpoints = replace(self.checkpoints, ledger=replace(ledger, completed=completed, retained=retained))

    # ------------------------------------------------------------------ short names

    @property
    def awake_ns(self) -> int:
        """Waking time, in which all durations are measured."""
        return self.clock.awake_ns

    @property
    def is_running(self) -> bool:
        """Whether a view is in force and the job goes on."""
        return isinstance(self.phase, Running)

    @property
    def ledger(self) -> Ledger:
        """Ledger of the checkpoints."""
        return self.checkpoints.ledger

    @property
    def completed(self) -> CheckpointMetadata:
        """Metadata of the last completed checkpoint."""
        return self.checkpoints.ledger.completed

    @property
    def view(self) -> View:
        """View in force. There must be one."""
        assert isinstance(self.views, view_machine.Standing), self.views
        return self.views.view

    @property
    def cut(self) -> CheckpointId:
        """Checkpoint at whose barrier all tasks are suspended, by the next view; 0 if there is none."""
        rescale = self.rescale
        return rescale.checkpoint if isinstance(rescale, rescale_machine.Cutting) else CheckpointId(0)

    def note_rescale_refused(self, request: int, reason: str, is_interrupted: bool = False) -> None:
        """Remembers why a request of other widths came to nothing, for who asks when another one has followed."""
        self.rescale_refusals[request] = RescaleRefusal(reason, is_interrupted)
        while len(self.rescale_refusals) > RESCALE_REFUSALS_MAX:
            del self.rescale_refusals[next(iter(self.rescale_refusals))]

    def is_switch_due(self, view: View) -> bool:
        """Returns whether the last completed checkpoint is a cut from which the generation of this view has not gone
        on yet. Then no task makes a step in this generation any more."""
        return self.completed.is_cut and view.generation == self.completed.generation

    def domains(self) -> dict[SlotId, str]:
        """Returns the domain of each living slot, ordered by id."""
        return {slot: self.addresses[slot].domain for slot in sorted(self.addresses)}

    def hosts(self) -> dict[str, str]:
        """Returns the host of each domain, as far as it is known."""
        return {register.domain: register.host for _, register in sorted(self.registers.items())}

    def describe_slot(self, slot: SlotId) -> str:
        """Returns the name of a living slot for messages: its tasks, its process and its domain."""
        tasks = self.hosted.get(slot, ())
        register = self.registers.get(slot)
        where = "" if register is None else f" (pid {register.pid}, {register.domain})"
        return f"the process of {names_of(self.plan, tasks)}{where}" if tasks else f"a spare process{where}"

    def is_current(self, task: TaskId, incarnation: Incarnation) -> bool:
        """Returns whether this is the living incarnation of the task."""
        return 0 <= task < len(self.plan.tasks) and self.ledger.incarnations[task] == incarnation

    def is_placed_in(self, slot: SlotId, task: TaskId) -> bool:
        """Returns whether the view in force places the task in this slot."""
        return 0 <= task < len(self.plan.tasks) and self.view.placements[task].slot == slot

    def has_keeper(self, slot: SlotId, task: TaskId) -> bool:
        """Returns whether the view in force names this slot as a keeper of the task."""
        return 0 <= task < len(self.view.placements) and slot in self.view.placements[task].keepers

    # ------------------------------------------------------------------ effects

    def emit(self, *effects: Effect) -> None:
        """Adds effects of the current event."""
        self.effects.extend(effects)

    def open_recovery(self, recovery: failure_policy.Recovery) -> None:
        """Adds a recovery that begins, in place of an unfinished one."""
        if recovery.task in self.open_recoveries:  # failed again before it caught up
            self.close_recovery(recovery.task)
        self.open_recoveries[recovery.task] = recovery

    def close_recovery(self, task: TaskId) -> None:
        """Adds the recovery of a task to those that are over."""
        self.recoveries.append(self.open_recoveries.pop(task))
        del self.recoveries[:-RECOVERIES_MAX]

    def backlog_before(self, task: TaskId) -> int | None:
        """Returns the backlog before the first failure, also if the task has failed again before it caught up."""
        if task in self.open_recoveries:
            return self.open_recoveries[task].backlog_before
        return max(self.backlogs.pop(task, ()), default=None)

    def record_milestone(self, milestone: Milestone, task: TaskId, incarnation: int, cause: str) -> None:
        """Adds an entry of the recovery timeline."""
        self.emit(RecoveryEvent(milestone, self.now_ns, task, incarnation, cause, self.plan.task_name(task)))

    def release(self, slot: SlotId, reason: str) -> None:
        """Ends a slot for good."""
        self.lives[slot] = failure_detector.step(self.lives[slot], failure_detector.Ended(reason))
        self.forget_slot(slot)
        self.emit(Send(slot, Release(slot, reason)), ReleaseSlot(slot, reason))

    def forget_slot(self, slot: SlotId) -> None:
        """Removes a dead slot from the tables, so that nothing is sent to it any more."""
        tables = (self.addresses, self.registers, self.statuses, self.behind_view, self.behind_completed)
        for table in (*tables, self.over_soft_limit, self.last_signs_ns):
            table.pop(slot, None)
        self.mutual_suspicions = self.mutual_suspicions.forget(slot)

    def finish(self, ending: Ending, reason: str) -> None:
        """Ends the job, which has finished or was stopped."""
        self._release_all(reason)
        self.emit(JobDone(ending, self.completed.checkpoint))
        self.phase = Over(reason)

    def fail(self, failed: JobFailed) -> None:
        """Ends the job as failed."""
        self._release_all(failed.reason)
        self.emit(failed)
        self.phase = Over(failed.reason)

    def _release_all(self, reason: str) -> None:
        self.last_statuses = tuple(self.statuses.values())
        for slot in sorted(self.addresses):
            self.release(slot, reason)

    def completed_message(self) -> Completed:
        """Returns the message about the last completed checkpoint. Slots in another generation ignore it."""
        tasks = tuple((entry.task, entry.incarnation, entry.log_offset_bytes) for entry in self.completed.tasks)
        return Completed(self.completed.checkpoint, self.ledger.generation, tasks)

    def note_view(self, slot: SlotId, installed: ViewNumber) -> None:
        """Notes which view a slot has installed."""
        if installed >= self.view.number:
            self.behind_view.pop(slot, None)
        else:
            self.behind_view[slot] = None

    def validate(self) -> None:
        """Asserts what holds between two events.

        Invariant: pending checkpoints ascend after the completed one; each registered slot has an address and a life;
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
        """Notes which completed checkpoint a slot knows."""
        if completed >= self.completed.checkpoint:
            self.behind_completed.pop(slot, None)
        else:
            self.behind_completed[slot] = None
