"""Coordinator of a job: a pure machine with one table, ``(Phase, Event) -> handler`` (protocol 5, 6, 8 and 9).

    Idle ──Begin──▶ Starting ──enough slots──▶ Running ──all tasks final──▶ Closing ──output committed──▶ Over
           Begin──▶ Listening ──a lease──▶ Starting or Running      └──another coordinator──▶ Replaced

It composes smaller machines: ``failure_detector`` (which slots are alive), ``checkpoint_machine``, ``view_machine``,
``failure_policy`` (whether a task is restarted) and ``placement`` (where tasks run). A message is looked up by its own
type, any other event by the type of the event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator import (
    event_handlers,
    failure_detector,
    relocation,
    rescale,
    rescale_machine,
    startup,
    takeover,
)
from clonos.core.coordinator.checkpoint_ledger import CheckpointTimes, Held
from clonos.core.coordinator.checkpoint_machine import Publishing
from clonos.core.coordinator.coordinator_effects import Effect
from clonos.core.coordinator.coordinator_events import (
    Begin,
    CheckpointReleased,
    CheckpointRequested,
    CoordinatorMessage,
    Event,
    MetadataWritten,
    OutputCommitFailed,
    OutputCommitted,
    Received,
    RescaleRequested,
    SlotGone,
    SlotRefused,
    SlotUnreachable,
    StateDivided,
    StopRequested,
    Ticked,
)
from clonos.core.coordinator.coordinator_state import (
    Closing,
    CoordinatorState,
    Idle,
    JobPhase,
    Listening,
    Over,
    Replaced,
    Running,
    Starting,
    name_of,
)
from clonos.core.coordinator.failure_policy import Recovery
from clonos.core.coordinator.view_machine import Standing
from clonos.core.model.errors import Blame, MessageMalformed
from clonos.core.model.ids import CheckpointId, SlotId, TaskId
from clonos.core.model.machine import Machine, Table
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskPhase
from clonos.core.placement.assignment import Assignment
from clonos.core.placement.survivability import losses_survived
from clonos.core.wire.authorization import check_itself, check_life, sender_name
from clonos.core.wire.control_messages import Register, SlotStatus, Snapshotted, Suspicion, TaskStatus, View
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import AnnounceStep, JournalLost, LogLost, SinkFenced, TaskFailed


def _stay(_state: CoordinatorState, _event: Any) -> None:
    """Ignores an event that may happen in this phase and has no effect."""


def _on_status(state: CoordinatorState, event: Received) -> None:
    """Applies the heartbeat of a slot, and then moves the tasks that are suspended there."""
    event_handlers.on_status(state, event)
    if state.suspended_tasks:
        relocation.on_status(state, event)


def _tick(state: CoordinatorState, event: Ticked) -> None:
    """Does what is due at a tick of the running job, then for a task that can move, and for a rescale."""
    event_handlers.tick(state, event)
    relocation.tick(state, event)
    rescale.tick(state, event)


MESSAGES: tuple[type, ...] = get_args(CoordinatorMessage)
OF_ONE_INCARNATION = (Snapshotted, LogLost, JournalLost, SinkFenced, TaskFailed, AnnounceStep)
REPEATED = (*OF_ONE_INCARNATION, Suspicion)
OUTCOMES = (MetadataWritten, OutputCommitted, OutputCommitFailed, StateDivided)
PROVIDER = (SlotGone, SlotUnreachable, SlotRefused)
OF_THE_USER = (StopRequested, CheckpointRequested, CheckpointReleased, RescaleRequested)
ENDING_PHASES = (Running, Closing)

HANDLERS: Table[None] = {
    (Idle, Begin): startup.begin,
    (Idle, Ticked): _stay,
    (Idle, CheckpointRequested): event_handlers.request_checkpoint,
    (Idle, CheckpointReleased): event_handlers.release_checkpoint,
    (Idle, StopRequested): startup.stop_early,
    (Idle, RescaleRequested): rescale.refuse,
    # Starting: waits for enough slots
    (Starting, Register): startup.register,
    (Starting, Ticked): startup.wait_for_slots,
    (Starting, CheckpointRequested): event_handlers.request_checkpoint,
    (Starting, CheckpointReleased): event_handlers.release_checkpoint,
    (Starting, StopRequested): startup.stop_early,
    (Starting, RescaleRequested): rescale.refuse,
    (Starting, SlotGone): event_handlers.on_slot_gone,
    (Starting, SlotUnreachable): event_handlers.on_slot_unreachable,
    (Starting, SlotRefused): event_handlers.on_slot_refused,
    (Starting, MetadataWritten): event_handlers.on_metadata_written,
    (Starting, OutputCommitted): event_handlers.on_output_committed,
    (Starting, OutputCommitFailed): event_handlers.on_output_commit_failed,
    (Starting, StateDivided): _stay,
    (Starting, SlotStatus): _stay,
    (Starting, Snapshotted): _stay,
    (Starting, LogLost): _stay,
    (Starting, JournalLost): _stay,
    (Starting, SinkFenced): _stay,
    (Starting, TaskFailed): _stay,
    (Starting, AnnounceStep): _stay,
    (Starting, Suspicion): _stay,
    (Starting, View): _stay,
    # Listening: to the slots of an earlier coordinator
    (Listening, Register): startup.register,
    (Listening, View): takeover.on_view_reported,
    (Listening, SlotStatus): takeover.on_status,
    (Listening, Ticked): takeover.end_listening,
    (Listening, CheckpointRequested): event_handlers.request_checkpoint,
    (Listening, CheckpointReleased): event_handlers.release_checkpoint,
    (Listening, StopRequested): takeover.stop,
    (Listening, RescaleRequested): rescale.refuse,
    (Listening, SlotGone): event_handlers.on_slot_gone,
    (Listening, SlotUnreachable): event_handlers.on_slot_unreachable,
    (Listening, SlotRefused): event_handlers.on_slot_refused,
    (Listening, MetadataWritten): event_handlers.on_metadata_written,
    (Listening, OutputCommitted): event_handlers.on_output_committed,
    (Listening, OutputCommitFailed): event_handlers.on_output_commit_failed,
    (Listening, StateDivided): _stay,
    (Listening, Snapshotted): _stay,
    (Listening, LogLost): _stay,
    (Listening, JournalLost): _stay,
    (Listening, SinkFenced): _stay,
    (Listening, TaskFailed): _stay,
    (Listening, AnnounceStep): _stay,
    (Listening, Suspicion): _stay,
    # Running
    (Running, Register): startup.register,
    (Running, SlotGone): event_handlers.on_slot_gone,
    (Running, SlotUnreachable): event_handlers.on_slot_unreachable,
    (Running, SlotRefused): event_handlers.on_slot_refused,
    (Running, SlotStatus): _on_status,
    (Running, Snapshotted): event_handlers.on_snapshotted,
    (Running, LogLost): event_handlers.on_log_lost,
    (Running, JournalLost): event_handlers.on_log_lost,
    (Running, SinkFenced): event_handlers.on_sink_fenced,
    (Running, TaskFailed): event_handlers.on_task_failed,
    (Running, AnnounceStep): event_handlers.on_announce_step,
    (Running, Suspicion): event_handlers.on_suspicion,
    (Running, View): event_handlers.on_view,
    (Running, CheckpointRequested): event_handlers.request_checkpoint,
    (Running, CheckpointReleased): event_handlers.release_checkpoint,
    (Running, StopRequested): event_handlers.stop,
    (Running, RescaleRequested): rescale.request,
    (Running, Ticked): _tick,
    (Running, MetadataWritten): event_handlers.on_metadata_written,
    (Running, OutputCommitted): event_handlers.on_output_committed,
    (Running, OutputCommitFailed): event_handlers.on_output_commit_failed,
    (Running, StateDivided): event_handlers.on_state_divided,
    # Closing: the last output is being committed
    (Closing, MetadataWritten): event_handlers.on_metadata_written,
    (Closing, OutputCommitted): event_handlers.on_output_committed,
    (Closing, OutputCommitFailed): event_handlers.on_output_commit_failed,
    (Closing, StateDivided): _stay,
    (Closing, Ticked): event_handlers.on_tick_closing,
    (Closing, CheckpointRequested): _stay,
    (Closing, CheckpointReleased): event_handlers.release_checkpoint,
    (Closing, StopRequested): _stay,
    (Closing, RescaleRequested): rescale.refuse,
    (Closing, SlotGone): _stay,
    (Closing, SlotUnreachable): _stay,
    (Closing, SlotRefused): _stay,
    # The job has ended here
    **{(Over, kind): _stay for kind in (*OUTCOMES, *PROVIDER, *OF_THE_USER, Ticked)},
    **{(Replaced, kind): _stay for kind in (*OUTCOMES, *PROVIDER, *OF_THE_USER, *MESSAGES, Ticked)},
}
MACHINE: Machine[CoordinatorState, Event, None] = Machine("coordinator", HANDLERS)


class Coordinator:
    """Coordinator of one job.

    ``handle`` takes events that arrived together and returns the effects to perform, in order.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self._state = CoordinatorState(plan, options)

    def handle(self, *events: Event) -> tuple[Effect, ...]:
        """Handles events and returns their effects. Failures among events that arrive together lead to one view.

        Raises: MessageMalformed, for a message that ``check`` refuses.
        """
        state = self._state
        has_ticked = False
        for event in events:
            if isinstance(event, Ticked):
                has_ticked = True
                state.clock = state.clock.tick(event.now_ns, state.limits.gap_ns_max)
            self._handle_one(state, event)
        if isinstance(state.phase, ENDING_PHASES):
            event_handlers.after_event(state, has_ticked)
        effects = state.effects
        if not effects:
            return ()
        state.effects = []
        return tuple(effects)

    def check(self, sender: SlotId, message: Message) -> None:
        """Checks that a slot may send a message to the coordinator, before it is handled as an event.

        A keeper may report that a limit was exceeded for the task whose logs it keeps: its slot may have no task.

        Raises: MessageMalformed, if no slot may send it, or only the slot that hosts the task named in it.
        """
        if not isinstance(message, MESSAGES):
            raise MessageMalformed(sender_name(sender), f"it may not send {type(message).__name__} to the coordinator")
        if isinstance(message, Register):
            check_itself(sender, message.slot)
        elif isinstance(message, OF_ONE_INCARNATION) and self.view is not None:
            if message.incarnation < self.view.generation:
                return  # it has ended, and its number may be that of another task now
            is_of_keeper = isinstance(message, TaskFailed) and message.at is None and message.blame is Blame.ENVIRONMENT
            if not (is_of_keeper and self._state.has_keeper(sender, message.task)):
                check_life(sender, message.task, message.incarnation, self.view)

    def plan_of(self, message: Message) -> Plan | None:
        """Returns the plan whose numbers of tasks a message has; None if they are those of a view that is not known
        here, or of a generation that has ended: then nothing is looked up by them."""
        if isinstance(message, View):
            return self._state.declared.with_widths(dict(message.widths)) if message.widths else self._state.declared
        number = message.view if isinstance(message, SlotStatus) else getattr(message, "incarnation", None)
        if number is None:
            return self.plan
        view = self.view
        if view is None:
            return None if isinstance(self._state.phase, Listening) else self.plan
        return self.plan if view.generation <= number <= view.number else None

    def validate(self) -> None:
        """Asserts what holds between two events: simulated worlds call it after each."""
        self._state.validate()

    def _handle_one(self, state: CoordinatorState, event: Event) -> None:
        if event.now_ns > state.now_ns:
            state.now_ns = event.now_ns
        key: type = type(event)
        if isinstance(event, Received):
            self.check(event.slot, event.message)
            key = type(event.message)
            if not self._admit(state, event):
                return
        handler = HANDLERS.get((type(state.phase), key))
        if handler is None:
            raise MACHINE.no_row(state.phase, key, event)
        handler(state, event)

    def _admit(self, state: CoordinatorState, event: Received) -> bool:
        """Returns whether to handle a message, and notes that its sender is alive.

        A slot of this job is admitted. An unknown slot may register or, to a new coordinator, report what it hosts; any
        other one is released.
        """
        slot = event.slot
        if slot in state.addresses:
            state.lives[slot] = failure_detector.step(
                state.lives[slot], failure_detector.MessageArrived(state.clock.awake_ns)
            )
            return True
        if isinstance(state.phase, Replaced):
            return False
        is_unknown = slot not in state.lives
        if isinstance(state.phase, Listening) and is_unknown:
            return True
        if isinstance(event.message, Register) and is_unknown and isinstance(state.phase, (Starting, Running)):
            return True
        event_handlers.dismiss(state, event)
        return False

    # ------------------------------------------------------------------ for a status display

    @property
    def phase(self) -> JobPhase:
        """Phase of the job."""
        return name_of(self._state.phase)

    @property
    def view(self) -> View | None:
        """View in force, None before the first."""
        return self._state.view if isinstance(self._state.views, Standing) else None

    @property
    def checkpoint(self) -> CheckpointId:
        """Last completed checkpoint."""
        return self._state.completed.checkpoint

    @property
    def completed(self) -> CheckpointMetadata:
        """Metadata of the last completed checkpoint, that of checkpoint 0 before there is one."""
        return self._state.completed

    def requested(self, request: int) -> Held | None:
        """Returns a requested checkpoint; None before it has begun, and after its release."""
        return next((held for held in self._state.ledger.held if held.request == request), None)

    def committed(self, request: int) -> CheckpointMetadata | None:
        """Returns the checkpoint that a request got, once it is complete and its output is committed."""
        held = self.requested(request)
        if held is None or held.metadata is None:
            return None
        is_last = held.metadata.checkpoint == self.checkpoint
        return None if is_last and isinstance(self._state.checkpoints, Publishing) else held.metadata

    @property
    def rescale(self) -> rescale_machine.State:
        """State of the last change of widths."""
        return self._state.rescale

    @property
    def rescale_refusals(self) -> Mapping[int, str]:
        """Why the last requests of other widths that came to nothing were refused or given up, by request, as
        sentences without their ends."""
        return {request: refusal.reason for request, refusal in self._state.rescale_refusals.items()}

    def is_rescale_interrupted(self, request: int) -> bool:
        """Returns whether a change was given up because a task failed meanwhile."""
        refusal = self._state.rescale_refusals.get(request)
        return refusal is not None and refusal.is_interrupted

    @property
    def term(self) -> int:
        """Term of the driver."""
        return self._state.term

    @property
    def pending(self) -> tuple[CheckpointId, ...]:
        """Checkpoints that have begun and are not complete."""
        return tuple(pending.number for pending in self._state.ledger.pending)

    @property
    def checkpoint_times(self) -> tuple[CheckpointTimes, ...]:
        """Times of the last checkpoints that this coordinator began, oldest first."""
        return self._state.checkpoint_history.times

    @property
    def highest(self) -> CheckpointId:
        """Highest number that a checkpoint has used."""
        return self._state.ledger.highest

    @property
    def generation(self) -> int:
        """Number of the view that began the generation. It grows with each rollback and each resume."""
        return self._state.ledger.generation

    @property
    def phases(self) -> dict[TaskId, TaskPhase]:
        """Phase of each task that its slot reported last."""
        return dict(self._state.phases)

    @property
    def counters(self) -> dict[TaskId, dict[str, int]]:
        """Counters of each task that its current incarnation reported last, also after the end of the job."""
        return {status.task: dict(status.counters) for status in self._task_statuses()}

    @property
    def task_statuses(self) -> dict[TaskId, TaskStatus]:
        """Last status of each task's current incarnation, also after the end of the job."""
        return {status.task: status for status in self._task_statuses()}

    def _task_statuses(self) -> Iterator[TaskStatus]:
        state = self._state
        for slot_status in (*state.last_statuses, *state.statuses.values()):
            for status in slot_status.tasks:
                if state.is_current(status.task, status.incarnation):
                    yield status

    def slot_status(self, slot: SlotId) -> SlotStatus | None:
        """Last status of a living slot; None before the first one."""
        return self._state.statuses.get(slot)

    @property
    def slots(self) -> tuple[Register, ...]:
        """Living slots as they registered, ordered by id."""
        return tuple(register for _, register in sorted(self._state.registers.items()))

    @property
    def recoveries(self) -> tuple[Recovery, ...]:
        """Timelines of all recoveries, oldest first, those in progress last."""
        return (*self._state.recoveries, *self._state.open_recoveries.values())

    def describe_slot(self, slot: SlotId) -> str:
        """Returns the name of a living slot for messages: its tasks, its process and its domain."""
        return self._state.describe_slot(slot)

    @property
    def plan(self) -> Plan:
        """Plan of the job."""
        return self._state.plan

    @property
    def awaited_by_drain(self) -> tuple[TaskId, ...]:
        """Tasks that have not taken the final checkpoint of a job that is being stopped."""
        ledger = self._state.ledger
        pending = ledger.drain or (ledger.pending[-1] if ledger.pending else None)  # those before it may hold it up
        if pending is None:  # its checkpoint waits for a recovery, or is complete
            return () if self._state.drain_number else tuple(self.plan.tasks)
        return tuple(task for task in self.plan.tasks if task not in pending.acknowledged)

    def standbys_ready(self, task: TaskId) -> int:
        """Returns how many standbys could take the task over now, from some checkpoint."""
        wanted = set(self._state.view.placements[task].standbys) if self.view is not None else set()
        return sum(1 for slot in sorted(wanted) for known, _ in self._standbys_of(slot) if known == task)

    def _standbys_of(self, slot: SlotId) -> tuple[tuple[TaskId, CheckpointId], ...]:
        status = self._state.statuses.get(slot)
        return tuple(entry for entry in status.standbys if entry[1] > 0) if status is not None else ()

    def standbys_hot(self, task: TaskId) -> int:
        """Returns how many standbys of the task run a shadow now."""
        wanted = self._state.view.placements[task].standbys if self.view is not None else ()
        statuses = (self._state.statuses.get(slot) for slot in wanted)
        return sum(1 for status in statuses if status is not None and task in status.shadows)

    def losses_survived(self) -> tuple[int | None, ...]:
        """Returns how many further losses of domains each task survives now; None: any number."""
        if self.view is None:
            return ()
        state, domains = self._state, self._state.domains()
        held = {task: self._keepers_of(task) for task in self.plan.with_keepers}
        slots = [placement.slot for placement in self.view.placements]
        own = ["" if slot is None else domains.get(slot, "") for slot in slots]
        elsewhere = {
            task: len({domains[s] for s in found if s in domains} - {own[task]}) for task, found in held.items()
        }
        return losses_survived(self.plan, state.assignment or list(map(Assignment, slots)), elsewhere, domains)

    def keepers_ready(self, task: TaskId) -> int:
        """Returns how many keepers hold every log that the task's incarnation holds."""
        return len(self._keepers_of(task))

    def _keepers_of(self, task: TaskId) -> tuple[SlotId, ...]:
        if self.view is None:
            return ()
        placement = self.view.placements[task]
        statuses = ((slot, self._state.statuses.get(slot)) for slot in placement.keepers)
        held = (task, placement.incarnation)
        return tuple(slot for slot, status in statuses if status is not None and held in status.keepers)

    def lives(self) -> dict[SlotId, str]:
        """Returns the state of every slot that was ever known: alive, suspected or dead."""
        return {slot: type(life).__name__.lower() for slot, life in sorted(self._state.lives.items())}
