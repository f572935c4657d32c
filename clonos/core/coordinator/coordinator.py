"""The coordinator: the pure machine of the driver. Events in, effects out; one table, ``(Phase, Event) -> handler``.

    Idle ──Begin──▶ Forming ──enough slots──▶ Running ──all final, drained──▶ Over
           Begin──▶ Listening ──a lease──▶ Forming, Running        └──metadata taken──▶ Replaced

It composes smaller machines: ``liveness`` (who is alive), ``checkpoints``, ``views``, ``recoveries`` (what befalls a
task), ``placement`` (who sits where). A message is looked up by its own type, any other event by the event's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator import event_handlers, failure_detector, startup
from clonos.core.coordinator.coordinator_effects import Effect
from clonos.core.coordinator.coordinator_events import (
    Begin,
    CoordinatorMessage,
    Event,
    MetadataWritten,
    OutputCommitFailed,
    OutputCommitted,
    Received,
    SlotGone,
    SlotRefused,
    SlotUnreachable,
    StopAsked,
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
from clonos.core.model.errors import InternalError, MessageMalformed
from clonos.core.model.ids import CheckpointId, SlotId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.authorization import check_itself, check_life, sender_name
from clonos.core.wire.control_messages import Register, SlotStatus, Snapshotted, Suspicion, View
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import AnnounceStep, JournalLost, LogLost, SinkFenced, TaskFailed


def _stay(_state: CoordinatorState, _event: Any) -> None:
    """May happen and means nothing here."""


MESSAGES: tuple[type, ...] = get_args(CoordinatorMessage)
OF_ONE_LIFE = (Snapshotted, LogLost, JournalLost, SinkFenced, TaskFailed, AnnounceStep)
REPEATED = (*OF_ONE_LIFE, Suspicion)
OUTCOMES = (MetadataWritten, OutputCommitted, OutputCommitFailed)
PROVIDER = (SlotGone, SlotUnreachable, SlotRefused)
SETTLING = (Running, Closing)

HANDLERS: dict[tuple[type, type], Callable[[CoordinatorState, Any], None]] = {
    (Idle, Begin): startup.begin,
    (Idle, Ticked): _stay,
    # Forming, and listening to the slots of an earlier coordinator
    **{(phase, Register): startup.register for phase in (Starting, Listening, Running)},
    **{(phase, SlotGone): event_handlers.lose_slot for phase in (Starting, Listening, Running)},
    **{(phase, SlotUnreachable): event_handlers.suspect_slot for phase in (Starting, Listening, Running)},
    **{(phase, SlotRefused): event_handlers.note_refusal for phase in (Starting, Listening, Running)},
    **{(phase, StopAsked): startup.stop_early for phase in (Idle, Starting, Listening)},
    (Starting, Ticked): startup.wait_for_slots,
    **{(Starting, message): _stay for message in MESSAGES if message is not Register},
    (Listening, View): startup.on_view_reported,
    (Listening, SlotStatus): startup.on_status,
    (Listening, Ticked): startup.listen_on,
    **{(Listening, message): _stay for message in REPEATED},
    # Running
    (Running, SlotStatus): event_handlers.take_status,
    (Running, Snapshotted): event_handlers.take_snapshot,
    (Running, LogLost): event_handlers.take_lost,
    (Running, JournalLost): event_handlers.take_lost,
    (Running, SinkFenced): event_handlers.take_fenced,
    (Running, TaskFailed): event_handlers.take_failure,
    (Running, AnnounceStep): event_handlers.on_announce_step,
    (Running, Suspicion): event_handlers.on_suspicion,
    (Running, View): event_handlers.take_view,
    (Running, StopAsked): event_handlers.stop,
    (Running, Ticked): event_handlers.tick,
    # Outcomes of what a resume has asked for may come in each of these phases.
    **{
        (phase, event): handler
        for phase in (Starting, Listening, Running, Closing)
        for event, handler in (
            (MetadataWritten, event_handlers.take_outcome),
            (OutputCommitted, event_handlers.take_commit),
            (OutputCommitFailed, event_handlers.take_commit_failure),
        )
    },
    (Closing, Ticked): event_handlers.tick_closing,
    (Closing, StopAsked): _stay,
    **{(Closing, event): _stay for event in PROVIDER},
    # Over
    **{(phase, event): _stay for phase in (Over, Replaced) for event in (*OUTCOMES, *PROVIDER, StopAsked, Ticked)},
    **{(Replaced, message): _stay for message in MESSAGES},
}


class Coordinator:
    """``handle`` takes events, one or several that arrived together, and returns the effects to perform, in order."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self._state = CoordinatorState(plan, options)

    def handle(self, *events: Event) -> tuple[Effect, ...]:
        """Failures among events that arrive together lead to one view.

        Raises: MessageMalformed, for a message that ``check`` refuses.
        """
        state = self._state
        has_ticked = False
        for event in events:
            if isinstance(event, Ticked):
                has_ticked = True
                state.clock = state.clock.tick(event.now_ns, state.limits.gap_ns_max)
            self._handle_one(state, event)
        if isinstance(state.phase, SETTLING):
            event_handlers.settle(state, has_ticked)
        effects = state.effects
        if not effects:
            return ()
        state.effects = []
        return tuple(effects)

    def check(self, sender: SlotId, message: Message) -> None:
        """Looks whether a slot may send a message to the coordinator, before it is taken in as an event.

        Raises: MessageMalformed, if it may not: no slot may, or another one, which has the task of which it speaks.
        """
        if not isinstance(message, MESSAGES):
            raise MessageMalformed(sender_name(sender), f"it may not send {type(message).__name__} to the coordinator")
        if isinstance(message, Register):
            check_itself(sender, message.slot)
        elif isinstance(message, OF_ONE_LIFE) and self.view is not None:
            check_life(sender, message.task, message.incarnation, self.view)

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
            raise InternalError(f"{key.__name__} in phase {type(state.phase).__name__}: {event}")
        handler(state, event)

    def _admit(self, state: CoordinatorState, event: Received) -> bool:
        """Hears a slot of this job; a stranger may register or, to a new coordinator, say what it has; else it goes."""
        slot = event.slot
        if slot in state.addresses:
            state.lives[slot] = failure_detector.step(
                state.lives[slot], failure_detector.HeardFrom(state.clock.awake_ns)
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
        """Of the job."""
        return name_of(self._state.phase)

    @property
    def view(self) -> View | None:
        """The view that stands."""
        return self._state.view if isinstance(self._state.views, Standing) else None

    @property
    def checkpoint(self) -> CheckpointId:
        """The last completed checkpoint."""
        return self._state.completed.checkpoint

    @property
    def completed(self) -> CheckpointMetadata:
        """The metadata of the last completed checkpoint; that of checkpoint 0 before there is one."""
        return self._state.completed

    @property
    def pending(self) -> tuple[CheckpointId, ...]:
        """Checkpoints that were begun and are not complete."""
        return tuple(pending.number for pending in self._state.ledger.pending)

    @property
    def generation(self) -> int:
        """The number of the view that began it: grows with each rollback and each resume."""
        return self._state.ledger.generation

    @property
    def phases(self) -> dict[TaskId, TaskPhase]:
        """Per task, what its slot said last."""
        return dict(self._state.phases)

    @property
    def counters(self) -> dict[TaskId, dict[str, int]]:
        """Per task, the running totals that its living incarnation reported last, also when the job has ended since."""
        state = self._state
        return {
            status.task: dict(status.counters)
            for said in (*state.last_statuses, *state.statuses.values())
            for status in said.tasks
            if state.is_current(status.task, status.incarnation)
        }

    @property
    def slots(self) -> tuple[Register, ...]:
        """The living slots, by id, as they registered."""
        return tuple(register for _, register in sorted(self._state.registers.items()))

    @property
    def recoveries(self) -> tuple[Recovery, ...]:
        """The timeline of each recovery, oldest first; those that are not over last."""
        return (*self._state.recoveries, *self._state.open_recoveries.values())

    @property
    def plan(self) -> Plan:
        """The job's tasks and channels."""
        return self._state.plan

    def standbys_ready(self, task: TaskId) -> int:
        """How many standbys could take the task over now, at some checkpoint."""
        wanted = set(self._state.view.placements[task].standbys) if self.view is not None else set()
        return sum(1 for slot in sorted(wanted) for known, _ in self._standbys_of(slot) if known == task)

    def _standbys_of(self, slot: SlotId) -> tuple[tuple[TaskId, CheckpointId], ...]:
        said = self._state.statuses.get(slot)
        return tuple(entry for entry in said.standbys if entry[1] > 0) if said is not None else ()

    def standbys_hot(self, task: TaskId) -> int:
        """How many standbys follow the task step by step now."""
        wanted = self._state.view.placements[task].standbys if self.view is not None else ()
        said = (self._state.statuses.get(slot) for slot in wanted)
        return sum(1 for status in said if status is not None and task in status.shadows)

    def keepers_ready(self, task: TaskId) -> int:
        """How many keepers hold all that the task's incarnation holds."""
        if self.view is None:
            return 0
        placement = self.view.placements[task]
        held = (task, placement.incarnation)
        said = (self._state.statuses.get(slot) for slot in placement.keepers)
        return sum(1 for status in said if status is not None and held in status.keepers)

    def lives(self) -> dict[SlotId, str]:
        """What is held of every slot that was ever known: alive, doubted or gone."""
        return {slot: type(life).__name__.lower() for slot, life in sorted(self._state.lives.items())}
