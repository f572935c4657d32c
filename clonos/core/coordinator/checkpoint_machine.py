"""Checkpoint machine, from trigger to committed output: one table, ``(State, Event) -> handler`` (protocol 5).

    Collecting ──all acknowledged──▶ Committing ──durable──▶ Publishing ──output committed──▶ Collecting
                                        │                        (skipped if no sink prepared output)
                                        └──number taken──▶ Deposed

Several checkpoints may be pending in every state; a later one replaces the earlier ones when it completes. Numbers are
never reused. In *Committing* a failure can no longer undo the checkpoint, so views wait. In *Publishing* views do not
wait, but no other metadata is written, so that a resume has the output of at most one checkpoint to commit again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import is_
from typing import Any

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, parts_by_vertex
from clonos.core.coordinator.checkpoint_ledger import (
    Ledger,
    Pending,
    collect_garbage,
    covers,
    metadata_of,
    with_acknowledgement,
    without_pending,
)
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    CommitOutput,
    DeleteObjects,
    JobFailed,
    StoodDown,
    WriteMetadata,
)
from clonos.core.coordinator.coordinator_events import OutputCommitFailed, OutputCommitted
from clonos.core.model.errors import Blame, InternalError
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.wire.control_messages import Snapshotted

PENDING_MAX = 8
"""Maximum number of pending checkpoints. No further one begins until one completes or times out."""

COMMIT_ATTEMPTS_MAX = 10
"""Attempts to write metadata, and to commit output, before the job fails. The pauses between them double."""

RETRY_FIRST_NS = 100_000_000
"""Pause before the second attempt."""

# ------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class Collecting:
    """State in which no metadata is being written."""

    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Committing:
    """State in which every task has acknowledged and the metadata is being written, with unknown outcome."""

    ledger: Ledger
    metadata: CheckpointMetadata
    attempts: int
    retry_ns: int | None  # when to write again; None while an outcome is awaited
    asked_ns: int | None  # first tick after the write was requested; None before it


@dataclass(frozen=True, slots=True)
class Publishing:
    """State in which ``ledger.completed`` is durable and its prepared output is being committed."""

    ledger: Ledger
    attempts: int
    retry_ns: int | None  # when to commit again; None while an outcome is awaited


@dataclass(frozen=True, slots=True)
class Deposed:
    """State after another coordinator took over, or the job failed. Nothing changes any more."""

    ledger: Ledger


State = Collecting | Committing | Publishing | Deposed

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class CheckpointDue:
    """Event: a checkpoint begins now."""

    awake_ns: int
    then_pause: bool


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Event: a ``Snapshotted`` message arrived. The handler checks its incarnation."""

    message: Snapshotted


@dataclass(frozen=True, slots=True)
class Died:
    """Event: the incarnations of these tasks have ended."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    """Event: a new view with these incarnations. A new generation abandons all pending checkpoints."""

    generation: int
    incarnations: tuple[Incarnation | None, ...]


@dataclass(frozen=True, slots=True)
class Durable:
    """Event: the metadata is in the chain."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """Event: another coordinator has taken the number in the chain."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """Event: it is unknown whether the metadata is in the chain."""

    checkpoint: CheckpointId
    text: str
    awake_ns: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """Event: the output is not committed yet."""

    failed: OutputCommitFailed
    awake_ns: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Event: time has passed. Pending checkpoints older than the timeout are abandoned."""

    awake_ns: int
    timeout_ns: int


Event = (
    CheckpointDue
    | Acknowledged
    | Died
    | Renewed
    | Durable
    | SnapshotTaken
    | WriteFailed
    | OutputCommitted
    | CommitFailed
    | TimePassed
)

# ------------------------------------------------------------------ effects (besides those of the coordinator)


@dataclass(frozen=True, slots=True)
class Complete:
    """Effect: the checkpoint is durable, so announce it to every slot."""

    metadata: CheckpointMetadata


Effect = Complete | WriteMetadata | CommitOutput | DeleteObjects | Alarm | JobFailed | StoodDown
Step = tuple[State, tuple[Effect, ...]]

# ------------------------------------------------------------------ handlers


def _stay(state: State, _event: Any) -> Step:
    return state, ()


def _begin(state: Collecting | Committing | Publishing, event: CheckpointDue) -> Step:
    ledger = state.ledger
    if len(ledger.pending) >= PENDING_MAX or ledger.drain is not None:
        return state, ()
    number = CheckpointId(ledger.highest + 1)
    already = {task: message for task, message in ledger.finals.items() if covers(message, number)}
    begun = Pending(number, event.awake_ns, event.then_pause, already)
    return _advance(replace(state, ledger=replace(ledger, highest=number, pending=(*ledger.pending, begun))))


def _acknowledge(state: Collecting | Committing | Publishing, event: Acknowledged) -> Step:
    message, ledger = event.message, state.ledger
    if message.incarnation != ledger.incarnations[message.task]:  # an acknowledgement of a dead incarnation is void
        return state, ()
    return count(state, message)


def count(state: Collecting | Committing | Publishing, message: Snapshotted) -> Step:
    """Adds an acknowledgement without checking its incarnation."""
    ledger, task = state.ledger, message.task
    finals = ledger.finals
    if message.final and finals.get(task) != message:
        finals = {**finals, task: message}
    pending = tuple([with_acknowledgement(p, message) if covers(message, p.number) else p for p in ledger.pending])
    # A new coordinator learns here which numbers its predecessor used. The number of a final state was not assigned.
    highest = ledger.highest if message.final else max(ledger.highest, message.checkpoint)
    is_known = finals is ledger.finals and all(map(is_, pending, ledger.pending))
    if is_known and highest == ledger.highest:  # repeated at the heartbeat
        return state, ()
    return _advance(replace(state, ledger=replace(ledger, finals=finals, pending=pending, highest=highest)))


def _forget(state: Collecting | Committing | Publishing, event: Died) -> Step:
    ledger = state.ledger
    dead = frozenset(event.tasks)
    incarnations = tuple(None if t in dead else i for t, i in enumerate(ledger.incarnations))
    dropped = [message for task, message in ledger.finals.items() if task in dead]
    finals = {task: message for task, message in ledger.finals.items() if task not in dead}
    pending = []
    for p in ledger.pending:
        dropped += [message for task, message in p.acknowledged.items() if task in dead]
        living = {task: message for task, message in p.acknowledged.items() if task not in dead}
        pending.append(replace(p, acknowledged=living))
    ledger = replace(
        ledger,
        incarnations=incarnations,
        finals=finals,
        pending=tuple(pending),
        garbage=(*ledger.garbage, *dropped),
    )
    return replace(state, ledger=ledger), ()


def _renew(state: Collecting | Committing | Publishing, event: Renewed) -> Step:
    ledger = replace(state.ledger, generation=event.generation, incarnations=event.incarnations)
    if event.generation != state.ledger.generation:
        ledger = without_pending(replace(ledger, finals={}), lambda _: True)
    return replace(state, ledger=ledger), ()


def _advance(state: Collecting | Committing | Publishing) -> Step:
    """Begins to commit the highest checkpoint that every task has acknowledged, unless one is being committed."""
    ledger = state.ledger
    if not isinstance(state, Collecting):
        return state, ()
    count = len(ledger.plan.tasks)
    if len(ledger.finals) == count and not ledger.completed.is_final:
        number = CheckpointId(ledger.highest + 1)
        ledger = replace(ledger, highest=number)
        metadata = metadata_of(ledger, number, ledger.finals)
    else:
        whole = [p for p in ledger.pending if len(p.acknowledged) == count]
        if not whole:
            return state, ()
        metadata = metadata_of(ledger, whole[-1].number, whole[-1].acknowledged)
    return Committing(ledger, metadata, 1, None, None), (WriteMetadata(metadata),)


def _complete(state: Committing, event: Durable) -> Step:
    if event.checkpoint != state.metadata.checkpoint:
        return state, ()
    metadata = state.metadata
    ledger = without_pending(state.ledger, lambda p: p.number <= metadata.checkpoint)
    names, ledger = collect_garbage(replace(ledger, completed=metadata, previous=ledger.completed), ledger.previous)
    effects: tuple[Effect, ...] = (Complete(metadata),)
    if names:
        effects = (*effects, DeleteObjects(names))
    parts = parts_by_vertex(ledger.plan, metadata)
    if parts:
        return Publishing(ledger, 1, None), (*effects, CommitOutput(metadata.checkpoint, parts))
    following, more = _advance(Collecting(ledger))
    return following, (*effects, *more)


def _depose(state: Committing, event: SnapshotTaken) -> Step:
    if event.checkpoint != state.metadata.checkpoint:
        return state, ()
    return Deposed(state.ledger), (StoodDown(event.checkpoint),)


def _write_later(state: Committing, event: WriteFailed) -> Step:
    if event.checkpoint != state.metadata.checkpoint or state.retry_ns is not None:
        return state, ()
    if state.attempts >= COMMIT_ATTEMPTS_MAX:
        reason = (
            f"the metadata of checkpoint {event.checkpoint} could not be written in {state.attempts} attempts:"
            f" {event.text}. Repair the store, then resume."
        )
        return Deposed(state.ledger), (JobFailed(Blame.ENVIRONMENT, reason),)
    fields = (("checkpoint", event.checkpoint), ("attempt", state.attempts), ("error", event.text))
    alarm = Alarm(f"the metadata of checkpoint {event.checkpoint} could not be written; trying again", fields)
    return replace(state, retry_ns=event.awake_ns + (RETRY_FIRST_NS << state.attempts - 1)), (alarm,)


def _publish_later(state: Publishing, event: CommitFailed) -> Step:
    checkpoint, text = event.failed.checkpoint, event.failed.text
    if checkpoint != state.ledger.completed.checkpoint or state.retry_ns is not None:
        return state, ()
    if state.attempts >= COMMIT_ATTEMPTS_MAX:
        reason = (
            f"the output of checkpoint {checkpoint} could not be committed in {state.attempts} attempts: {text}."
            " Repair the target of the output, then resume: the output is prepared and will be committed."
        )
        return Deposed(state.ledger), (JobFailed(Blame.ENVIRONMENT, reason),)
    fields = (("checkpoint", checkpoint), ("attempt", state.attempts), ("error", text))
    alarm = Alarm(f"the output of checkpoint {checkpoint} could not be committed; trying again", fields)
    return replace(state, retry_ns=event.awake_ns + (RETRY_FIRST_NS << state.attempts - 1)), (alarm,)


def _finish_publishing(state: Publishing, event: OutputCommitted) -> Step:
    if event.checkpoint != state.ledger.completed.checkpoint:
        return state, ()
    return _advance(Collecting(state.ledger))


def _give_up_old(state: Collecting, event: TimePassed) -> Step:
    ledger = state.ledger
    old = [p for p in ledger.pending if event.awake_ns - p.begun_ns >= event.timeout_ns]
    if not old:
        return state, ()
    alarms = tuple(
        Alarm(
            f"checkpoint {p.number} did not complete in time; a later one replaces it",
            (("checkpoint", p.number), ("missing", len(ledger.plan.tasks) - len(p.acknowledged))),
        )
        for p in old
    )
    return replace(state, ledger=without_pending(ledger, lambda p: p in old)), alarms


def _write_again(state: Committing, event: TimePassed) -> Step:
    if state.retry_ns is not None:
        if event.awake_ns < state.retry_ns:
            return state, ()
        again = replace(state, attempts=state.attempts + 1, retry_ns=None, asked_ns=event.awake_ns)
        return again, (WriteMetadata(state.metadata),)
    if state.asked_ns is None:
        return replace(state, asked_ns=event.awake_ns), ()
    if event.awake_ns - state.asked_ns < event.timeout_ns:
        return state, ()
    # Without the outcome no view may be issued, so a coordinator that cannot learn it in time has to start again.
    reason = (
        f"the store did not report within {event.timeout_ns // 1_000_000} ms whether the metadata of checkpoint"
        f" {state.metadata.checkpoint} was written. Repair the store, then resume: if it was, the checkpoint counts."
    )
    return Deposed(state.ledger), (JobFailed(Blame.ENVIRONMENT, reason),)


def _publish_again(state: Publishing, event: TimePassed) -> Step:
    if state.retry_ns is None or event.awake_ns < state.retry_ns:
        return state, ()
    again = CommitOutput(state.ledger.completed.checkpoint, parts_by_vertex(state.ledger.plan, state.ledger.completed))
    return replace(state, attempts=state.attempts + 1, retry_ns=None), (again,)


HANDLERS: dict[tuple[type, type], Callable[[Any, Any], Step]] = {
    **{(state, CheckpointDue): _begin for state in (Collecting, Committing, Publishing)},
    **{(state, Acknowledged): _acknowledge for state in (Collecting, Committing, Publishing)},
    **{(state, Died): _forget for state in (Collecting, Committing, Publishing)},
    **{(state, Renewed): _renew for state in (Collecting, Committing, Publishing)},
    (Committing, Durable): _complete,
    (Committing, SnapshotTaken): _depose,
    (Committing, WriteFailed): _write_later,
    (Publishing, OutputCommitted): _finish_publishing,
    (Publishing, CommitFailed): _publish_later,
    (Collecting, TimePassed): _give_up_old,
    (Committing, TimePassed): _write_again,
    (Publishing, TimePassed): _publish_again,
    # An outcome that arrives twice, or after another coordinator was found.
    **{(state, event): _stay for state in (Collecting, Publishing) for event in (Durable, SnapshotTaken, WriteFailed)},
    **{(state, event): _stay for state in (Collecting, Committing) for event in (OutputCommitted, CommitFailed)},
}


def step(state: State, event: Event) -> Step:
    """Returns the next state and its effects. A pair without a row is a bug."""
    handler = HANDLERS.get((type(state), type(event)))
    if handler is None:
        raise InternalError(f"{type(event).__name__} in state {type(state).__name__}: {event}")
    return handler(state, event)
