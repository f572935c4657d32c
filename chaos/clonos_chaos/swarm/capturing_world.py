"""Captures in a simulated world: an epoch of a task is read while the world goes on, and repeated in another place.

The requests travel as messages of the coordinator's process, through the network with all its faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.checkpoint.snapshot import RestoredState, restore_from
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import COORDINATOR, ChannelId, Incarnation, SlotId, TaskId
from clonos.core.ports.task_port import Activation, Command, Delivered, TaskEmission, TaskStopped
from clonos.core.recovery.capture import CaptureReply, TaskCapture
from clonos.core.task.task import Task
from clonos.core.values.elements import decode_records
from clonos.core.wire.capture_messages import CapturedElements, CapturedLog
from clonos.core.wire.messages import Message
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World

REPEAT_NS = 5 * MILLISECOND_NS
BYTES_MAX = 64 << 20


class CapturedEpoch:
    """Epoch that was read, with the state that was in the store at that moment."""

    def __init__(self, capture: TaskCapture, restored: RestoredState | None, generation: int) -> None:
        self.capture, self.restored, self.generation = capture, restored, generation


class CapturingWorld(World):
    """World in which an epoch of each task in turn is captured again and again.

    ``captured``: the epochs that were read. ``begun``: how many attempts there were.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.captured: list[CapturedEpoch] = []
        self.begun = 0
        self._capture: TaskCapture | None = None
        self._turn = 0
        self._objects: list[tuple[str, tuple[bytes, ...]]] = []  # of the task's state, as they were at the beginning
        self.clock.after(REPEAT_NS, self._tick)

    def _tick(self) -> None:
        if self.ending is not None:
            return
        self.clock.after(REPEAT_NS, self._tick)
        capture = self._capture
        if capture is None or capture.is_stale or capture.view.number != self.view.number:
            capture = self._capture = self._begin()
        if capture is not None:
            self._ask(capture)

    def _begin(self) -> TaskCapture | None:
        view, machine = self.view, self.coordinator.machine
        if not view.placements or self.coordinator.is_dead or machine.completed.generation > view.generation:
            return None
        task = TaskId(self._turn % len(self.plan.tasks))
        entry = machine.completed.tasks[task]
        self._objects = [(name, self.store[name]) for name in entry.objects]
        restored = self._restore(task)
        self.begun += 1
        capture = TaskCapture(self.plan, view, entry, restored and restored.snapshot, self.begun, BYTES_MAX)
        for pages in capture.outputs:
            pages.has_digests = False  # so that output can be compared that is cut elsewhere
        return capture

    def _restore(self, task: TaskId) -> RestoredState | None:
        mirror = self.job.new_mirror(self.plan.vertex_of[task])
        return restore_from(self._objects, mirror) if self._objects else None

    def _ask(self, capture: TaskCapture) -> None:
        for slot, request in capture.requests():
            self.network.send(COORDINATOR, slot, request, b"")

    def _deliver(self, sender: SlotId, receiver: SlotId, message: Message, payload: Any) -> None:
        if isinstance(message, CapturedLog | CapturedElements):
            self._on_captured(sender, message, payload)
        else:
            super()._deliver(sender, receiver, message, payload)

    def _on_captured(self, sender: SlotId, reply: CaptureReply, payload: bytes) -> None:
        capture = self._capture
        if capture is None or not capture.on_reply(sender, reply, payload):
            return
        if capture.is_read:
            self._end_of(CapturedEpoch(capture, self._restore(capture.task), capture.view.generation))
        else:
            self._ask(capture)

    def _end_of(self, epoch: CapturedEpoch) -> None:
        """Takes an epoch that was read."""
        self.captured.append(epoch)
        self._capture = None
        self._turn += 1


class NeedsMore(Exception):
    """The replay of an epoch needs something that was not captured."""


class ReplayPort:
    """``TaskPort`` of a task that is given what was captured and stops where its log ends."""

    def __init__(self, capture: TaskCapture, first: dict[ChannelId, int]) -> None:
        self._commands = self._deliveries(capture, first)
        self.emissions: list[TaskEmission] = []

    def _deliveries(self, capture: TaskCapture, first: dict[ChannelId, int]) -> Iterator[Command]:
        for pages in capture.inputs:
            channel = pages.channel.id
            for chunk in pages.chunks:
                skip = max(0, first.get(channel, 0) - chunk.first_seq)
                yield Delivered(channel, chunk.kind, chunk.count, skip, chunk.checkpoint, chunk.payload)

    def receive(self, until_ns: int | None) -> Command | None:
        command = next(self._commands, None)
        if command is None and until_ns is None:
            raise NeedsMore("the task waits for input")
        return command

    def emit(self, emission: TaskEmission) -> None:
        self.emissions.append(emission)

    def budget_bytes(self) -> int:
        return UNLIMITED

    def needs(self, channel: ChannelId, next_seq: int) -> None: ...

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> NoReturn:
        raise TaskStopped

    def await_replicated(self, log_end_bytes: int) -> NoReturn:
        raise NeedsMore("the task waits for its keepers")

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> NoReturn:
        raise NeedsMore("the task announces a step")

    def open_journal(self) -> NoReturn:
        raise NeedsMore("the task opens its journal")

    def lose_journal(self) -> NoReturn:
        raise NeedsMore("the journal lacks what the log reads")

    def now_ns(self) -> NoReturn:
        raise NeedsMore("the task reads the clock")

    def cost_clock_ns(self) -> int:
        return 0

    def entropy(self, count: int) -> NoReturn:
        raise NeedsMore("the task asks for entropy")

    def perform(self, function: Any, key: str) -> NoReturn:
        raise NeedsMore("the task makes a call")

    def begin_call(self, number: int, function: Any, key: str) -> None:
        """Makes no call: its outcome is in the log or nowhere."""

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> NoReturn:
        raise NeedsMore("a call tells a part")

    def end_calls(self) -> None:
        """Does nothing: a replay makes no call."""

    def when_replicated(self, log_end_bytes: int, act: Any) -> NoReturn:
        raise NeedsMore("the task waits for its keepers")


def elements_of(kind: ElementKind, checkpoint: int, payload: bytes) -> list[str]:
    """Returns the elements of a chunk one by one."""
    if kind.is_data:
        return [repr(row) for row in decode_records(kind, payload)]
    return [f"{kind.name} {checkpoint} {payload.hex()}"]


def replayed(world: CapturingWorld, epoch: CapturedEpoch) -> tuple[BaseException | None, dict[ChannelId, list[str]]]:
    """Repeats an epoch. Returns the exception of the task, None if it came to the end of its log; and its output."""
    capture, snapshot = epoch.capture, epoch.restored.snapshot if epoch.restored is not None else None
    plan, task = capture.plan, capture.task
    port = ReplayPort(capture, dict(snapshot.inputs) if snapshot is not None else {})
    activation = Activation(
        Incarnation(capture.view.number),
        snapshot,
        epoch.restored.mirror if epoch.restored is not None else None,
        bytes(capture.log.data) + capture.log.unfinished,
        capture.log.start_bytes,
        epoch.generation,
        False,
        capture.view.job_id,
        bytes(capture.journal.data) if capture.journal is not None else b"",
    )
    raised: BaseException | None = None
    try:
        Task(plan, task, world.job.new_chain(plan.vertex_of[task]), port, activation, world.options).run()
    except TaskStopped:
        pass
    except Exception as error:  # noqa: BLE001  of the task, for the caller
        raised = error
    found: dict[ChannelId, list[str]] = {pages.channel.id: [] for pages in capture.outputs}
    for emission in port.emissions:
        for output in emission.outputs:
            found[output.channel] += elements_of(output.kind, output.checkpoint, output.payload)
    return raised, found


def expected(epoch: CapturedEpoch) -> dict[ChannelId, tuple[int, list[str]]]:
    """Returns the captured output of each channel: the number of its first element, and its elements."""
    found = {}
    for pages in epoch.capture.outputs:
        first = pages.chunks[0].first_seq if pages.chunks else pages.next_seq
        elements = [
            element
            for chunk in pages.chunks
            for element in elements_of(chunk.kind, chunk.checkpoint, bytes(chunk.payload))
        ]
        found[pages.channel.id] = first, elements
    return found


def complaints_of(world: CapturingWorld, epoch: CapturedEpoch) -> list[str]:
    """Returns how the replay of an epoch differs from what the live task did."""
    capture = epoch.capture
    name = f"{capture.plan.task_name(capture.task)} since checkpoint {capture.entry.snapshot}"
    raised, output = replayed(world, epoch)
    if raised is not None:
        return [f"{name}: {type(raised).__name__}: {raised}"]
    start = dict(epoch.restored.snapshot.outputs) if epoch.restored is not None else {}
    complaints = []
    for channel, (first, elements) in expected(epoch).items():
        skipped = first - start.get(channel, 0)
        is_cut = skipped < 0  # a chunk that begins before the barrier
        now = output[channel][max(0, skipped) : max(0, skipped) + len(elements) + min(0, skipped)]
        before = elements[-skipped:] if is_cut else elements
        if now != before:
            complaints.append(f"{name}, channel {channel}: {before} was emitted, and the replay gives {now}")
    return complaints
