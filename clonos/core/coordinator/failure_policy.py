"""Failure policy: whether a task is restarted after a failure, and the timeline of its recoveries (protocol 6).

``step`` judges a death or an exception: the task is restarted, if necessary in single-step mode, or the job fails.
Recovery never loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from clonos.core.coordinator.coordinator_effects import JobFailed, Milestone
from clonos.core.model.errors import SHORTAGE_ADVICE, Blame
from clonos.core.model.ids import ChannelId, Incarnation, TaskId
from clonos.core.model.machine import Machine, Table
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.control_messages import TaskStatus
from clonos.core.wire.recovery_messages import InputRange, Recourse, TaskFailed

RAISED_MAX = 8
"""Maximum number of exceptions remembered per task, to recognize a poison record."""

DEATHS_BEFORE_SINGLE_STEP = 2
"""Deaths of the process, within ``EPOCHS_REMEMBERED``, after which the successor runs in single-step mode."""

INCARNATIONS_BEFORE_SINGLE_STEP = 4
"""Ended incarnations in one epoch after which the successor runs in single-step mode, because a process may die before
it reports that it was live.
"""

DEATHS_OF_POISON = 3
"""Deaths in single-step mode at one element that make it a poison record. Fewer may be a coincidence."""

EPOCHS_REMEMBERED = 3
"""Epochs in which deaths are counted, because a source may pass a barrier in each life, just before it dies."""

# ------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """Failures of a task. ``incarnations`` are counted since the last completed checkpoint."""

    incarnations: int = 0  # incarnations that ended, for any reason
    deaths: tuple[int, ...] = (0,)  # deaths of the process while the task was live, per epoch, current epoch last
    raised: tuple[TaskFailed, ...] = ()
    announced: AnnouncedElement | None = None  # last element announced in single-step mode
    died_at: AnnouncedElement | None = None  # element at which a task in single-step mode last died
    deaths_there: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.incarnations or any(self.deaths) or self.raised)


# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """Event: the process of the task is gone."""

    task_name: str
    incarnation: Incarnation
    was_live: bool  # as far as it reported
    reason: str
    incarnations_max: int


@dataclass(frozen=True, slots=True)
class AnnouncedElement:
    """Event: an incarnation in single-step mode is about to take this element, which may kill its process."""

    incarnation: Incarnation
    channel: ChannelId | None
    first_seq: int

    def is_at(self, other: AnnouncedElement | None) -> bool:
        """Returns whether it is the same element, in any incarnation."""
        return other is not None and (self.channel, self.first_seq) == (other.channel, other.first_seq)


@dataclass(frozen=True, slots=True)
class Raised:
    """Event: the task's code raised."""

    task_name: str
    failed: TaskFailed
    incarnations_max: int


@dataclass(frozen=True, slots=True)
class EpochOver:
    """Event: a checkpoint is complete."""


# ------------------------------------------------------------------ verdicts


@dataclass(frozen=True, slots=True)
class Replace:
    """Verdict: begin a successor. ``is_single_step``: in single-step mode."""

    is_single_step: bool


Verdict = Replace | JobFailed
Step = tuple[RecoveryRecord, Verdict]

# ------------------------------------------------------------------ handlers


def _replace_dead(state: RecoveryRecord, event: ProcessDied) -> Step:
    place = state.announced
    is_located = place is not None and place.incarnation == event.incarnation
    deaths = (*state.deaths[:-1], state.deaths[-1] + (event.was_live or is_located))
    record = replace(state, incarnations=state.incarnations + 1, deaths=deaths)
    if place is not None and is_located:
        times = 1 + (state.deaths_there if place.is_at(state.died_at) else 0)
        record = replace(record, died_at=place, deaths_there=times)
        if times == DEATHS_OF_POISON:
            return record, _poisoned(event, place)
    if record.incarnations > event.incarnations_max:
        return record, JobFailed(
            Blame.ENVIRONMENT,
            f"task {event.task_name} has failed {record.incarnations} times since the last completed checkpoint"
            f" (failures_per_epoch_max is {event.incarnations_max}), most recently because {event.reason}.",
            task_name=event.task_name,
        )
    is_single_step = sum(deaths) >= DEATHS_BEFORE_SINGLE_STEP or record.incarnations >= INCARNATIONS_BEFORE_SINGLE_STEP
    return record, Replace(is_single_step)


def _poisoned(event: ProcessDied, place: AnnouncedElement) -> JobFailed:
    return JobFailed(
        Blame.JOB,
        f"the process of task {event.task_name} died {DEATHS_OF_POISON} times at the same record ({event.reason}).",
        task_name=event.task_name,
        at=InputRange(place.channel, place.first_seq, 1),
    )


def _announce(state: RecoveryRecord, event: AnnouncedElement) -> Step:
    return replace(state, announced=event), Replace(False)


ERRORS_ADVICE = "To set such records aside and go on, give the job an error output: Job(..., errors=sink)."

ERROR_LINES_MAX = 3
ERROR_CHARACTERS_MAX = 600
RECORD_CHARACTERS_MAX = 200


def _judge(state: RecoveryRecord, event: Raised) -> Step:
    failed = event.failed
    raised = (*state.raised, failed)[-RAISED_MAX:]
    record = replace(state, incarnations=state.incarnations + 1, raised=raised)
    if failed.recourse not in (Recourse.RETRY, Recourse.ELSEWHERE):
        return record, _failure(event)
    if any(is_same_element(earlier, failed) for earlier in state.raised):
        advice = SHORTAGE_ADVICE if failed.recourse is Recourse.ELSEWHERE else ERRORS_ADVICE if failed.record else ""
        return record, _failure(event, advice)
    if record.incarnations > event.incarnations_max:
        return record, _failure(
            event,
            f"The task has failed {record.incarnations} times since the last completed checkpoint"
            f" (failures_per_epoch_max is {event.incarnations_max}).",
        )
    return record, Replace(True)


def is_same_element(one: TaskFailed, other: TaskFailed) -> bool:
    """Returns whether two incarnations raised at a common input element or, without elements, in the same step."""
    if one.incarnation == other.incarnation:
        return False
    if one.at is None or other.at is None:  # a timer, or the end of the stream
        return one.at is other.at and (one.step, one.error) == (other.step, other.error)
    return one.at.overlaps(other.at)


def _failure(event: Raised, advice: str = "") -> JobFailed:
    failed = event.failed
    where = f"step {failed.step}" if failed.step else f"task {event.task_name}"
    record = f", at the record {_shortened(failed.record, RECORD_CHARACTERS_MAX)}," if failed.record else ""
    return JobFailed(
        blame=failed.blame,
        reason=f"{where}{record} raised {_shortened(failed.error, ERROR_CHARACTERS_MAX, ERROR_LINES_MAX)}",
        task_name=event.task_name,
        step=failed.step,
        record=failed.record,
        at=failed.at,
        error=failed.error,
        traceback=failed.traceback,
        frames=failed.frames,
        advice=advice,
    )


def _shortened(text: str, characters_max: int, lines_max: int = 1) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    short = "\n".join(lines[:lines_max])[:characters_max]
    return short if short.strip() == text.strip() else f"{short} ..."


def _begin_epoch(state: RecoveryRecord, _event: EpochOver) -> Step:
    # Keep the exceptions, because the element may come after the barrier of the checkpoint that is complete now. Keep
    # deaths for a few epochs, and where the last one was located.
    deaths = (*state.deaths, 0)[-EPOCHS_REMEMBERED:]
    died_at, deaths_there = (state.died_at, state.deaths_there) if any(deaths) else (None, 0)
    return RecoveryRecord(0, deaths, state.raised, state.announced, died_at, deaths_there), Replace(False)


HANDLERS: Table[Step] = {
    (RecoveryRecord, ProcessDied): _replace_dead,
    (RecoveryRecord, AnnouncedElement): _announce,
    (RecoveryRecord, Raised): _judge,
    (RecoveryRecord, EpochOver): _begin_epoch,
}


MACHINE: Machine[RecoveryRecord, ProcessDied | AnnouncedElement | Raised | EpochOver, Step] = Machine(
    "failure policy", HANDLERS
)
step = MACHINE.step


# ------------------------------------------------------------------ timeline


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery of one task: when each milestone was reached (wall clock, ns), in order."""

    task: TaskId
    failed: Incarnation | None  # None after a rollback, which ends all incarnations
    cause: str
    incarnation: Incarnation | None  # incarnation of the successor, once a view names it
    reached: tuple[tuple[Milestone, int], ...]
    backlog_before: int | None = None  # backlog of the task's inputs before the failure; None: not reported
    # what the successor has done until it caught up, as it last reported
    replayed_records: int = 0
    replayed_calls: int = 0
    executed_calls: int = 0
    is_move: bool = False  # nothing has failed: the task goes on in another slot
    name: str = ""  # of the task, whose number may mean another one after a change of widths

    @property
    def is_over(self) -> bool:
        """Whether the last milestone was reached."""
        return self.has_reached(Milestone.CAUGHT_UP)

    def has_reached(self, milestone: Milestone) -> bool:
        """Returns whether the milestone was reached."""
        return any(known is milestone for known, _ in self.reached)


BACKLOGS_REMEMBERED = 10
"""Reports of a live task whose largest backlog counts as the backlog before its failure. A single report may come when
a busy input is empty for a moment.
"""


def backlog_of(status: TaskStatus) -> int | None:
    """Returns the backlog of the task's inputs, or None while it is unknown."""
    for name, value in status.counters:  # runs for every task at every heartbeat, so no generator
        if name is TaskCounter.BACKLOG_ELEMENTS or name is TaskCounter.BACKLOG_BYTES:
            return value
    return None


def milestones_of(status: TaskStatus, backlog_before: int | None) -> tuple[Milestone, ...]:
    """Returns the milestones that a task with this status has reached, without VIEW.

    A task has caught up when its inputs have no more backlog than before the failure. Without a reported backlog, or at
    the end of its input, it has caught up as soon as it is live.
    """
    match status.phase:
        case TaskPhase.WAITING | TaskPhase.RECOVERING | TaskPhase.ENDED:
            return ()
        case TaskPhase.CONNECTING | TaskPhase.REPLAYING | TaskPhase.STALLED | TaskPhase.LOST:
            return (Milestone.GATHERED,)
        case TaskPhase.LIVE if backlog_before is not None:
            backlog = backlog_of(status)
            if backlog is None or backlog > backlog_before:
                return (Milestone.GATHERED, Milestone.REPLAYED)
            return (Milestone.GATHERED, Milestone.REPLAYED, Milestone.CAUGHT_UP)
        case TaskPhase.LIVE | TaskPhase.SUSPENDED | TaskPhase.FINAL:
            return (Milestone.GATHERED, Milestone.REPLAYED, Milestone.CAUGHT_UP)


def with_work(recovery: Recovery, status: TaskStatus) -> Recovery:
    """Returns the recovery with the work of the successor, as its status reports it."""
    found = dict(status.counters)
    return replace(
        recovery,
        replayed_records=found.get(TaskCounter.REPLAYED_RECORDS, 0),
        replayed_calls=found.get(TaskCounter.REPLAYED_CALLS, 0),
        executed_calls=found.get(TaskCounter.EXECUTED_CALLS, 0),
    )


def reach(recovery: Recovery, milestones: tuple[Milestone, ...], now_ns: int) -> tuple[Recovery, tuple[Milestone, ...]]:
    """Returns the recovery after these milestones, and the milestones that are new."""
    news = tuple(milestone for milestone in milestones if not recovery.has_reached(milestone))
    if not news:
        return recovery, ()
    return replace(recovery, reached=(*recovery.reached, *((milestone, now_ns) for milestone in news))), news
