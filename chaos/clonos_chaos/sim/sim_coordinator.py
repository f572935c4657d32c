"""Driver of the simulated world: a real ``Coordinator`` in a shell of virtual time, which another one may replace."""

from __future__ import annotations

from clonos.core.channel.sender import ChannelStuck
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, VertexParts
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    CommitOutput,
    DeleteObjects,
    DivideState,
    Effect,
    JobDone,
    JobFailed,
    RecoveryEvent,
    ReleaseSlot,
    RequestSlots,
    Send,
    WriteMetadata,
)
from clonos.core.coordinator.coordinator_events import (
    Begin,
    Event,
    MetadataWritten,
    OutputCommitted,
    Received,
    SlotGone,
    StateDivided,
    Ticked,
    WriteOutcome,
)
from clonos.core.model.ids import COORDINATOR, CheckpointId, SlotId
from clonos.core.wire.control_messages import Register, SlotStatus, Snapshotted, View
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import JournalLost, LogLost, Recourse, SinkFenced, TaskFailed
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.sim.environment import SimEnvironment
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

ENDINGS = frozenset({JobDone, JobFailed})


class SimCoordinator:
    """One coordinator process; its life is one term."""

    def __init__(self, world: SimEnvironment, term: int) -> None:
        self.world, self.clock, self.term = world, world.clock, term
        self.machine = Coordinator(world.declared, world.options)
        self.is_dead = False
        self.paused_until_ns = 0
        self.began_ns = world.clock.now_ns
        self.status_received_ns: dict[SlotId, int] = {}  # when the last status of each slot came

    def begin(self, slots_needed: int) -> None:
        """Claims the term in the store; a later term resumes from the last checkpoint there."""
        world = self.world
        world.store_term = self.term
        resume = world.chain[max(world.chain)] if world.chain else None
        is_first = self.term == 1
        named = tuple(world.named) if world.names_slots else ()
        resume = None if is_first or resume is None else self.world.divided(resume, self.term)
        # As the file of retained slots has them: how those registered that live.
        registers = tuple(world.named[slot] for slot in named if not world.has_died(slot))
        self.handle(
            Begin(self.term, "fuzz", slots_needed, resume, awaits_slots=not is_first, named=named, registers=registers)
        )
        for slot in named:
            if world.has_died(slot):
                self.handle(SlotGone(slot, "it has ended before the coordinator began", self.clock.now_ns))
        self.tick()

    def tick(self) -> None:
        if not self.is_dead:
            self.handle(Ticked(self.clock.now_ns))
            self.clock.after(self.world.options.heartbeat_ms * MILLISECOND_NS // 2, self.tick)

    @property
    def is_current(self) -> bool:
        """Returns whether no later term has been claimed."""
        return self.term == self.world.store_term

    def handle(self, event: Event) -> None:
        """Handles one event and performs its effects; a paused process does so when it resumes."""
        if self.is_dead:
            return
        if self.paused_until_ns > self.clock.now_ns:
            self.clock.at(self.paused_until_ns, self.handle, event)
            return
        if isinstance(event, Received):
            self._note_received(event)
        effects = self.machine.handle(event)
        if self.world.is_validated:
            self.machine.validate()
        if not ENDINGS.isdisjoint(map(type, effects)) and self.is_current:
            self.world.oracle.is_over = True  # slots that are released now are not failures
        for effect in effects:
            self._perform(effect)

    def _note_received(self, event: Received) -> None:
        message = event.message
        if isinstance(message, Register):
            self.world.named.setdefault(message.slot, message)  # written down before the machine registers the slot
        elif isinstance(message, SlotStatus):
            self.status_received_ns[event.slot] = self.clock.now_ns
        elif isinstance(message, Snapshotted):
            if self.is_current:
                self.world.oracle.acknowledged(message)
        elif isinstance(message, LogLost | JournalLost | SinkFenced) and self.is_current:
            self.world.oracle.lost(message)
        elif isinstance(message, TaskFailed) and ChannelStuck.__name__ in message.error:
            self.world.fail(f"a channel is stuck, although its task had what was asked for: {message.error}")
        elif isinstance(message, TaskFailed) and message.recourse is Recourse.ROLLBACK and self.is_current:
            self.world.oracle.diverged()

    # ------------------------------------------------------------------ effects

    def _perform(self, effect: Effect) -> None:
        world = self.world
        match effect:
            case Send(slot, message):
                self._send(slot, message)
            case RequestSlots(count):
                for _ in range(count):
                    delay = self.clock.between(MILLISECOND_NS, world.settings.fresh_slot_ns_max)
                    self.clock.after(delay, world.add_slot)
            case ReleaseSlot(slot, reason):
                world.note(f"release {slot}: {reason}")
                world.end_slot(slot)
            case WriteMetadata(metadata):
                world.reach(FaultPoint.METADATA_BEGUN)
                self._after_store(self._write_metadata, metadata)
            case CommitOutput(checkpoint, parts):
                self._after_store(self._commit, checkpoint, parts)
            case DivideState(metadata):
                self._after_store(self._divide, metadata)
            case DeleteObjects(names):
                for name in names:
                    world.store.pop(name, None)
            case JobDone() | JobFailed():
                world.note(f"{effect}")
                if self.is_current:
                    world.end(effect)
            case RecoveryEvent(milestone, _, task, incarnation, cause):
                world.note(f"{milestone} task {task} incarnation {incarnation:x} {cause}")
            case Alarm():
                world.alarms.append(effect)
                world.note(f"{effect}")
            case _:
                world.note(f"{effect}")

    def _send(self, slot: SlotId, message: Message) -> None:
        world = self.world
        if isinstance(message, View) and message.number > world.view.number:
            world.note(f"view {message.number:x} generation {message.generation:x}")
            begins = message.generation > world.view.generation > 0
            if message.widths != world.view.widths and world.views:
                world.adopt_plan(message)
            world.oracle.viewed(message)
            world.views.append(message)
            if len(world.views) == 1:
                world.begin()
            world.reach(FaultPoint.ROLLBACK_ISSUED if begins else FaultPoint.VIEW_ISSUED)
        world.network.send(COORDINATOR, slot, message, b"")

    # ------------------------------------------------------------------ the store

    def _after_store(self, call: object, *arguments: object) -> None:
        self.clock.after(
            self.clock.between(100_000, self.world.settings.store_ns_max), self._in_store, call, *arguments
        )

    def _in_store(self, call: object, *arguments: object) -> None:
        if self.paused_until_ns > self.clock.now_ns:
            self.clock.at(self.paused_until_ns, self._in_store, call, *arguments)
        elif not self.is_dead:
            call(*arguments)  # type: ignore[operator]

    def _write_metadata(self, metadata: CheckpointMetadata) -> None:
        world = self.world
        if not self.is_current:
            self.handle(MetadataWritten(metadata.checkpoint, WriteOutcome.TAKEN))
            return
        if world.fails_in_store():
            if self.clock.rng.random() < 0.5:
                self._make_durable(metadata)  # it is stored, but the caller does not learn so
            self.handle(MetadataWritten(metadata.checkpoint, WriteOutcome.FAILED, "the simulated store failed"))
            return
        self._make_durable(metadata)
        world.reach(FaultPoint.METADATA_WRITTEN)
        self.clock.at(self.clock.now_ns, self._report_durable, metadata)

    def _make_durable(self, metadata: CheckpointMetadata) -> None:
        if metadata.checkpoint not in self.world.chain:
            self.world.chain[metadata.checkpoint] = metadata
            self.world.outcome.checkpoints += 1
            self.world.note(f"checkpoint {metadata.checkpoint} is complete")
            self.world.oracle.completed(metadata)

    def _report_durable(self, metadata: CheckpointMetadata) -> None:
        self.handle(MetadataWritten(metadata.checkpoint, WriteOutcome.DURABLE, now_ns=self.clock.now_ns))
        self.world.reach(FaultPoint.COMPLETE)

    def _divide(self, metadata: CheckpointMetadata) -> None:
        if self.world.fails_in_store():
            self.handle(StateDivided(metadata.checkpoint, None, "the simulated store failed"))
        else:
            self.handle(StateDivided(metadata.checkpoint, self.world.divided(metadata, self.term)))

    def _commit(self, checkpoint: CheckpointId, parts: tuple[VertexParts, ...]) -> None:
        world = self.world
        world.commit(checkpoint, parts)
        world.reach(FaultPoint.COMMITTED)
        self.handle(OutputCommitted(checkpoint, self.clock.now_ns))
