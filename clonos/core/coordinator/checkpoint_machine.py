"""Checkpoint machine, from trigger to committed output: one table, ``(State, Event) -> handler`` (protocol 5).

    Collecting ──all acknowledged──▶ Committing ──durable──▶ Publishing ──output committed──▶ Collecting
                                        │                        (skipped if no sink prepared output)
                                        └──number taken──▶ Deposed

Several checkpoints may be pending in every state; a later one replaces the earlier ones when it completes. Numbers are
never reused. In *Committing* a failure can no longer undo the checkpoint, so views wait. In *Publishing* views do not
wait, but no other metadata is written, so that a resume has the output of at most one checkpoint to commit again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from clonos.core.checkpoint.checkpoint_events import (
    Acknowledged,
    CheckpointDue,
    CheckpointHeld,
    CutGivenUp,
    Died,
    Durable,
    HoldReleased,
    Renewed,
    SnapshotTaken,
    TimePassed,
    WriteFailed,
)
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, parts_by_vertex
from clonos.core.coordinator.checkpoint_ledger import (
    Held,
    Ledger,
    Pending,
    collect_garbage,
    metadata_of,
    with_completed,
    with_counted,
    with_next_pending,
    without_cut,
    without_held,
    without_pending,
    without_tasks,
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
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId
from clonos.core.model.machine import Machine, Table
from clonos.core.placement.survivability import names_of
from clonos.core.wire.control_messages import Snapshotted

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
S = TypeVar("S", bound=State)
Active = TypeVar("Active", Collecting, Committing, Publishing)
Busy = TypeVar("Busy", Committing, Publishing)

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """Event: the output is not committed yet."""

    failed: OutputCommitFailed
    awake_ns: int


Event = (
    CheckpointDue
    | CutGivenUp
    | CheckpointHeld
    | HoldReleased
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
Next = tuple[S, tuple[Effect, ...]]
Step = Next[State]

# ------------------------------------------------------------------ handlers


def _stay(state: S, _event: Any) -> Next[S]:
    return state, ()


def _begin(state: Collecting, event: CheckpointDue) -> Next[Collecting | Committing]:
    return advance(Collecting(with_next_pending(state.ledger, event)))


def _begin_beside(state: Busy, event: CheckpointDue) -> Next[Busy]:
    return replace(state, ledger=with_next_pending(state.ledger, event)), ()


def _give_up_cut(state: Active, _event: CutGivenUp) -> Next[Active]:
    return replace(state, ledger=without_cut(state.ledger)), ()


def _hold(state: Active, event: CheckpointHeld) -> Next[Active]:
    held = (*state.ledger.held, Held(event.request, event.number, event.metadata))
    return replace(state, ledger=replace(state.ledger, held=held)), ()


def _release(state: Active, event: HoldReleased) -> Next[Active]:
    names, ledger = without_held(state.ledger, event.request)
    return replace(state, ledger=ledger), (DeleteObjects(names),) if names else ()


def _acknowledge(state: Collecting, event: Acknowledged) -> Next[Collecting | Committing]:
    return advance(Collecting(_with_current(state.ledger, event.message)))


def _acknowledge_beside(state: Busy, event: Acknowledged) -> Next[Busy]:
    return replace(state, ledger=_with_current(state.ledger, event.message)), ()


def _with_current(ledger: Ledger, message: Snapshotted) -> Ledger:
    if message.incarnation != ledger.incarnations[message.task]:  # an acknowledgement of a dead incarnation is void
        return ledger
    return with_counted(ledger, message)


def _forget(state: Active, event: Died) -> Next[Active]:
    return replace(state, ledger=without_tasks(state.ledger, frozenset(event.tasks))), ()


def _renew(state: Active, event: Renewed) -> Next[Active]:
    ledger = replace(state.ledger, generation=event.generation, incarnations=event.incarnations)
    if event.generation != state.ledger.generation:
        ledger = without_pending(replace(ledger, finals={}), lambda _: True)
    return replace(state, ledger=ledger), ()


def advance(state: Collecting) -> Next[Collecting | Committing]:
    """Begins to commit the highest checkpoint that every task has acknowledged, if there is one."""
    ledger = state.ledger
    count = len(ledger.plan.tasks)
    if len(ledger.finals) == count and not ledger.completed.is_final:
        number = CheckpointId(ledger.highest + 1)
        ledger = replace(ledger, highest=number)
        metadata = metadata_of(ledger, number, ledger.finals)
    else:
        whole = [p for p in ledger.pending if len(p.acknowledged) == count]
        if not whole:
            return state, ()
        last = whole[-1]
        metadata = metadata_of(ledger, last.number, last.acknowledged, last.widths, is_placed_anew=last.is_placed_anew)
    return Committing(ledger, metadata, 1, None, None), (WriteMetadata(metadata),)


def _complete(state: Committing, event: Durable) -> Next[Committing | Collecting | Publishing]:
    if event.checkpoint != state.metadata.checkpoint:
        return state, ()
    metadata = state.metadata
    dropped, ledger = with_completed(state.ledger, metadata)
    names, ledger = collect_garbage(ledger, dropped)
    effects: tuple[Effect, ...] = (Complete(metadata),)
    if names:
        effects = (*effects, DeleteObjects(names))
    parts = parts_by_vertex(ledger.plan, metadata)
    if parts:
        return Publishing(ledger, 1, None), (*effects, CommitOutput(metadata.checkpoint, parts))
    following, more = advance(Collecting(ledger))
    return following, (*effects, *more)


def _depose(state: Committing, event: SnapshotTaken) -> Next[Committing | Deposed]:
    if event.checkpoint != state.metadata.checkpoint:
        return state, ()
    return Deposed(state.ledger), (StoodDown(event.checkpoint),)


def _write_later(state: Committing, event: WriteFailed) -> Next[Committing | Deposed]:
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


def _publish_later(state: Publishing, event: CommitFailed) -> Next[Publishing | Deposed]:
    checkpoint, text = event.failed.checkpoint, event.failed.text
    if checkpoint != state.ledger.completed.checkpoint or state.retry_ns is not None:
        return state, ()
    if event.failed.blame is not None:
        return Deposed(state.ledger), (JobFailed(event.failed.blame, text),)
    if state.attempts >= COMMIT_ATTEMPTS_MAX:
        reason = (
            f"the output of checkpoint {checkpoint} could not be committed in {state.attempts} attempts: {text}."
            " Repair the target of the output, then resume: the output is prepared and will be committed."
        )
        return Deposed(state.ledger), (JobFailed(Blame.ENVIRONMENT, reason),)
    fields = (("checkpoint", checkpoint), ("attempt", state.attempts), ("error", text))
    alarm = Alarm(f"the output of checkpoint {checkpoint} could not be committed; trying again", fields)
    return replace(state, retry_ns=event.awake_ns + (RETRY_FIRST_NS << state.attempts - 1)), (alarm,)


def _finish_publishing(state: Publishing, event: OutputCommitted) -> Next[Publishing | Collecting | Committing]:
    if event.checkpoint != state.ledger.completed.checkpoint:
        return state, ()
    return advance(Collecting(state.ledger))


def _give_up_old(state: Collecting, event: TimePassed) -> Next[Collecting | Deposed]:
    ledger = state.ledger
    old = [p for p in ledger.pending if event.awake_ns - p.begun_ns >= event.timeout_ns]
    if not old:
        return state, ()
    alarms = tuple(
        Alarm(
            f"checkpoint {p.number} did not complete in {event.timeout_ns // 1_000_000_000} s, because"
            f" {_missing(ledger, p)}; a later one replaces it",
        )
        for p in old
    )
    ledger = replace(without_pending(ledger, lambda p: p in old), failures=ledger.failures + len(old))
    if ledger.failures_max is None or ledger.failures <= ledger.failures_max:
        return Collecting(ledger), alarms
    reason = (
        f"{ledger.failures} checkpoints in succession have failed, and checkpoint_failures_max is"
        f" {ledger.failures_max}. The last one: {alarms[-1].text.partition(';')[0]}."
        " Remove the cause, or raise checkpoint_timeout, then resume."
    )
    return Deposed(ledger), (*alarms, JobFailed(Blame.ENVIRONMENT, reason))


def _missing(ledger: Ledger, pending: Pending) -> str:
    missing = [task for task in ledger.plan.tasks if task not in pending.acknowledged]
    return f"{names_of(ledger.plan, missing)} {'has' if len(missing) == 1 else 'have'} not taken it"


def _write_again(state: Committing, event: TimePassed) -> Next[Committing | Deposed]:
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


def _publish_again(state: Publishing, event: TimePassed) -> Next[Publishing]:
    if state.retry_ns is None or event.awake_ns < state.retry_ns:
        return state, ()
    again = CommitOutput(state.ledger.completed.checkpoint, parts_by_vertex(state.ledger.plan, state.ledger.completed))
    return replace(state, attempts=state.attempts + 1, retry_ns=None), (again,)


HANDLERS: Table[Step] = {
    (Collecting, CheckpointDue): _begin,
    (Committing, CheckpointDue): _begin_beside,
    (Publishing, CheckpointDue): _begin_beside,
    (Collecting, CutGivenUp): _give_up_cut,
    (Committing, CutGivenUp): _give_up_cut,
    (Publishing, CutGivenUp): _give_up_cut,
    (Collecting, CheckpointHeld): _hold,
    (Committing, CheckpointHeld): _hold,
    (Publishing, CheckpointHeld): _hold,
    (Collecting, HoldReleased): _release,
    (Committing, HoldReleased): _release,
    (Publishing, HoldReleased): _release,
    (Deposed, HoldReleased): _stay,
    (Collecting, Acknowledged): _acknowledge,
    (Committing, Acknowledged): _acknowledge_beside,
    (Publishing, Acknowledged): _acknowledge_beside,
    (Collecting, Died): _forget,
    (Committing, Died): _forget,
    (Publishing, Died): _forget,
    (Collecting, Renewed): _renew,
    (Committing, Renewed): _renew,
    (Publishing, Renewed): _renew,
    (Committing, Durable): _complete,
    (Committing, SnapshotTaken): _depose,
    (Committing, WriteFailed): _write_later,
    (Publishing, OutputCommitted): _finish_publishing,
    (Publishing, CommitFailed): _publish_later,
    (Collecting, TimePassed): _give_up_old,
    (Committing, TimePassed): _write_again,
    (Publishing, TimePassed): _publish_again,
    # An outcome that arrives twice, or after another coordinator was found.
    (Collecting, Durable): _stay,
    (Collecting, SnapshotTaken): _stay,
    (Collecting, WriteFailed): _stay,
    (Publishing, Durable): _stay,
    (Publishing, SnapshotTaken): _stay,
    (Publishing, WriteFailed): _stay,
    (Collecting, OutputCommitted): _stay,
    (Collecting, CommitFailed): _stay,
    (Committing, OutputCommitted): _stay,
    (Committing, CommitFailed): _stay,
}

MACHINE: Machine[State, Event, Step] = Machine("checkpoint machine", HANDLERS)
step = MACHINE.step
