"""Messages between the coordinator and slots (protocol 5, 8 and 9)."""

from __future__ import annotations

from typing import Final

import msgspec

from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId, ViewNumber, view_number
from clonos.core.model.metric_series import MetricFamily
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.model.watermark import Instant
from clonos.core.wire.decoding import ObjectName
from clonos.core.wire.log_delta import Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.message_fields import Name, Objects, Text
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


class Register(msgspec.Struct, frozen=True, array_like=True, tag="register"):
    """Slot to coordinator when the slot starts. Repeated until a view or ``Release`` arrives."""

    slot: SlotId
    domain: Name  # failure domain, for example a Spark executor
    host: Name
    data_address: Name
    control_address: Name
    public_key: bytes
    token: Name
    pid: Count
    versions: tuple[tuple[Name, Name], ...]  # python, clonos, wire, pyarrow, hash_seed


class HotKey(msgspec.Struct, frozen=True, array_like=True):
    """Key of which most of the latest records of a task are, as text, and its share of them."""

    key: Name
    percent: Count


class TaskStatus(msgspec.Struct, frozen=True, array_like=True):
    """Status of a hosted task in a ``SlotStatus``. Each counter occurs at most once."""

    task: TaskId
    incarnation: Incarnation
    phase: TaskPhase
    counters: tuple[tuple[TaskCounter, int], ...]
    hot_key: HotKey | None = None  # None if no key stands out
    metrics: tuple[MetricFamily, ...] = ()  # of user code, and late records
    latencies: tuple[MetricFamily, ...] = ()  # histograms since the incarnation began


class SlotStatus(msgspec.Struct, frozen=True, array_like=True, tag="slot_status"):
    """Slot to coordinator at each heartbeat: what the slot has installed, so that only what it lacks is repeated."""

    slot: SlotId
    view: ViewNumber
    completed: CheckpointId
    tasks: tuple[TaskStatus, ...]
    standbys: tuple[tuple[TaskId, CheckpointId], ...]  # tasks with a mirror here, and the checkpoint that it reaches
    keepers: tuple[tuple[TaskId, Incarnation], ...]  # incarnations all of whose logs a keeper here holds
    is_over_soft_limit: bool = False  # of any budget: a checkpoint is due at once, and the sources of all slots pause
    shadows: tuple[TaskId, ...] = ()  # tasks with a running shadow here
    cpu_ms: Count = 0  # processor time of the process since it began
    resident_bytes: Count = 0  # memory of the process; 0 if unknown
    warmed: Count = 0  # number of the last ``WarmUp`` that the slot has done; 0 if there is none


class Snapshotted(msgspec.Struct, frozen=True, array_like=True, tag="snapshotted"):
    """Task to coordinator: its snapshot for a checkpoint is durable.

    Repeated until the checkpoint has completed or expired.

    ``objects`` is the chain to restore from, oldest (full) first. ``log_offset_bytes`` is the end of its log at the
    barrier. ``prepared`` lists (checkpoint, part) of a transactional sink since the last completed checkpoint, oldest
    first. ``final``: the task is at the end of its stream, and this counts for every checkpoint whose barrier it has
    not passed.
    """

    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    objects: Objects
    log_offset_bytes: Count
    prepared: tuple[tuple[CheckpointId, bytes], ...]
    final: bool
    size_bytes: Count = 0  # of the last object; 0 if unknown


class Suspicion(msgspec.Struct, frozen=True, array_like=True, tag="suspicion"):
    """Slot to coordinator: the connection to a peer broke (``is_gone``), or the peer was silent beyond the lease."""

    slot: SlotId
    suspect: SlotId
    view: ViewNumber
    is_gone: bool


class Warned(msgspec.Struct, frozen=True, array_like=True, tag="warned"):
    """Slot to the coordinator's process: a warning for the driver's log, with its fields.

    Sent once, so it may be lost.
    """

    slot: SlotId
    text: Text
    fields: tuple[tuple[Name, Text], ...]


PRINTED: Final = "print"
"""Name in place of a logger's for a line that user code printed."""


ONCE_PER_STEP: Final = "clonos.job.step."
"""Beginning of the name of a logger, before the name of a step, whose first line of all its tasks is logged."""

AT_WORK: Final = "has been at work on the same input for"
"""Words of the warning about a step that hangs, by which the driver recognises it."""


class Logged(msgspec.Struct, frozen=True, array_like=True, tag="logged"):
    """Slot to the coordinator's process: a line that the runtime or user code logged or printed.

    Sent once, so it may be lost.
    """

    slot: SlotId
    level: Count  # as in the standard library's logging
    logger: Name
    text: Text
    task: Name = ""  # whose code wrote the line, if any
    incarnation: Name = ""  # of that task, as ``view_name`` gives it
    epoch: Count | None = None  # of that task, if its code runs in a step


class Peek(msgspec.Struct, frozen=True, array_like=True, tag="peek"):
    """Coordinator's process to the slot of a task: send the next rows that a step of it emits.

    Answered by ``Peeked``, and repeated while it is not answered.
    """

    task: TaskId
    step: Name
    rows_max: Count
    number: Count  # of the request


class Peeked(msgspec.Struct, frozen=True, array_like=True, tag="peeked"):
    """Slot to the coordinator's process: rows that a step has emitted, in the encoding of batches.

    Sent once for each ``Peek``.
    """

    task: TaskId
    number: Count
    rows: bytes


class SlotAddress(msgspec.Struct, frozen=True, array_like=True):
    """Addresses and public key of a slot in a view."""

    slot: SlotId
    domain: Name
    data_address: Name
    control_address: Name
    public_key: bytes


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """Placement of a task in a view: its incarnation, its slot, its standbys and keepers, and what it is restored from.

    ``restore``, ``objects`` and ``log_offset_bytes`` belong to the incarnation and do not change during its life.
    ``is_fresh``: the incarnation began with its generation, so its log is empty and it requests no logs.
    ``is_single_step``: the task runs in single-step mode, with one element per step, and announces each (protocol 6).
    ``is_suspended``: the task makes no step any more, because it moves to another slot. ``confirmed_seq``: the number
    below which its external system had confirmed all output when it moved here, 0 if it did not.
    ``keepers_since`` has, for each keeper, the first of the consecutive views that name it. A keeper that missed a view
    in between begins anew.
    """

    task: TaskId
    incarnation: Incarnation
    slot: SlotId | None  # None: the task waits for a slot
    restore: CheckpointId
    objects: tuple[ObjectName, ...]
    log_offset_bytes: Count
    is_fresh: bool
    is_single_step: bool
    standbys: tuple[SlotId, ...]
    keepers: tuple[SlotId, ...]
    keepers_since: tuple[ViewNumber, ...] = ()
    is_suspended: bool = False
    confirmed_seq: Count = 0

    def is_keeper_since(self, slot: SlotId) -> ViewNumber:
        """Returns the first of the consecutive views that name the keeper, 0 if it is not known."""
        return dict(zip(self.keepers, self.keepers_since, strict=False)).get(slot, ViewNumber(0))

    @property
    def hosting_slot(self) -> SlotId:
        """Slot of a task that has one."""
        assert self.slot is not None, self.task
        return self.slot

    @property
    def is_first(self) -> bool:
        """Whether this is the first incarnation of the job, so that no earlier one can have left anything."""
        return int(self.incarnation) == int(view_number(1, 1))


class View(msgspec.Struct, frozen=True, array_like=True, tag="view"):
    """Coordinator to every slot: the complete, numbered placement of the job.

    Repeated until the slot has installed it. ``widths``: the number of tasks of each vertex, by its name; those of the
    job's plan if there are none. ``cut``: the checkpoint at whose barrier every task is suspended, because
    the widths of steps change there; 0 if there is none. ``begins_at_cut``: the generation began there, so that no
    output of an earlier one has left after what it has restored (protocol 6.12).
    """

    number: ViewNumber
    generation: Count
    job_id: Name
    slots: tuple[SlotAddress, ...]
    placements: tuple[Placement, ...]  # index = task
    widths: tuple[tuple[Name, Count], ...] = ()
    cut: CheckpointId = CheckpointId(0)
    begins_at_cut: bool = False


class WarmSource(msgspec.Struct, frozen=True, array_like=True):
    """State that a task of the next plan takes from task ``index`` of the ``width`` tasks of a vertex, which has this
    chain of objects, oldest first. Without a vertex it is the chain with which the task goes on.
    """

    vertex: Name
    index: Count
    width: Count
    objects: Objects


class TaskWarmUp(msgspec.Struct, frozen=True, array_like=True):
    """State of a task of the next plan, by its name, as of a completed checkpoint."""

    task: Name
    sources: tuple[WarmSource, ...]


class WarmUp(msgspec.Struct, frozen=True, array_like=True, tag="warm_up"):
    """Coordinator to a slot: read the state of these tasks while the present ones run, because tasks with these widths
    will begin here (protocol 6.12).

    Answered by ``warmed`` in ``SlotStatus``; repeated until then, and without tasks at the heartbeat after it. What was
    read is dropped when it is not repeated, and when a generation begins. ``number``: ascends with what is asked for.
    """

    number: Count
    generation: Count
    widths: tuple[tuple[Name, Count], ...]
    tasks: tuple[TaskWarmUp, ...]


class TriggerCheckpoint(msgspec.Struct, frozen=True, array_like=True, tag="trigger_checkpoint"):
    """Coordinator to a source: put a barrier into the stream. Repeated until ``Snapshotted``.

    ``then_pause``: read nothing after it, because the job is being stopped. ``then_end``: end the input after it,
    because a step after the source has reached its limit.
    """

    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    then_pause: bool
    then_end: bool = False


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    """Coordinator to the slots of sources while a slot is above a soft limit: read no new input; barriers still pass.

    Repeated at the heartbeat. A hold expires by itself when it is not repeated.
    """

    slot: SlotId  # the slot above its limit


class DriftLimit(msgspec.Struct, frozen=True, array_like=True, tag="drift_limit"):
    """Coordinator to the slots of sources that make watermarks: a source above ``watermark_ns_max`` reads nothing.

    The limit of the source ``slowest`` is ``slowest_ns_max``. Repeated at the heartbeat; it expires by itself when it
    is not repeated.
    """

    watermark_ns_max: Instant
    slowest: TaskId
    slowest_ns_max: Instant


class Completed(msgspec.Struct, frozen=True, array_like=True, tag="completed"):
    """Coordinator to every slot: a checkpoint is durable.

    Names each task's incarnation and the log offset to truncate to.

    Repeated to a slot until its status confirms it.
    """

    checkpoint: CheckpointId
    generation: Count
    tasks: tuple[tuple[TaskId, Incarnation, Count], ...]


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """Coordinator to a slot: end the process. ``reason`` is for the log and empty when the job has finished."""

    slot: SlotId
    reason: Text
