"""A seeded world of idealised slots around a coordinator: messages late or lost, slots killed, stores slow.

Tasks do nothing but align and end: what is tried here is the coordinator alone. ``Watch`` asserts after every effect
what must hold in every schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import (
    CommitOutput,
    DeleteObjects,
    Effect,
    JobDone,
    JobFailed,
    ReleaseSlot,
    RequestSlots,
    Send,
    WriteMetadata,
)
from clonos.core.coordinator.coordinator_events import (
    Begin,
    Event,
    MetadataWritten,
    OutputCommitFailed,
    OutputCommitted,
    Received,
    SlotGone,
    Ticked,
    WriteOutcome,
)
from clonos.core.model.errors import Blame
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.control_messages import (
    Completed,
    Register,
    Release,
    SlotStatus,
    Snapshotted,
    Suspicion,
    TaskStatus,
    TriggerCheckpoint,
    View,
)
from clonos.core.wire.recovery_messages import InputRange, LogLost, Recourse, TaskFailed
from tests.harnesses.coordinator_harness import NO_VIEW, START, chain_plan

MILLISECOND_NS = 1_000_000
FAULTS_UNTIL_MS = 20_000
INPUT_UNTIL_MS = 30_000
END_MS = 120_000
OPTIONS = Options(
    lease_ms=1_000, checkpoint_every_ms=700, checkpoint_timeout_ms=5_000, standbys=1, failures_per_epoch_max=1_000
)


class Watch:
    """What must hold, seen from outside: by the effects alone."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.view = NO_VIEW
        self.completed: list[CheckpointMetadata] = []
        self.writing: CheckpointMetadata | None = None
        self.committing = False
        self.dead: set[SlotId] = set()
        self.lives: set[tuple[int, int]] = set()
        self.acknowledged: set[tuple[int, int, int]] = set()
        self.is_over = False

    def see(self, effect: Effect) -> None:
        """One effect."""
        assert not self.is_over, f"{effect} after the end"
        match effect:
            case Send(slot, View() as view):
                assert slot not in self.dead
                if view is not self.view:
                    self._see_view(view)
            case Send(_, Completed() as message):
                assert message.checkpoint == self.completed[-1].checkpoint
            case WriteMetadata(metadata):
                self._see_metadata(metadata)
            case CommitOutput(checkpoint):
                assert checkpoint == self.completed[-1].checkpoint
                self.committing = True
            case DeleteObjects(names):
                needed = {name for metadata in self.completed[-2:] for name in metadata.objects()}
                assert not needed & set(names)
            case JobDone() | JobFailed():
                self.is_over = True

    def _see_view(self, view: View) -> None:
        assert self.writing is None, "a view while a checkpoint was committing"
        assert view.number > self.view.number
        assert view.generation >= self.view.generation
        durable = self.completed[-1].checkpoint if self.completed else 0
        is_new = view.generation != self.view.generation
        named = {address.slot for address in view.slots}
        assert not named & self.dead
        for placement in view.placements:
            backups = (*placement.standbys, *placement.keepers)
            assert {placement.slot, *backups} - {-1} <= named
            assert placement.slot not in placement.standbys
            if int(placement.incarnation) == view.number:
                assert (placement.task, view.number) not in self.lives
                self.lives.add((placement.task, view.number))
                assert placement.restore == durable
                assert placement.is_fresh == is_new
            else:
                before = self.view.placements[placement.task]
                assert not is_new
                assert (before.incarnation, before.slot) == (placement.incarnation, placement.slot)
                assert (before.restore, before.objects) == (placement.restore, placement.objects)
        self.view = view

    def _see_metadata(self, metadata: CheckpointMetadata) -> None:
        assert self.writing in (None, metadata)
        assert not self.committing
        assert not self.completed or metadata.checkpoint > self.completed[-1].checkpoint
        self.writing = metadata
        for entry in metadata.tasks:
            assert entry.incarnation == self.view.placements[entry.task].incarnation, "a dead incarnation was counted"
            assert (entry.task, entry.incarnation, entry.snapshot) in self.acknowledged


class IdealSlot:
    """Installs views, aligns its tasks, repeats what is not answered."""

    def __init__(self, world: IdealCluster, slot: SlotId, domain: str) -> None:
        self.world, self.slot, self.domain = world, slot, domain
        self.view = NO_VIEW
        self.completed = START
        self.is_dead = False
        self.ready_ms: dict[tuple[int, int], int] = {}  # when an incarnation is live

    def receive(self, message: object) -> None:
        """What the coordinator has sent."""
        if isinstance(message, View) and message.number > self.view.number:
            self.view = message
            for placement in message.placements:
                if placement.slot == self.slot:
                    ready_ms = self.world.now_ms + self.world.rng.randint(1, 300)
                    self.ready_ms.setdefault((placement.task, placement.incarnation), ready_ms)
        elif isinstance(message, Completed) and message.generation == self.view.generation:
            self.completed = max(self.completed, message.checkpoint)
        elif isinstance(message, TriggerCheckpoint):
            self.world.triggered[TaskId(message.task)] = max(
                message.checkpoint, self.world.triggered.get(message.task, START)
            )
        elif isinstance(message, Release):
            self.is_dead = True

    def beat(self) -> None:
        """Its heartbeat: status and acknowledgements."""
        if self.is_dead:
            return
        world = self.world
        if not self.view.number:
            world.send_from(self.slot, Register(self.slot, self.domain, "host", "", "", b"", "", 1, ()))
        else:
            self._send_status()
        world.after(100, self.beat)

    def _send_status(self) -> None:
        world, tasks = self.world, []
        for placement in self.view.placements:
            if placement.slot != self.slot:
                continue
            is_live = self.ready_ms[placement.task, placement.incarnation] <= world.now_ms
            tasks.append(
                TaskStatus(
                    placement.task, placement.incarnation, TaskPhase.LIVE if is_live else TaskPhase.REPLAYING, ()
                )
            )
            if is_live:
                self._acknowledge(placement.task, placement.incarnation)
        standbys = tuple((p.task, self.completed) for p in self.view.placements if self.slot in p.standbys)
        keepers = tuple((p.task, p.incarnation) for p in self.view.placements if self.slot in p.keepers)
        status = SlotStatus(self.slot, self.view.number, self.completed, tuple(tasks), standbys, keepers)
        world.send_from(self.slot, status)

    def _acknowledge(self, task: TaskId, incarnation: int) -> None:
        world = self.world
        aligned = min(world.triggered.get(source, START) for source in world.plan.sources)
        is_final = world.now_ms > INPUT_UNTIL_MS
        checkpoint = CheckpointId(aligned + 1) if is_final else aligned
        if checkpoint <= self.completed and not is_final:
            return
        world.watch.acknowledged.add((task, incarnation, checkpoint))
        name = f"{task}-{checkpoint}-{incarnation:x}"
        parts = ((checkpoint, name.encode()),) if world.plan.vertex_of[task] == 2 else ()
        message = Snapshotted(task, incarnation, checkpoint, (name,), 10, parts, is_final)  # type: ignore[arg-type]
        world.send_from(self.slot, message)


class IdealCluster:
    """Virtual time, a lossy network, a slow store, and randomness from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.plan = chain_plan(self.rng.randint(1, 3), has_effects=self.rng.random() < 0.5)
        self.coordinator = Coordinator(self.plan, OPTIONS)
        self.watch = Watch(self.plan)
        self.now_ms = 0
        self.slots: dict[SlotId, IdealSlot] = {}
        self.triggered: dict[TaskId, CheckpointId] = {}
        self.ending: Effect | None = None
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, milliseconds: int, function: Callable[..., None], *arguments: Any) -> None:
        """Calls later."""
        self._count += 1
        heappush(self._queue, (self.now_ms + milliseconds, self._count, function, arguments))

    def send_from(self, slot: SlotId, message: object) -> None:
        """A slot to the coordinator: late, and sometimes never."""
        if self.rng.random() > 0.05:
            self.after(self.rng.randint(0, 20), self.do, Received(slot, message))  # type: ignore[arg-type]

    def do(self, event: Event) -> None:
        """An event and all that it leads to."""
        for effect in self.coordinator.handle(event):
            self.watch.see(effect)
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        rng = self.rng
        match effect:
            case Send(slot, message) if slot in self.slots and rng.random() > 0.05:
                self.after(rng.randint(0, 20), self._receive, slot, message)
            case RequestSlots(count):
                for _ in range(count):
                    self.after(rng.randint(10, 600), self.add_slot)
            case ReleaseSlot(slot):
                self.watch.dead.add(slot)
                if slot in self.slots:
                    self.slots[slot].is_dead = True
            case WriteMetadata(metadata):
                self.after(rng.randint(5, 400), self._written, metadata)
            case CommitOutput(checkpoint):
                self.after(rng.randint(5, 400), self._committed, checkpoint)
            case JobDone() | JobFailed():
                self.ending = effect

    def _receive(self, slot: SlotId, message: object) -> None:
        if not self.slots[slot].is_dead:
            self.slots[slot].receive(message)

    def _written(self, metadata: CheckpointMetadata) -> None:
        number = metadata.checkpoint
        if self.rng.random() < 0.1:
            self.do(MetadataWritten(number, WriteOutcome.FAILED, "injected"))
            return
        self.watch.completed.append(metadata)
        self.watch.writing = None
        self.do(MetadataWritten(number, WriteOutcome.DURABLE))

    def _committed(self, checkpoint: CheckpointId) -> None:
        if self.rng.random() < 0.1:
            self.do(OutputCommitFailed(checkpoint, "injected"))
            return
        self.watch.committing = False
        self.do(OutputCommitted(checkpoint))

    def add_slot(self) -> None:
        """A slot is born."""
        slot = SlotId(self.rng.getrandbits(40) + 1)
        self.slots[slot] = IdealSlot(self, slot, "abc"[len(self.slots) % 3])
        self.slots[slot].beat()

    def _tick(self) -> None:
        self.do(Ticked(self.now_ms * MILLISECOND_NS))
        self.after(50, self._tick)

    # ------------------------------------------------------------------ faults

    def _fault(self) -> None:
        rng, view = self.rng, self.coordinator.view
        living = [slot for slot in self.slots.values() if not slot.is_dead]
        if self.now_ms > FAULTS_UNTIL_MS or self.ending is not None:
            return
        self.after(rng.randint(50, 2_000), self._fault)
        if view is None or not living:
            return
        slot = rng.choice(living)
        task = rng.choice(view.placements)
        match rng.randint(0, 5):
            case 0 | 1:
                slot.is_dead = True
                self.watch.dead.add(slot.slot)
                self.do(SlotGone(slot.slot, "killed"))
            case 2:
                slot.is_dead = True  # silence alone
            case 3:
                self.send_from(task.hosting_slot, self._failure(task.task, task.incarnation))
            case 4 if rng.random() < 0.3:
                self.send_from(task.hosting_slot, LogLost(task.task, task.incarnation, ChannelId(0), 0, 0))
            case _:
                other = rng.choice(living)
                self.send_from(other.slot, Suspicion(other.slot, slot.slot, view.number, True))

    def _failure(self, task: int, incarnation: int) -> TaskFailed:
        first_seq = self.rng.randint(0, 10**9)
        at = InputRange(ChannelId(0), first_seq, 1)
        return TaskFailed(TaskId(task), Incarnation(incarnation), at, "map", "", "error", "", Blame.JOB, Recourse.RETRY)

    # ------------------------------------------------------------------ running

    def run(self) -> None:
        """Until the job has ended, which it must."""
        self._tick()
        self.do(Begin(1, "job"))
        self.after(500, self._fault)
        while self.ending is None and self.now_ms < END_MS:
            self.now_ms, _, function, arguments = heappop(self._queue)
            function(*arguments)
