"""Ledger of checkpoints: begun, acknowledged, completed, and the objects that may be deleted (protocol 5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import is_

from clonos.core.checkpoint.checkpoint_events import CheckpointDue
from clonos.core.checkpoint.checkpoint_metadata import METADATA_FORMAT, CheckpointMetadata, TaskEntry
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.model.plan import Plan
from clonos.core.wire.control_messages import Snapshotted

RETAINED_MIN = 2
"""Completed checkpoints whose objects are kept at least: a standby may still be reading the one before the last."""

PENDING_MAX = 8
"""Maximum number of pending checkpoints. No further one begins until one completes or times out."""

TIMES_REMEMBERED = 100
"""Checkpoints whose times are remembered for a status. Older ones are dropped."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Checkpoint that has begun.

    ``acknowledged`` has acknowledgements of current incarnations only and is never mutated. ``widths``: those that
    steps have after it, if it is a cut; ``is_placed_anew``: all tasks are spread over the slots after it.
    """

    number: CheckpointId
    begun_ns: int
    then_pause: bool
    acknowledged: dict[TaskId, Snapshotted]
    widths: tuple[tuple[str, int], ...] = ()
    is_placed_anew: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Request of a checkpoint whose objects are kept until the request is released, for a savepoint.

    It gets the first checkpoint that completes with a number of at least ``number``; ``metadata`` is None before.
    """

    request: int
    number: CheckpointId
    metadata: CheckpointMetadata | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Ledger that every state of the checkpoint machine carries."""

    plan: Plan
    term: int
    generation: int
    incarnations: tuple[Incarnation | None, ...]  # index = task; None between its death and the next view
    highest: CheckpointId  # highest number used
    pending: tuple[Pending, ...]  # ascending; each number is above that of the completed checkpoint
    finals: dict[TaskId, Snapshotted]  # final acknowledgements of current incarnations; never mutated
    completed: CheckpointMetadata
    retained: tuple[CheckpointMetadata, ...]  # earlier ones, ascending: deletion spares their objects too
    garbage: tuple[Snapshotted, ...]  # void acknowledgements, whose objects are deleted when that is safe
    retained_max: int = RETAINED_MIN  # completed checkpoints that are kept, with the last one
    held: tuple[Held, ...] = ()  # deletion spares the objects of these, too
    failures_max: int | None = None  # failed checkpoints in succession that the job survives; None: any number
    failures: int = 0  # since a checkpoint last completed

    @property
    def previous(self) -> CheckpointMetadata:
        """Completed checkpoint before the last one; the last one if there is none."""
        return self.retained[-1] if self.retained else self.completed

    @property
    def drain(self) -> Pending | None:
        """Pending checkpoint after which the sources pause, if there is one."""
        return next((p for p in self.pending if p.then_pause), None)


def covers(message: Snapshotted, checkpoint: CheckpointId) -> bool:
    """Returns whether an acknowledgement counts for ``checkpoint``: made for it, or final before its barrier passed.

    The number of a final snapshot is one above that of the last barrier that its task passed.
    """
    return message.checkpoint == checkpoint or (message.final and message.checkpoint < checkpoint)


def with_acknowledgement(pending: Pending, message: Snapshotted) -> Pending:
    """Returns the checkpoint with one more acknowledgement, or the same object if nothing changes."""
    known = pending.acknowledged.get(message.task)
    if known is not None and (message.final or known == message):  # one made for the checkpoint precedes a final one
        return pending
    return replace(pending, acknowledged={**pending.acknowledged, message.task: message})


def with_next_pending(ledger: Ledger, due: CheckpointDue) -> Ledger:
    """The ledger with one more pending checkpoint, which has the next number; itself if no more may be pending."""
    if len(ledger.pending) >= PENDING_MAX or ledger.drain is not None:
        return ledger
    number = CheckpointId(ledger.highest + 1)
    already = {task: message for task, message in ledger.finals.items() if covers(message, number)}
    begun = Pending(number, due.awake_ns, due.then_pause, already, due.widths, due.is_placed_anew)
    return replace(ledger, highest=number, pending=(*ledger.pending, begun))


def with_counted(ledger: Ledger, message: Snapshotted) -> Ledger:
    """The ledger with one more acknowledgement; itself when nothing changes."""
    task, finals = message.task, ledger.finals
    if message.final and finals.get(task) != message:
        finals = {**finals, task: message}
    pending = tuple([with_acknowledgement(p, message) if covers(message, p.number) else p for p in ledger.pending])
    # A new coordinator learns from it which numbers its predecessor has used. A final state's number was not given.
    highest = ledger.highest if message.final else max(ledger.highest, message.checkpoint)
    is_known = finals is ledger.finals and all(map(is_, pending, ledger.pending))
    if is_known and highest == ledger.highest:  # repeated at the heartbeat
        return ledger
    return replace(ledger, finals=finals, pending=pending, highest=highest)


def without_tasks(ledger: Ledger, dead: frozenset[TaskId]) -> Ledger:
    """Returns the ledger without the acknowledgements of tasks whose incarnations are over."""
    incarnations = tuple(None if task in dead else life for task, life in enumerate(ledger.incarnations))
    dropped = [message for task, message in ledger.finals.items() if task in dead]
    finals = {task: message for task, message in ledger.finals.items() if task not in dead}
    pending = []
    for p in ledger.pending:
        dropped += [message for task, message in p.acknowledged.items() if task in dead]
        remaining = {task: message for task, message in p.acknowledged.items() if task not in dead}
        pending.append(replace(p, acknowledged=remaining))
    garbage = (*ledger.garbage, *dropped)
    return replace(ledger, incarnations=incarnations, finals=finals, pending=tuple(pending), garbage=garbage)


def without_pending(ledger: Ledger, is_over: Callable[[Pending], bool]) -> Ledger:
    """Returns the ledger without the pending checkpoints for which ``is_over`` is true."""
    dropped = [m for p in ledger.pending if is_over(p) for m in p.acknowledged.values()]
    pending = tuple(p for p in ledger.pending if not is_over(p))
    return replace(ledger, pending=pending, garbage=(*ledger.garbage, *dropped))


def without_cut(ledger: Ledger) -> Ledger:
    """Returns the ledger in which no pending checkpoint is a cut."""
    return replace(ledger, pending=tuple(replace(p, widths=()) for p in ledger.pending))


def metadata_of(
    ledger: Ledger,
    number: CheckpointId,
    messages: dict[TaskId, Snapshotted],
    widths: tuple[tuple[str, int], ...] = (),
    *,
    is_placed_anew: bool = False,
) -> CheckpointMetadata:
    """Returns the metadata of checkpoint ``number``, from one acknowledgement per task; with ``widths`` it is a cut."""
    is_cut = bool(widths)
    return CheckpointMetadata(
        format=METADATA_FORMAT,
        job_id=ledger.completed.job_id,
        job_name=ledger.completed.job_name,
        term=ledger.term,
        generation=ledger.generation,
        checkpoint=number,
        highest_checkpoint=ledger.highest,
        tasks=tuple(_entry(ledger.completed, messages[task]) for task in ledger.plan.tasks),
        plan=ledger.completed.plan,
        widths=widths if is_cut else ledger.completed.widths,
        is_cut=is_cut,
        is_placed_anew=is_cut and is_placed_anew,
        retired=ledger.completed.retired,
    )


def _entry(completed: CheckpointMetadata, message: Snapshotted) -> TaskEntry:
    # Leave out what the last completed checkpoint committed, because the task may not know of it yet. A final state
    # that it counted prepares nothing more.
    is_new = not completed.tasks[message.task].final
    prepared = dict.fromkeys(p for p in message.prepared if is_new and p[0] > completed.checkpoint)
    return TaskEntry(
        task=message.task,
        incarnation=message.incarnation,
        snapshot=message.checkpoint,
        objects=message.objects,
        log_offset_bytes=message.log_offset_bytes,
        final=message.final,
        prepared=tuple(prepared),
    )


def with_completed(ledger: Ledger, metadata: CheckpointMetadata) -> tuple[tuple[CheckpointMetadata, ...], Ledger]:
    """Returns the checkpoints that are retained no longer, and the ledger in which ``metadata`` is the last one."""
    earlier = (*ledger.retained, ledger.completed)
    dropped_count = max(0, len(earlier) - (max(ledger.retained_max, RETAINED_MIN) - 1))
    held = tuple(
        replace(each, metadata=metadata) if each.metadata is None and each.number <= metadata.checkpoint else each
        for each in ledger.held
    )
    ledger = without_pending(ledger, lambda p: p.number <= metadata.checkpoint)
    ledger = replace(ledger, completed=metadata, retained=earlier[dropped_count:], held=held, failures=0)
    return earlier[:dropped_count], ledger


def without_held(ledger: Ledger, request: int) -> tuple[tuple[str, ...], Ledger]:
    """Returns the objects that only this request has kept, and the ledger without it."""
    over = [each for each in ledger.held if each.request == request]
    ledger = replace(ledger, held=tuple(each for each in ledger.held if each.request != request))
    if not (dropped := tuple(each.metadata for each in over if each.metadata is not None)):
        return (), ledger
    return collect_garbage(ledger, dropped)


def collect_garbage(ledger: Ledger, dropped: tuple[CheckpointMetadata, ...]) -> tuple[tuple[str, ...], Ledger]:
    """Returns the objects of ``dropped`` and of void acknowledgements that may be deleted, and the ledger without
    them.
    """
    held = [m for p in ledger.pending for m in p.acknowledged.values()] + list(ledger.finals.values())
    spared = (ledger.completed, *ledger.retained, *(each.metadata for each in ledger.held if each.metadata is not None))
    needed = {name for metadata in spared for name in metadata.objects()} | {name for m in held for name in m.objects}
    # A later snapshot of a living incarnation may build on what it stored for an abandoned checkpoint.
    is_safe = [m.checkpoint <= ledger.completed.checkpoint for m in ledger.garbage]
    old = [m for m, safe in zip(ledger.garbage, is_safe, strict=True) if safe]
    over = {name for metadata in dropped for name in metadata.objects()}
    names = (over | {name for m in old for name in m.objects}) - needed
    remaining = tuple(m for m, safe in zip(ledger.garbage, is_safe, strict=True) if not safe)
    return tuple(sorted(names)), replace(ledger, garbage=remaining)


# ------------------------------------------------------------------ times, for a status


@dataclass(frozen=True, slots=True)
class CheckpointTimes:
    """Times of a checkpoint (wall clock, ns). ``completed_ns``: None before, and if it was abandoned."""

    number: CheckpointId
    begun_ns: int
    completed_ns: int | None = None
    size_bytes: int | None = None  # of what its tasks have stored for it; None: unknown


class CheckpointHistory:
    """Times of the last ``TIMES_REMEMBERED`` checkpoints, in the order in which they began."""

    def __init__(self) -> None:
        self._times: deque[CheckpointTimes] = deque(maxlen=TIMES_REMEMBERED)
        self._sizes: dict[CheckpointId, dict[TaskId, int]] = {}  # of those that are remembered

    def begin(self, number: CheckpointId, now_ns: int) -> None:
        """Notes that a checkpoint has begun."""
        self._times.append(CheckpointTimes(number, now_ns))
        self._sizes = {times.number: self._sizes.get(times.number, {}) for times in self._times}

    def store(self, message: Snapshotted) -> None:
        """Notes the size of what a task has stored for a checkpoint; of several incarnations the last one counts."""
        if message.size_bytes and (sizes := self._sizes.get(message.checkpoint)) is not None:
            sizes[message.task] = message.size_bytes

    def complete(self, number: CheckpointId, now_ns: int) -> None:
        """Notes that a checkpoint is complete. One that an earlier coordinator began is not remembered."""
        for place, times in enumerate(self._times):
            if times.number == number and times.completed_ns is None:
                self._times[place] = replace(times, completed_ns=now_ns)

    @property
    def times(self) -> tuple[CheckpointTimes, ...]:
        """Times of the checkpoints, oldest first."""
        return tuple(
            replace(times, size_bytes=sum(sizes.values())) if (sizes := self._sizes.get(times.number)) else times
            for times in self._times
        )
