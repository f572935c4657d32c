"""Effects of a slot's machine: ``Slot.step`` returns them, the process performs them in order (protocol 3 to 7).

None of them blocks the machine. An outcome comes back as an event (``clonos.core.slot.slot_events``).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import Incarnation, SlotId, TaskId, ThreadId
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.task_port import Activation, Command
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.control_messages import TaskWarmUp
from clonos.core.wire.messages import Message


@dataclass(frozen=True, slots=True)
class TaskRead:
    """Snapshots are read for an incarnation that begins."""

    task: TaskId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class StandbyRead:
    """Snapshots are read for the mirror of a task whose present incarnation it is."""

    task: TaskId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ShadowRead:
    """Snapshots are read for a shadow, in this session."""

    task: TaskId
    session: int


ReadPurpose = TaskRead | StandbyRead | ShadowRead


class SendMessage(msgspec.Struct, frozen=True, gc=False):
    """Send to another slot, to the coordinator or to this slot itself. The message may be lost."""

    slot: SlotId
    message: Message
    payload: bytes | memoryview


class StartTask(msgspec.Struct, frozen=True):
    """Start a thread that runs ``Task(...).run()``."""

    task: TaskId
    thread: ThreadId
    activation: Activation


class PutCommand(msgspec.Struct, frozen=True, gc=False):
    """Queue a command for a task's thread."""

    task: TaskId
    thread: ThreadId
    command: Command


class StopTask(msgspec.Struct, frozen=True, gc=False):
    """Tell the thread to end. The machine ignores what it still emits."""

    task: TaskId
    thread: ThreadId


class LetGoLive(msgspec.Struct, frozen=True, gc=False):
    """Release a task that is blocked in ``TaskPort.go_live``."""

    task: TaskId
    thread: ThreadId


class ReportReplicated(msgspec.Struct, frozen=True, gc=False):
    """Release a task that is blocked in ``TaskPort.await_replicated`` up to ``end_bytes``."""

    task: TaskId
    thread: ThreadId
    end_bytes: int


class ConfirmAnnouncement(msgspec.Struct, frozen=True, gc=False):
    """Release a task that is blocked in ``TaskPort.announce_step``."""

    task: TaskId
    thread: ThreadId


class SetOutputBudget(msgspec.Struct, frozen=True, gc=False):
    """Set what ``TaskPort.budget_bytes`` returns after the first ``handled_bytes`` of cost that were emitted."""

    task: TaskId
    thread: ThreadId
    budget_bytes: int
    handled_bytes: int


class WriteSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Encode and store a snapshot: ``SnapshotWritten``. ``more`` is released when it is stored."""

    name: str
    snapshot: Snapshot
    more: Pieces | None


class WriteWholeState(msgspec.Struct, frozen=True, gc=False):
    """Store all of the state at the barrier of a snapshot: ``WholeStateWritten``, if it could be stored.

    Nobody waits for it. ``whole`` is released in both cases.
    """

    name: str
    snapshot: Snapshot
    whole: Pieces


class ReadSnapshots(msgspec.Struct, frozen=True, gc=False):
    """Read a chain of snapshots, oldest first, into a new mirror: ``SnapshotsRead``."""

    purpose: ReadPurpose
    names: tuple[str, ...]


class ReadAhead(msgspec.Struct, frozen=True, gc=False):
    """Read the state of tasks of the next plan, with these widths, into memory: ``WarmedUp``. Tasks of that plan begin
    with what was read, and read the rest. What was read for other widths is dropped.
    """

    number: int
    widths: tuple[tuple[str, int], ...]
    tasks: tuple[TaskWarmUp, ...]


class DropReadAhead(msgspec.Struct, frozen=True, gc=False):
    """Drop what was read for tasks of the next plan, after the reads that were asked for before."""


class OpenSink(msgspec.Struct, frozen=True, gc=False):
    """Register with the external system of an immediate sink: ``SinkOpened`` or ``SinkWriterFenced``.

    See ``clonos.operators.connector_contract.Registration``.
    """

    task: TaskId
    incarnation: Incarnation
    generation: int
    job_id: str
    restored_number: int


class WriteToSink(msgspec.Struct, frozen=True, gc=False):
    """Write to the external system, in order: ``SinkConfirmed`` or ``SinkWriterFenced``."""

    task: TaskId
    incarnation: Incarnation
    first_seq: int
    count: int
    kind: ElementKind
    payload: bytes


class ForgetSinkOutput(msgspec.Struct, frozen=True, gc=False):
    """Say, after the writes so far, that no restart goes back before ``before_number`` any more."""

    task: TaskId
    incarnation: Incarnation
    before_number: int


class AcknowledgeSource(msgspec.Struct, frozen=True, gc=False):
    """Tell a source that no restart reads its input before ``position`` any more."""

    task: TaskId
    position: bytes


class CloseSink(msgspec.Struct, frozen=True, gc=False):
    """Close the connection of an incarnation that has ended: it writes nothing more."""

    task: TaskId
    incarnation: Incarnation


class WriteSegment(msgspec.Struct, frozen=True, gc=False):
    """Write a segment of an in-flight log to the local disk: ``SegmentSpilled``.

    It need not survive the process. No segment is written twice, except after a write that failed.
    """

    segment: int
    payloads: list[bytes]


class LoadSegment(msgspec.Struct, frozen=True, gc=False):
    """Load a segment that is on disk: ``SegmentLoaded``."""

    segment: int


class DeleteSegment(msgspec.Struct, frozen=True, gc=False):
    """Delete a segment, even while it is being written or loaded. The machine ignores any outcome."""

    segment: int


class OpenProducer(msgspec.Struct, frozen=True, gc=False):
    """Connect a journalled source: ``ProducerDataRead``, or ``ProducerFailed``, and the connection is closed.

    ``offset_bytes``: what was taken in since the job's start; the keepers have all of it.
    """

    task: TaskId
    incarnation: Incarnation
    offset_bytes: int


class HoldProducer(msgspec.Struct, frozen=True, gc=False):
    """Leave what comes where it is, or read on. What is on its way to the slot still comes."""

    task: TaskId
    incarnation: Incarnation
    is_held: bool


class AcknowledgeProducer(msgspec.Struct, frozen=True, gc=False):
    """Tell the producer, where it can be told, that it may forget all before ``offset_bytes``."""

    task: TaskId
    incarnation: Incarnation
    offset_bytes: int


class CloseProducer(msgspec.Struct, frozen=True, gc=False):
    """Close the connection of an incarnation that has ended, if it has one."""

    task: TaskId
    incarnation: Incarnation


class Warn(msgspec.Struct, frozen=True, gc=False):
    """Tell the operator, by way of the driver."""

    text: str
    fields: dict[str, str | int]


class RefuseMessage(msgspec.Struct, frozen=True, gc=False):
    """Drop the connection by which a malformed message has come. Always the last effect of its step."""

    error: MessageMalformed


class EndSlot(msgspec.Struct, frozen=True, gc=False):
    """End the process."""

    reason: str


Effect = (
    SendMessage
    | StartTask
    | PutCommand
    | StopTask
    | LetGoLive
    | ReportReplicated
    | ConfirmAnnouncement
    | SetOutputBudget
    | WriteSnapshot
    | WriteWholeState
    | ReadSnapshots
    | ReadAhead
    | DropReadAhead
    | OpenSink
    | WriteToSink
    | ForgetSinkOutput
    | AcknowledgeSource
    | CloseSink
    | WriteSegment
    | LoadSegment
    | DeleteSegment
    | OpenProducer
    | HoldProducer
    | AcknowledgeProducer
    | CloseProducer
    | Warn
    | RefuseMessage
    | EndSlot
)
