"""Every message of the protocol, and the closed union of them that ``wire`` encodes and decodes.

A message is one frozen typed struct. Its bulk payload, if any, travels as a frame of its own behind it, so that
what a channel keeps in its in-flight log is what was sent. ``docs/protocol.md`` tells when each is sent.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from clonos.core.decoding import ObjectName
from clonos.core.deltas import Count
from clonos.core.deltas import Delta as Delta
from clonos.core.deltas import Length as Length
from clonos.core.hot_messages import Follow as Follow
from clonos.core.hot_messages import Following as Following
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId, ViewNumber, view_number

Name = Annotated[str, msgspec.Meta(max_length=1024)]
Text = Annotated[str, msgspec.Meta(max_length=1 << 20)]
Objects = Annotated[tuple[ObjectName, ...], msgspec.Meta(min_length=1)]


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """Sender to receiver of a channel: ``count`` consecutive elements of one kind, payload in the next frame.

    A barrier (its checkpoint in ``checkpoint``) and an end of stream are batches of their own, count = 1.
    """

    channel: ChannelId
    sender: Incarnation
    receiver: Incarnation
    session: Count
    ordinal: Count  # of this message in its session, positions counted too: a message that was lost is noticed
    first_seq: Count
    kind: Count
    count: Count
    checkpoint: CheckpointId
    deltas: tuple[Delta, ...]


class Position(msgspec.Struct, frozen=True, array_like=True, tag="position"):
    """Sender to receiver at the heartbeat: all below ``next_seq`` was sent, all below ``produced_seq`` was produced."""

    channel: ChannelId
    sender: Incarnation
    receiver: Incarnation
    session: Count
    ordinal: Count
    next_seq: Count
    produced_seq: Count
    deltas: tuple[Delta, ...]


class Statement(msgspec.Struct, frozen=True, array_like=True, tag="statement"):
    """Receiver to sender of a channel: opens a session, grants credit, states the claim.

    ``claim``: sequence number up to which it has received or its own log has steps. ``credit_bytes``: granted since
    the session began, a running total. ``lengths``: every replica at the start of a session, later what changed.
    """

    channel: ChannelId
    view: ViewNumber
    receiver: Incarnation
    sender: Incarnation
    session: Count
    next_seq: Count
    claim: Count
    credit_bytes: Count
    lengths: tuple[Length, ...]


class Question(msgspec.Struct, frozen=True, array_like=True, tag="question"):
    """A recovering task to the slot of each holder: asks for its own log, and for the replicas that it should hold.

    ``holder``: the task asked, or for a keeper the task that it keeps for, with ``is_keeper``. Answered by ``Answer``,
    repeated at the heartbeat until then.
    """

    task: TaskId
    incarnation: Incarnation
    view: ViewNumber
    holder: TaskId
    is_keeper: bool


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """Holder to recovering task: what it has of the logs asked for, each from where it begins."""

    task: TaskId
    incarnation: Incarnation
    view: ViewNumber
    holder: TaskId
    is_keeper: bool
    slot: SlotId
    replicas: tuple[Delta, ...]


class Keep(msgspec.Struct, frozen=True, array_like=True, tag="keep"):
    """A task with effects outside to its keeper: deltas of its own log and of every log that it holds.

    ``is_whole``: they are all that the keeper lacks of all that the task holds. ``journal_start_bytes``: what lies
    before it in the task's journal is in completed checkpoints. ``ordinal``: number of the message on its way to this
    keeper; behind one that was lost only a whole one counts, or an entry would be held without its causes.
    """

    task: TaskId
    incarnation: Incarnation
    is_whole: bool
    deltas: tuple[Delta, ...]
    journal_start_bytes: Count = 0
    ordinal: Count = 0


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="kept"):
    """Keeper to its task: how far it holds each log. Sent on each ``Keep`` and at the heartbeat.

    ``is_ready``: it has had a whole ``Keep`` of this incarnation. Otherwise ``lengths`` is all that it has: whatever
    else was acknowledged is held no more.
    """

    task: TaskId
    incarnation: Incarnation
    slot: SlotId
    is_ready: bool
    lengths: tuple[Length, ...]


class StandbyUpdate(msgspec.Struct, frozen=True, array_like=True, tag="standby_update"):
    """Task's slot to its standbys: the encoded snapshot is the payload; ``previous`` is the one that it builds on."""

    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    previous: CheckpointId  # -1: the snapshot is full
    objects: Objects  # the chain to restore this checkpoint from, oldest (full) first


class Register(msgspec.Struct, frozen=True, array_like=True, tag="register"):
    """A slot to the coordinator at birth, repeated until a view or ``Release`` comes."""

    slot: SlotId
    domain: Name  # what dies together: the executor
    host: Name
    data_address: Name
    control_address: Name
    public_key: bytes
    token: Name
    pid: Count
    versions: tuple[tuple[Name, Name], ...]  # python, clonos, wire, pyarrow, hash_seed


BACKLOG_ELEMENTS = "backlog_elements"
BACKLOG_BYTES = "backlog_bytes"


class TaskStatus(msgspec.Struct, frozen=True, array_like=True):
    """A hosted task in a ``SlotStatus``. ``counters``: totals of the incarnation, or what is so now.

    ``backlog_elements``: produced for the task and not processed yet, 0 for a source. A source that keeps a journal has
    ``backlog_bytes`` instead: taken in and not read yet. Neither is there while it is not known.
    """

    task: TaskId
    incarnation: Incarnation
    phase: Name  # recovering, connecting, replaying, stalled, live, final, lost
    counters: tuple[tuple[Name, int], ...]


class SlotStatus(msgspec.Struct, frozen=True, array_like=True, tag="slot_status"):
    """A slot to the coordinator at each heartbeat: what it has installed, so that only what is missing is repeated."""

    slot: SlotId
    view: ViewNumber
    completed: CheckpointId
    tasks: tuple[TaskStatus, ...]
    standbys: tuple[tuple[TaskId, CheckpointId], ...]  # mirrors and the checkpoint that each can restore
    keepers: tuple[tuple[TaskId, Incarnation], ...]  # keepers that hold all that their task (this incarnation) holds
    is_over_soft_limit: bool = False  # one of its budgets: a checkpoint is due at once, sources of all slots pause
    shadows: tuple[TaskId, ...] = ()  # whose standby follows hot


class Snapshotted(msgspec.Struct, frozen=True, array_like=True, tag="snapshotted"):
    """Task to coordinator: its snapshot for a checkpoint is durable. Repeated until the checkpoint is over.

    ``objects``: the chain to restore from, oldest (full) first. ``log_offset_bytes``: end of its log at the barrier.
    ``prepared``: (checkpoint, part) of a transactional sink since the last completed checkpoint, oldest first.
    ``final``: the task is at the end of stream; counts for every checkpoint whose barrier it has not passed.
    """

    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    objects: Objects
    log_offset_bytes: Count
    prepared: tuple[tuple[CheckpointId, bytes], ...]
    final: bool


class LogLost(msgspec.Struct, frozen=True, array_like=True, tag="log_lost"):
    """Task to coordinator: its log is lost (the lost-log rule), so the generation must end. Repeated until it does."""

    task: TaskId
    incarnation: Incarnation
    channel: ChannelId
    position: Count
    claim: Count


class TaskFailed(msgspec.Struct, frozen=True, array_like=True, tag="task_failed"):
    """Slot to coordinator: user code raised. ``channel`` is -1 for a source or a timer. Repeated until a view ends it.

    The step covered elements ``first_seq .. first_seq + count - 1``; count 1 pins the record.
    """

    task: TaskId
    incarnation: Incarnation
    channel: int
    first_seq: int
    count: int
    step: Text
    record: Text
    error: Text
    traceback: Text
    is_fatal: bool  # no second try helps: a divergence, a value that no codec carries
    is_environment: bool = False  # a disk, a network, a service or a file is at fault, not the job
    is_unrestorable: bool = False  # what the store has of its state is damaged or gone; a standby may hold it


class Approaching(msgspec.Struct, frozen=True, array_like=True, tag="approaching"):
    """Slot to coordinator: a cautious task is about to take this element, of which its process may die.

    ``channel`` is -1 for a source. The task waits for ``Noted``; repeated until it comes.
    """

    task: TaskId
    incarnation: Incarnation
    channel: int
    first_seq: Count


class Accusation(msgspec.Struct, frozen=True, array_like=True, tag="accusation"):
    """Slot to coordinator: a peer's connection broke (``is_gone``) or it has been silent beyond the lease."""

    slot: SlotId
    accused: SlotId
    view: ViewNumber
    is_gone: bool


class Warned(msgspec.Struct, frozen=True, array_like=True, tag="warned"):
    """Slot to the coordinator's process: a warning for the driver's log, with its numbers. Sent once; may be lost."""

    slot: SlotId
    text: Text
    fields: tuple[tuple[Name, Text], ...]


class Logged(msgspec.Struct, frozen=True, array_like=True, tag="logged"):
    """Slot to the coordinator's process: a line for the driver's log, of the runtime or of user code. Sent once; may be
    lost."""

    slot: SlotId
    level: Count  # of the standard library's logging
    logger: Name
    text: Text


class SlotAddress(msgspec.Struct, frozen=True, array_like=True):
    """A slot in a view."""

    slot: SlotId
    domain: Name
    data_address: Name
    control_address: Name
    public_key: bytes


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """A task in a view: who lives where, restored from what.

    ``restore``, ``objects``, ``log_offset_bytes`` belong to the incarnation and do not change during its life.
    ``is_fresh``: the incarnation began with its generation: it asks nobody, its log is empty.
    ``is_cautious``: the task goes live with steps of one element and announces each (protocol 6).
    ``keepers_since``: for each keeper, the first of the views that have named it without a gap: a keeper that did not
    hear of a gap begins anew.
    """

    task: TaskId
    incarnation: Incarnation
    slot: SlotId
    restore: CheckpointId
    objects: tuple[ObjectName, ...]
    log_offset_bytes: Count
    is_fresh: bool
    is_cautious: bool
    standbys: tuple[SlotId, ...]
    keepers: tuple[SlotId, ...]
    keepers_since: tuple[ViewNumber, ...] = ()

    def is_keeper_since(self, slot: SlotId) -> ViewNumber:
        """See ``keepers_since``; the first view there is where it is not known."""
        return dict(zip(self.keepers, self.keepers_since, strict=False)).get(slot, ViewNumber(0))

    @property
    def is_first(self) -> bool:
        """The job starts for the first time: nothing was ever before."""
        return int(self.incarnation) == int(view_number(1, 1))


class View(msgspec.Struct, frozen=True, array_like=True, tag="view"):
    """Coordinator to every slot: the full, self-contained numbered statement of what is. Repeated until installed."""

    number: ViewNumber
    generation: Count
    job_id: Name
    slots: tuple[SlotAddress, ...]
    placements: tuple[Placement, ...]  # index = task


class Trigger(msgspec.Struct, frozen=True, array_like=True, tag="trigger"):
    """Coordinator to a source: put a barrier into the stream. Repeated until ``Snapshotted``.

    ``then_pause``: read nothing behind it (the job is being stopped).
    """

    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    then_pause: bool


class Noted(msgspec.Struct, frozen=True, array_like=True, tag="noted"):
    """Coordinator to a slot: it knows what ``Approaching`` says. A repeated question gets the same answer."""

    task: TaskId
    incarnation: Incarnation
    channel: int
    first_seq: Count


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    """Coordinator to the slots of sources, while some slot is above a soft limit: read nothing new; barriers pass.

    Repeated at the heartbeat; it wears off by itself.
    """

    slot: SlotId  # the one that is above its limit


class Completed(msgspec.Struct, frozen=True, array_like=True, tag="completed"):
    """Coordinator to every slot: a checkpoint is durable. Per task: incarnation, log offset to truncate to.

    Repeated to a slot until its status says so.
    """

    checkpoint: CheckpointId
    generation: Count
    tasks: tuple[tuple[TaskId, Incarnation, Count], ...]


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """Coordinator to a slot: end yourself. ``reason`` is for the log; empty when the job is simply done."""

    slot: SlotId
    reason: Text


Message = (
    Batch
    | Position
    | Statement
    | Question
    | Answer
    | Keep
    | Kept
    | StandbyUpdate
    | Follow
    | Following
    | Register
    | SlotStatus
    | Snapshotted
    | LogLost
    | TaskFailed
    | Approaching
    | Accusation
    | Warned
    | Logged
    | View
    | Trigger
    | Noted
    | Hold
    | Completed
    | Release
)
