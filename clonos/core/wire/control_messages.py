"""Messages between the coordinator and slots (protocol 5, 8 and 9)."""

from __future__ import annotations

import msgspec

from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId, ViewNumber, view_number
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.decoding import ObjectName
from clonos.core.wire.fields import Name, Objects, Text
from clonos.core.wire.log_delta import Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


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


class TaskStatus(msgspec.Struct, frozen=True, array_like=True):
    """A hosted task in a ``SlotStatus``. ``counters``: each at most once; ``TaskCounter`` says what each means."""

    task: TaskId
    incarnation: Incarnation
    phase: TaskPhase
    counters: tuple[tuple[TaskCounter, int], ...]


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


class Suspicion(msgspec.Struct, frozen=True, array_like=True, tag="suspicion"):
    """Slot to coordinator: a peer's connection broke (``is_gone``) or it has been silent beyond the lease."""

    slot: SlotId
    suspect: SlotId
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
    slot: SlotId | None  # None: it waits for one
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
    def hosting_slot(self) -> SlotId:
        """The slot of a task that has one."""
        assert self.slot is not None, self.task
        return self.slot

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
