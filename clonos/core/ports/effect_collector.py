"""Collects the effects of one step: parts call these methods, and ``Slot.step`` returns what they asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import Incarnation, SlotId, TaskId, ThreadId
from clonos.core.ports import slot_effects as effect
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.slot_effects import Effect, ReadPurpose
from clonos.core.ports.task_port import Activation, Command, TaskHandle
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.control_messages import TaskWarmUp
from clonos.core.wire.messages import Message


class SpillStore(Protocol):
    """Segments of in-flight logs on the slot's local disk, written and read in the background. Nothing here blocks.

    What is stored need not survive the process. Segments are numbered by the caller and never written twice, except
    after a write that failed.
    """

    def write_segment(self, segment: int, payloads: list[bytes]) -> None:
        """Writes a segment; the outcome is ``SegmentSpilled``."""

    def load(self, segment: int) -> None:
        """Loads a segment that is stored; the outcome is ``SegmentLoaded``."""

    def delete(self, segment: int) -> None:
        """Deletes a segment, even while it is being written or loaded; later outcomes are ignored."""


class _SpillEffects(SpillStore):
    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects

    def write_segment(self, segment: int, payloads: list[bytes]) -> None:
        self._effects.append(effect.WriteSegment(segment, payloads))

    def load(self, segment: int) -> None:
        self._effects.append(effect.LoadSegment(segment))

    def delete(self, segment: int) -> None:
        self._effects.append(effect.DeleteSegment(segment))


class ProducerConnections:
    """The connections of the slot's journalled sources, one for each incarnation that has one."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects

    def open(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        """Asks for ``OpenProducer``."""
        self._effects.append(effect.OpenProducer(task, incarnation, offset_bytes))

    def hold(self, task: TaskId, incarnation: Incarnation, held: bool) -> None:
        """Asks for ``HoldProducer``."""
        self._effects.append(effect.HoldProducer(task, incarnation, held))

    def acknowledge(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        """Asks for ``AcknowledgeProducer``."""
        self._effects.append(effect.AcknowledgeProducer(task, incarnation, offset_bytes))

    def close(self, task: TaskId, incarnation: Incarnation) -> None:
        """Asks for ``CloseProducer``."""
        self._effects.append(effect.CloseProducer(task, incarnation))


class _Thread(TaskHandle):
    """A task's thread, by its number."""

    __slots__ = ("_effects", "_task", "_thread")

    def __init__(self, effects: list[Effect], task: TaskId, thread: ThreadId) -> None:
        self._effects, self._task, self._thread = effects, task, thread

    def put(self, command: Command) -> None:
        """Asks for ``PutCommand``."""
        self._effects.append(effect.PutCommand(self._task, self._thread, command))


class EffectCollector:
    """Collector of the effects of a step. Time stands still between two heartbeats."""

    def __init__(self, new_mirror: Callable[[TaskId], Mirror]) -> None:
        self._effects: list[Effect] = []
        self._now_ns = 0
        self.new_mirror = new_mirror  # makes an empty image of the state of the task's chain
        self.spill: SpillStore = _SpillEffects(self._effects)
        self.producers = ProducerConnections(self._effects)

    def take(self) -> list[Effect]:
        """Returns the effects since it was called last."""
        effects = self._effects
        taken = effects[:]
        effects.clear()
        return taken

    def put_back(self, effects: list[Effect]) -> None:
        """Asks for effects that were taken."""
        self._effects += effects

    def tick(self, now_ns: int) -> None:
        """Time has passed."""
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """Returns the time of the latest heartbeat."""
        return self._now_ns

    def send(self, slot: SlotId, message: Message, payload: bytes | memoryview = b"") -> None:
        """Asks for ``SendMessage``."""
        self._effects.append(effect.SendMessage(slot, message, payload))

    def start_task(self, task: TaskId, thread: ThreadId, activation: Activation) -> TaskHandle:
        """Asks for ``StartTask``. Returns where to put commands."""
        self._effects.append(effect.StartTask(task, thread, activation))
        return _Thread(self._effects, task, thread)

    def stop_task(self, task: TaskId, thread: ThreadId) -> None:
        """Asks for ``StopTask``."""
        self._effects.append(effect.StopTask(task, thread))

    def go_live(self, task: TaskId, thread: ThreadId) -> None:
        """Asks for ``LetGoLive``."""
        self._effects.append(effect.LetGoLive(task, thread))

    def replicated_to(self, task: TaskId, thread: ThreadId, end_bytes: int) -> None:
        """Asks for ``ReportReplicated``."""
        self._effects.append(effect.ReportReplicated(task, thread, end_bytes))

    def announce_ack(self, task: TaskId, thread: ThreadId) -> None:
        """Asks for ``ConfirmAnnouncement``."""
        self._effects.append(effect.ConfirmAnnouncement(task, thread))

    def set_output_budget(self, task: TaskId, thread: ThreadId, budget_bytes: int, handled_bytes: int) -> None:
        """Asks for ``SetOutputBudget``."""
        self._effects.append(effect.SetOutputBudget(task, thread, budget_bytes, handled_bytes))

    def write_snapshot(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        """Asks for ``WriteSnapshot``."""
        self._effects.append(effect.WriteSnapshot(name, snapshot, more))

    def write_whole(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        """Asks for ``WriteWholeState``."""
        self._effects.append(effect.WriteWholeState(name, snapshot, whole))

    def read_objects(self, purpose: ReadPurpose, names: tuple[str, ...]) -> None:
        """Asks for ``ReadSnapshots``."""
        self._effects.append(effect.ReadSnapshots(purpose, names))

    def read_ahead(self, number: int, widths: tuple[tuple[str, int], ...], tasks: tuple[TaskWarmUp, ...]) -> None:
        """Asks for ``ReadAhead``."""
        self._effects.append(effect.ReadAhead(number, widths, tasks))

    def drop_read_ahead(self) -> None:
        """Asks for ``DropReadAhead``."""
        self._effects.append(effect.DropReadAhead())

    def open_external(
        self, task: TaskId, incarnation: Incarnation, generation: int, job_id: str, restored_number: int
    ) -> None:
        """Asks for ``OpenSink``."""
        self._effects.append(effect.OpenSink(task, incarnation, generation, job_id, restored_number))

    def write_external(
        self, task: TaskId, incarnation: Incarnation, first_seq: int, count: int, kind: ElementKind, payload: bytes
    ) -> None:
        """Asks for ``WriteToSink``."""
        self._effects.append(effect.WriteToSink(task, incarnation, first_seq, count, kind, payload))

    def forget_external(self, task: TaskId, incarnation: Incarnation, before_number: int) -> None:
        """Asks for ``ForgetSinkOutput``."""
        self._effects.append(effect.ForgetSinkOutput(task, incarnation, before_number))

    def acknowledge_source(self, task: TaskId, position: bytes) -> None:
        """Asks for ``AcknowledgeSource``."""
        self._effects.append(effect.AcknowledgeSource(task, position))

    def close_external(self, task: TaskId, incarnation: Incarnation) -> None:
        """Asks for ``CloseSink``."""
        self._effects.append(effect.CloseSink(task, incarnation))

    def warn(self, text: str, **fields: str | int) -> None:
        """Asks for ``Warn``."""
        self._effects.append(effect.Warn(text, fields))

    def refuse(self, error: MessageMalformed) -> None:
        """Asks for ``RefuseMessage``."""
        self._effects.append(effect.RefuseMessage(error))

    def end(self, reason: str) -> None:
        """Asks for ``EndSlot``."""
        self._effects.append(effect.EndSlot(reason))
