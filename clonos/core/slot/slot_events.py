"""Events of a slot: messages, reports of its threads, answers of its disk and store, and time (protocol 3 to 7)."""

from __future__ import annotations

import msgspec

from clonos.core.checkpoint.snapshot import RestoredState
from clonos.core.model.ids import ChannelId, Incarnation, SlotId, TaskId, ThreadId
from clonos.core.ports.slot_effects import ReadPurpose
from clonos.core.ports.task_port import TaskEmission
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import TaskFailed

# ------------------------------------------------------------------ peers and time


class MessageReceived(msgspec.Struct, frozen=True, gc=False):
    """Another slot, or the coordinator, has sent a message."""

    sender: SlotId
    message: Message
    payload: bytes | memoryview = b""


class PeerGone(msgspec.Struct, frozen=True, gc=False):
    """The connection to another slot broke."""

    slot: SlotId


class PeerBack(msgspec.Struct, frozen=True, gc=False):
    """The connection to another slot is open again; what was on its way is lost."""

    slot: SlotId


class HeartbeatDue(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""

    now_ns: int  # monotonic


# ------------------------------------------------------------------ tasks


class StepEmitted(msgspec.Struct, frozen=True, gc=False):
    """A task has finished a step, or a part of one."""

    task: TaskId
    thread: ThreadId
    emission: TaskEmission


class LogEndReached(msgspec.Struct, frozen=True, gc=False):
    """A task needs a determinant beyond its log. ``positions``: per output channel the number of its next element.

    ``accepted``: in what its replay has differed, if the job goes on in spite of that.
    """

    task: TaskId
    thread: ThreadId
    positions: dict[ChannelId, int]
    accepted: str = ""


class ElementsNeeded(msgspec.Struct, frozen=True, gc=False):
    """A replaying task waits for all elements below ``next_seq``."""

    task: TaskId
    thread: ThreadId
    channel: ChannelId
    next_seq: int


class ReplicationAwaited(msgspec.Struct, frozen=True, gc=False):
    """A call with an effect waits until the keepers hold the log up to ``end_bytes``."""

    task: TaskId
    thread: ThreadId
    end_bytes: int


class StepAnnounced(msgspec.Struct, frozen=True, gc=False):
    """A task in single-step mode is about to take an element (``channel`` None: a record of its source)."""

    task: TaskId
    thread: ThreadId
    channel: ChannelId | None
    first_seq: int


class JournalWanted(msgspec.Struct, frozen=True, gc=False):
    """A journalled source is live and takes more in."""

    task: TaskId
    thread: ThreadId


class JournalMissed(msgspec.Struct, frozen=True, gc=False):
    """The log of a task reads what its journal does not have."""

    task: TaskId
    thread: ThreadId


class ThreadRaised(msgspec.Struct, frozen=True, gc=False):
    """The thread of a task, or of a shadow, has raised."""

    thread: ThreadId
    failed: TaskFailed
    unfinished: bytes = b""  # log entries of the step in which it raised


class PartFailed(msgspec.Struct, frozen=True, gc=False):
    """Something that an incarnation needs, besides its own thread, has failed for good."""

    failed: TaskFailed


# ------------------------------------------------------------------ producers and sinks


class ProducerDataRead(msgspec.Struct, frozen=True, gc=False):
    """Whole records have come in for a journalled source."""

    task: TaskId
    incarnation: Incarnation
    data: bytes


class ProducerFailed(msgspec.Struct, frozen=True, gc=False):
    """The connection to a producer broke, or could not be made."""

    task: TaskId
    incarnation: Incarnation
    error: str


class SinkOpened(msgspec.Struct, frozen=True, gc=False):
    """An external system has registered a sink's incarnation and has all output below ``next_number``.

    ``knows_output`` is False if it does not say what else it has.
    """

    task: TaskId
    incarnation: Incarnation
    next_number: int
    superseded_next: int | None
    knows_output: bool = True


class SinkWriterFenced(msgspec.Struct, frozen=True, gc=False):
    """An external system refuses a sink's incarnation: it has registered another one, ``by``, of some generation."""

    task: TaskId
    incarnation: Incarnation
    generation: int
    by: Incarnation


class SinkConfirmed(msgspec.Struct, frozen=True, gc=False):
    """An external system has all output below ``next_number``."""

    task: TaskId
    incarnation: Incarnation
    next_number: int


# ------------------------------------------------------------------ store and disk


class SnapshotWritten(msgspec.Struct, frozen=True, gc=False):
    """A snapshot is durable, with ``payload`` as a standby takes it; or the store has given up for now (``error``).

    ``stored_as``: the name with the digest of the object, by which it is read.
    """

    name: str
    payload: bytes
    error: str
    stored_as: str = ""


class WholeStateWritten(msgspec.Struct, frozen=True, gc=False):
    """The whole state of a task is durable as one object. ``stored_as``: as for ``SnapshotWritten``."""

    name: str
    stored_as: str = ""


class SnapshotsRead(msgspec.Struct, frozen=True, gc=False):
    """A chain of snapshots was read from the store, or could not be (None, and an ``error``)."""

    purpose: ReadPurpose
    restored: RestoredState | None
    error: str


class WarmedUp(msgspec.Struct, frozen=True, gc=False):
    """Outcome of ``ReadAhead`` with this number: what could be read is in memory."""

    number: int


class SegmentSpilled(msgspec.Struct, frozen=True, gc=False):
    """A segment of an in-flight log is on disk, or could not be written (``error``)."""

    segment: int
    stored_bytes: int
    error: str


class SegmentLoaded(msgspec.Struct, frozen=True, gc=False):
    """A segment has come from disk, or cannot be read (None, and an ``error``)."""

    segment: int
    payloads: list[bytes] | None
    error: str


Event = (
    MessageReceived
    | PeerGone
    | PeerBack
    | HeartbeatDue
    | StepEmitted
    | LogEndReached
    | ElementsNeeded
    | ReplicationAwaited
    | StepAnnounced
    | JournalWanted
    | JournalMissed
    | ThreadRaised
    | PartFailed
    | ProducerDataRead
    | ProducerFailed
    | SinkOpened
    | SinkWriterFenced
    | SinkConfirmed
    | SnapshotWritten
    | WholeStateWritten
    | SnapshotsRead
    | WarmedUp
    | SegmentSpilled
    | SegmentLoaded
)
