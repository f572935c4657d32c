"""What the coordinator has written down about checkpoints: begun, acknowledged, completed, and what may be deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import is_

from clonos.core.checkpoint.checkpoint_metadata import METADATA_FORMAT, CheckpointMetadata, TaskEntry
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.model.plan import Plan
from clonos.core.wire.control_messages import Snapshotted


@dataclass(frozen=True, slots=True)
class Pending:
    """A checkpoint that was begun. ``acknowledged`` has current incarnations only and is never altered."""

    number: CheckpointId
    begun_ns: int
    then_pause: bool
    acknowledged: dict[TaskId, Snapshotted]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What holds in every state."""

    plan: Plan
    term: int
    generation: int
    incarnations: tuple[Incarnation | None, ...]  # index = task; None between death and the next view
    highest: CheckpointId  # the highest number used
    pending: tuple[Pending, ...]  # ascending; each number is above the completed one's
    finals: dict[TaskId, Snapshotted]  # of current incarnations; never altered
    completed: CheckpointMetadata
    previous: CheckpointMetadata  # deletion keeps what these two need
    garbage: tuple[Snapshotted, ...]  # acknowledgements that count no more; their objects are deleted when it is safe

    @property
    def drain(self) -> Pending | None:
        """The pending checkpoint behind which the sources pause, if any."""
        return next((p for p in self.pending if p.then_pause), None)


def covers(message: Snapshotted, checkpoint: CheckpointId) -> bool:
    """True when the acknowledgement counts for ``checkpoint``: made for it, or final before its barrier was passed.

    The number of a final snapshot is one above that of the last barrier that its task passed.
    """
    return message.checkpoint == checkpoint or (message.final and message.checkpoint < checkpoint)


def with_acknowledgement(pending: Pending, message: Snapshotted) -> Pending:
    """The checkpoint with one acknowledgement more; itself when nothing changes."""
    known = pending.acknowledged.get(message.task)
    if known is not None and (message.final or known == message):  # made for the checkpoint goes before final
        return pending
    return replace(pending, acknowledged={**pending.acknowledged, message.task: message})


def with_next_pending(ledger: Ledger, awake_ns: int, then_pause: bool) -> Ledger:
    """The ledger with one more pending checkpoint, which has the next number."""
    number = CheckpointId(ledger.highest + 1)
    already = {task: message for task, message in ledger.finals.items() if covers(message, number)}
    begun = Pending(number, awake_ns, then_pause, already)
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
    """The ledger without the acknowledgements of tasks whose incarnations are over."""
    incarnations = tuple(None if task in dead else life for task, life in enumerate(ledger.incarnations))
    dropped = [message for task, message in ledger.finals.items() if task in dead]
    finals = {task: message for task, message in ledger.finals.items() if task not in dead}
    pending = []
    for p in ledger.pending:
        dropped += [message for task, message in p.acknowledged.items() if task in dead]
        kept = {task: message for task, message in p.acknowledged.items() if task not in dead}
        pending.append(replace(p, acknowledged=kept))
    garbage = (*ledger.garbage, *dropped)
    return replace(ledger, incarnations=incarnations, finals=finals, pending=tuple(pending), garbage=garbage)


def without_pending(ledger: Ledger, is_over: Callable[[Pending], bool]) -> Ledger:
    """The ledger without the pending checkpoints that are over."""
    dropped = [m for p in ledger.pending if is_over(p) for m in p.acknowledged.values()]
    pending = tuple(p for p in ledger.pending if not is_over(p))
    return replace(ledger, pending=pending, garbage=(*ledger.garbage, *dropped))


def metadata_of(ledger: Ledger, number: CheckpointId, messages: dict[TaskId, Snapshotted]) -> CheckpointMetadata:
    """The metadata of checkpoint ``number``, made of one acknowledgement a task."""
    return CheckpointMetadata(
        format=METADATA_FORMAT,
        job_id=ledger.completed.job_id,
        job_name=ledger.completed.job_name,
        term=ledger.term,
        generation=ledger.generation,
        checkpoint=number,
        highest_checkpoint=ledger.highest,
        plan_fingerprint=ledger.completed.plan_fingerprint,
        tasks=tuple(_entry(ledger.completed, messages[task]) for task in ledger.plan.tasks),
    )


def _entry(completed: CheckpointMetadata, message: Snapshotted) -> TaskEntry:
    # What the last completed checkpoint has committed is not committed again, though the task may not know of it yet;
    # a final state that it has counted prepares nothing more.
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


def collect_garbage(ledger: Ledger, dropped: CheckpointMetadata) -> tuple[tuple[str, ...], Ledger]:
    """Names that may be deleted: of what is dropped now, and of acknowledgements that count no more."""
    held = [m for p in ledger.pending for m in p.acknowledged.values()] + list(ledger.finals.values())
    needed = ledger.completed.objects() | ledger.previous.objects() | {name for m in held for name in m.objects}
    # A later snapshot of a living incarnation may build on what it made for a checkpoint that was given up.
    is_safe = [m.checkpoint <= ledger.completed.checkpoint for m in ledger.garbage]
    old = [m for m, safe in zip(ledger.garbage, is_safe, strict=True) if safe]
    names = (dropped.objects() | {name for m in old for name in m.objects}) - needed
    kept = tuple(m for m, safe in zip(ledger.garbage, is_safe, strict=True) if not safe)
    return tuple(sorted(names)), replace(ledger, garbage=kept)
