"""A real coordinator, slots that obey at once or not at all, and its effects as short lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import DivideState, Effect, Send, WriteMetadata
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
from clonos.core.model.errors import Blame
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId, ViewNumber, view_name
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.control_messages import (
    Completed,
    Placement,
    Register,
    Release,
    SlotStatus,
    Snapshotted,
    Suspicion,
    TaskStatus,
    View,
    WarmUp,
)
from clonos.core.wire.recovery_messages import InputRange, LogLost, Recourse, TaskFailed

MILLISECOND_NS = 1_000_000
EffectKind = TypeVar("EffectKind")
START = CheckpointId(0)
NO_VIEW = View(ViewNumber(0), 0, "", (), ())


def chain_plan(parallelism: int = 2, has_effects: bool = False, sharing_depth: int | None = None) -> Plan:
    """source -> map -> sink, all to all; with effects the sink is immediate, else it is transactional."""
    vertices = (
        Vertex("source", parallelism, is_source=True),
        Vertex("map", parallelism),
        Vertex("sink", parallelism, has_effects=has_effects, is_transactional=not has_effects),
    )
    edges = [Edge(0, 1, Partitioning.HASH, 0), Edge(1, 2, Partitioning.HASH, 0)]
    if has_effects:
        edges.append(Edge(2, None, Partitioning.EXTERNAL, 0))
    return Plan("job", vertices, tuple(edges), sharing_depth=sharing_depth)


@dataclass
class HarnessSlot:
    """A slot as the coordinator sees it. ``is_deaf``: messages to it are lost; ``is_mute``: it sends none.

    ``suspends``: its live tasks are suspended as soon as a view asks for it. ``reads_ahead``: it
    does at once what a ``WarmUp`` asks for; ``warmed``: number of the last one.
    """

    slot: SlotId
    domain: str
    view: View = NO_VIEW
    completed: CheckpointId = START
    is_deaf: bool = False
    is_mute: bool = False
    are_backups_ready: bool = True
    suspends: bool = True
    reads_ahead: bool = True
    warmed: int = 0
    phase: TaskPhase = TaskPhase.LIVE
    counters: tuple[tuple[TaskCounter, int], ...] = ()
    is_over_soft_limit: bool = False
    standbys_at: dict[TaskId, CheckpointId] = field(default_factory=dict)
    received: list[object] = field(default_factory=list)

    def hosted(self) -> list[Placement]:
        """Placements of the installed view in this slot."""
        return [p for p in self.view.placements if p.slot == self.slot]

    def phase_of(self, placement: Placement) -> TaskPhase:
        """The phase of a task."""
        is_suspended = placement.is_suspended and self.suspends and self.phase is TaskPhase.LIVE
        return TaskPhase.SUSPENDED if is_suspended else self.phase

    def status(self) -> SlotStatus:
        """The slot's heartbeat."""
        tasks = tuple(TaskStatus(p.task, p.incarnation, self.phase_of(p), self.counters) for p in self.hosted())
        backups = self.view.placements if self.are_backups_ready else ()
        standbys = tuple(
            (p.task, self.standbys_at.get(p.task, self.completed)) for p in backups if self.slot in p.standbys
        )
        keepers = tuple((p.task, p.incarnation) for p in backups if self.slot in p.keepers)
        over = self.is_over_soft_limit
        body = tasks, standbys, keepers, over
        return SlotStatus(self.slot, self.view.number, self.completed, *body, warmed=self.warmed)


class CoordinatorHarness:
    """Drives a coordinator; ``effects_of_last`` has all its effects so far."""

    def __init__(self, plan: Plan | None = None, options: Options | None = None) -> None:
        self.plan = plan or chain_plan()
        self.coordinator = Coordinator(self.plan, options or Options())
        self.slots: dict[SlotId, HarnessSlot] = {}
        self.now_ns = 0
        self.effects_of_last: list[Effect] = []
        self.divides = True  # the state of a cut at once

    # ------------------------------------------------------------------ events

    def do(self, *events: Event) -> tuple[Effect, ...]:
        """Handles events that arrive together; slots receive their messages at once. Returns the effects."""
        effects = self.coordinator.handle(*events)
        self.effects_of_last += effects
        for effect in effects:
            if isinstance(effect, Send) and effect.slot in self.slots:
                self._deliver(self.slots[effect.slot], effect.message)
            elif isinstance(effect, DivideState) and self.divides:
                effects += self.do(StateDivided(effect.metadata.checkpoint, effect.metadata))
        return effects

    def _deliver(self, slot: HarnessSlot, message: object) -> None:
        if slot.is_deaf:
            return
        slot.received.append(message)
        if isinstance(message, View) and message.number < slot.view.number:
            self.receive(slot.slot, slot.view)
        elif isinstance(message, View):
            slot.view = message
        elif isinstance(message, Completed) and message.generation == slot.view.generation:
            slot.completed = max(slot.completed, message.checkpoint)
        elif isinstance(message, WarmUp) and message.generation == slot.view.generation and slot.reads_ahead:
            slot.warmed = message.number
        elif isinstance(message, Release):
            slot.is_mute = True

    def begin(
        self, slots: int = 0, resume: CheckpointMetadata | None = None, term: int = 1, can_spread: bool = True
    ) -> tuple[Effect, ...]:
        """Starts the job."""
        self.do(Ticked(self.now_ns))  # starts the clock
        return self.do(Begin(term, "job-1", slots, resume, can_spread=can_spread))

    def register(self, slot: int, domain: str, host: str = "host") -> tuple[Effect, ...]:
        """Starts a slot and registers it."""
        born = self.slots[SlotId(slot)] = HarnessSlot(SlotId(slot), domain)
        address = f"ipc://{slot}"
        register = Register(born.slot, domain, host, address, address, b"key", "token", slot, (("python", "3.11"),))
        return self.do(Received(born.slot, register))

    def form(self, domains: str = "aabbab", **begin: Any) -> None:
        """Starts the job and registers one slot for each letter of ``domains``, numbered from 1."""
        self.begin(**begin)
        for number, domain in enumerate(domains, 1):
            self.register(number, domain)
        assert self.coordinator.phase == "running", self.coordinator.phase
        self.speak()

    def speak(self) -> tuple[Effect, ...]:
        """Sends the heartbeat of every slot that is not mute."""
        effects: list[Effect] = []
        for slot in list(self.slots.values()):
            if not slot.is_mute and slot.view.number:
                effects += self.do(Received(slot.slot, slot.status()))
        return tuple(effects)

    def tick(self, milliseconds: int = 100, step_ms: int = 100) -> tuple[Effect, ...]:
        """Lets time pass, heartbeat by heartbeat."""
        effects: list[Effect] = []
        for _ in range(milliseconds // step_ms):
            self.now_ns += step_ms * MILLISECOND_NS
            effects += self.speak()
            effects += self.do(Ticked(self.now_ns))
        return tuple(effects)

    def gone(self, *slots: int) -> tuple[Effect, ...]:
        """Reports that the processes of these slots have ended."""
        for slot in slots:
            self.slots[SlotId(slot)].is_mute = self.slots[SlotId(slot)].is_deaf = True
        return self.do(*(SlotGone(SlotId(slot), "killed") for slot in slots))

    def receive(self, slot: int, message: object) -> tuple[Effect, ...]:
        """Sends a message of a slot."""
        return self.do(Received(SlotId(slot), message))  # type: ignore[arg-type]

    def suspect(self, reporter: int, suspect: int, is_gone: bool = True) -> tuple[Effect, ...]:
        """Reports that a slot cannot reach another one."""
        return self.receive(reporter, Suspicion(SlotId(reporter), SlotId(suspect), self.view.number, is_gone))

    # ------------------------------------------------------------------ tasks

    @property
    def view(self) -> View:
        """The current view."""
        view = self.coordinator.view
        assert view is not None
        return view

    @property
    def number(self) -> int:
        """Number of the current view."""
        return self.view.number

    def pending(self) -> list[int]:
        """Checkpoints that have begun and are not complete."""
        return list(self.coordinator.pending)

    def view_slots(self) -> list[SlotId]:
        """Slots of the current view."""
        return [address.slot for address in self.view.slots]

    def of(self, task: int) -> Placement:
        """Placement of a task in the current view."""
        return self.view.placements[task]

    def acknowledgement(
        self,
        task: int,
        checkpoint: int,
        final: bool = False,
        incarnation: int | None = None,
        parts: Iterable[tuple[int, bytes]] = (),
        objects: tuple[str, ...] = (),
    ) -> Snapshotted:
        """Message of a task, by default of its present incarnation, when its snapshot is durable."""
        life = Incarnation(self.of(task).incarnation if incarnation is None else incarnation)
        return Snapshotted(
            TaskId(task),
            life,
            CheckpointId(checkpoint),
            objects or (f"{task}-{checkpoint}-{view_name(life)}",),
            100 * checkpoint + task,
            tuple((CheckpointId(label), part) for label, part in parts),
            final,
        )

    def acknowledge(
        self, checkpoint: int, *tasks: int, final: bool = False, parts: Iterable[tuple[int, bytes]] = ()
    ) -> tuple[Effect, ...]:
        """Reports that these tasks, by default all, have stored their snapshots. ``parts``: prepared by each."""
        effects: list[Effect] = []
        for task in tasks or self.plan.tasks:
            message = self.acknowledgement(task, checkpoint, final, parts=parts)
            effects += self.receive(self.of(task).hosting_slot, message)
        return tuple(effects)

    def durable(self, checkpoint: int) -> tuple[Effect, ...]:
        """Reports that the store has written the metadata."""
        return self.do(MetadataWritten(CheckpointId(checkpoint), WriteOutcome.DURABLE))

    def complete(self, checkpoint: int) -> tuple[Effect, ...]:
        """Completes a checkpoint: triggered by the clock, acknowledged by all tasks, and durable."""
        self.tick(5_000)
        assert checkpoint in self.pending(), self.pending()
        return (*self.acknowledge(checkpoint), *self.durable(checkpoint))

    def lose_log(self, task: int, incarnation: int | None = None) -> tuple[Effect, ...]:
        """Reports a lost log of a task."""
        life = Incarnation(self.of(task).incarnation if incarnation is None else incarnation)
        channel = self.plan.outputs[task][0].id
        return self.receive(self.of(task).hosting_slot, LogLost(TaskId(task), life, channel, 40, 50))

    def failure(
        self, task: int, channel: int = 3, first_seq: int = 10, count: int = 5, recourse: Recourse = Recourse.RETRY
    ) -> TaskFailed:
        """Message of a task's present incarnation when user code raised; ``count`` 0: at no element."""
        life = self.of(task).incarnation
        at = InputRange(ChannelId(channel), first_seq, count) if count else None
        return TaskFailed(TaskId(task), life, at, "split", "'x'", "ValueError: x", "Traceback ...", Blame.JOB, recourse)

    def raise_in(self, task: int, **failed: Any) -> tuple[Effect, ...]:
        """Reports that user code raised."""
        return self.receive(self.of(task).hosting_slot, self.failure(task, **failed))


# ------------------------------------------------------------------ effects as lines


def sent(effects: Iterable[Effect], kind: type) -> list[tuple[SlotId, object]]:
    """Messages of a kind, each with the slot that it is sent to."""
    return [(e.slot, e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def of_kind(effects: Iterable[Effect], kind: type[EffectKind]) -> list[EffectKind]:
    """Effects of a kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def formed(**options: int) -> CoordinatorHarness:
    """The default job after its first view."""
    harness = CoordinatorHarness(options=Options(**options))  # type: ignore[arg-type]
    harness.form()
    return harness


def live_chain(
    has_effects: bool = False, domains: str = "ababab", plan: Plan | None = None, **options: Any
) -> CoordinatorHarness:
    """A plan, by default a chain of parallelism 2, whose tasks are live, with a slot in each of ``domains``."""
    harness = CoordinatorHarness(plan or chain_plan(2, has_effects), Options(**options))
    harness.form(domains, slots=len(domains))
    harness.tick(300)
    return harness


def sharing_chain() -> CoordinatorHarness:
    """A live chain two of whose tasks share a slot, since one died, while a slot that came later has none."""
    harness = live_chain(move_tasks=False)
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    harness.gone(harness.of(3).hosting_slot)
    harness.tick(300)
    harness.register(90, "c")
    harness.tick(300)
    return harness


def written_metadata(effects: tuple[Effect, ...]) -> CheckpointMetadata:
    """The metadata of the only checkpoint that these effects write."""
    (write,) = of_kind(effects, WriteMetadata)
    return write.metadata
