"""What befalls a task between two completed checkpoints, and the timeline of each of its recoveries.

``step`` judges a death or an exception: the task is replaced, cautiously where it should be, or the job fails. It
never loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from clonos.core.coordinator.coordinator_effects import JobFailed, Milestone
from clonos.core.model.errors import Blame
from clonos.core.model.ids import ChannelId, Incarnation, TaskId
from clonos.core.model.machine import Machine, Table
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.control_messages import TaskStatus
from clonos.core.wire.recovery_messages import InputRange, Recourse, TaskFailed

RAISED_MAX = 8
"""Exceptions that are remembered per task, latest last, to know a poison record again."""

DEATHS_BEFORE_CAUTION = 2
"""Deaths of its process, in few epochs, after which the successor takes one element at a time and tells which."""

INCARNATIONS_BEFORE_CAUTION = 4
"""Lives in one epoch after which it does so too: a process may die before it could tell that it was live."""

DEATHS_OF_POISON = 3
"""Deaths of cautious lives at one element that make it poison: fewer may be by chance."""

EPOCHS_REMEMBERED = 3
"""In which deaths are counted: a source may pass a barrier in each life, right before it dies."""

# ------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """A task's misfortunes. ``incarnations`` are counted since the last completed checkpoint."""

    incarnations: int = 0  # that have ended, for whatever reason
    deaths: tuple[int, ...] = (0,)  # of the process while the task was live, by epoch, the present one last
    raised: tuple[TaskFailed, ...] = ()
    approached: Approached | None = None  # what a cautious one took last
    died_at: Approached | None = None  # where cautious ones died last
    deaths_there: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.incarnations or any(self.deaths) or self.raised)


# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """The task's process is gone."""

    task_name: str
    incarnation: Incarnation
    was_live: bool  # as far as it could tell
    reason: str
    incarnations_max: int


@dataclass(frozen=True, slots=True)
class Approached:
    """A cautious incarnation is about to take this element; its process may die of it."""

    incarnation: Incarnation
    channel: ChannelId | None
    first_seq: int

    def is_at(self, other: Approached | None) -> bool:
        """Whether it is the same element, in whatever incarnation."""
        return other is not None and (self.channel, self.first_seq) == (other.channel, other.first_seq)


@dataclass(frozen=True, slots=True)
class Raised:
    """The task's code raised."""

    task_name: str
    failed: TaskFailed
    incarnations_max: int


@dataclass(frozen=True, slots=True)
class EpochOver:
    """A checkpoint is complete."""


# ------------------------------------------------------------------ verdicts


@dataclass(frozen=True, slots=True)
class Replace:
    """A successor shall begin; ``is_cautious``: with steps of one element."""

    is_cautious: bool


Verdict = Replace | JobFailed
Step = tuple[RecoveryRecord, Verdict]

# ------------------------------------------------------------------ handlers


def _replace_dead(state: RecoveryRecord, event: ProcessDied) -> Step:
    place = state.approached
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
            f"task {event.task_name} has lost {record.incarnations} incarnations since the last completed checkpoint"
            f" (failures_per_epoch_max is {event.incarnations_max}), at last because {event.reason}.",
            task_name=event.task_name,
        )
    is_cautious = sum(deaths) >= DEATHS_BEFORE_CAUTION or record.incarnations >= INCARNATIONS_BEFORE_CAUTION
    return record, Replace(is_cautious)


def _poisoned(event: ProcessDied, place: Approached) -> JobFailed:
    return JobFailed(
        Blame.JOB,
        f"the process of task {event.task_name} has died {DEATHS_OF_POISON} times when the task took the same input"
        f" element: a poison record ({event.reason}).",
        task_name=event.task_name,
        at=InputRange(place.channel, place.first_seq, 1),
    )


def _approach(state: RecoveryRecord, event: Approached) -> Step:
    return replace(state, approached=event), Replace(False)


POISON = "at the same input element in two incarnations: a poison record"


def _judge(state: RecoveryRecord, event: Raised) -> Step:
    failed = event.failed
    raised = (*state.raised, failed)[-RAISED_MAX:]
    record = replace(state, incarnations=state.incarnations + 1, raised=raised)
    if failed.recourse is not Recourse.RETRY:
        return record, _failure(event, "and no second try helps")
    if any(is_same_element(earlier, failed) for earlier in state.raised):
        return record, _failure(
            event, POISON if failed.at is not None else "in two incarnations, at no element of its input"
        )
    if record.incarnations > event.incarnations_max:
        count = record.incarnations
        return record, _failure(event, f"the end of {count} incarnations since the last completed checkpoint")
    return record, Replace(True)


def is_same_element(one: TaskFailed, other: TaskFailed) -> bool:
    """True when two incarnations raised in steps that share an input element, or nowhere nearer than the same step."""
    if one.incarnation == other.incarnation:
        return False
    if one.at is None or other.at is None:  # a timer, or the end of the stream
        return one.at is other.at and (one.step, one.error) == (other.step, other.error)
    return one.at.overlaps(other.at)


def _failure(event: Raised, why: str) -> JobFailed:
    failed = event.failed
    step = f" in step {failed.step}" if failed.step else ""
    record = f", record {failed.record}" if failed.record else ""
    return JobFailed(
        blame=failed.blame,
        reason=f"task {event.task_name} raised {failed.error}{step}{record}, {why}.",
        task_name=event.task_name,
        step=failed.step,
        record=failed.record,
        at=failed.at,
        error=failed.error,
        traceback=failed.traceback,
    )


def _begin_epoch(state: RecoveryRecord, _event: EpochOver) -> Step:
    # What raised is remembered longer: the element may lie behind the barrier of the checkpoint that is complete now.
    # So are deaths for a few epochs, and where one was located.
    deaths = (*state.deaths, 0)[-EPOCHS_REMEMBERED:]
    died_at, deaths_there = (state.died_at, state.deaths_there) if any(deaths) else (None, 0)
    return RecoveryRecord(0, deaths, state.raised, state.approached, died_at, deaths_there), Replace(False)


HANDLERS: Table[Step] = {
    (RecoveryRecord, ProcessDied): _replace_dead,
    (RecoveryRecord, Approached): _approach,
    (RecoveryRecord, Raised): _judge,
    (RecoveryRecord, EpochOver): _begin_epoch,
}


MACHINE: Machine[RecoveryRecord, ProcessDied | Approached | Raised | EpochOver, Step] = Machine(
    "failure policy", HANDLERS
)
step = MACHINE.step


# ------------------------------------------------------------------ timeline


@dataclass(frozen=True, slots=True)
class Recovery:
    """One recovery of one task: when each milestone was reached (wall clock, ns), in order."""

    task: TaskId
    failed: Incarnation | None  # None after a rollback, which ends all
    cause: str
    incarnation: Incarnation | None  # the successor's, when a view names it
    reached: tuple[tuple[Milestone, int], ...]
    backlog_before: int | None = None  # of the task's inputs before the failure; None: the task had not reported any

    @property
    def is_over(self) -> bool:
        """True when nothing more will be told of it."""
        return self.has_reached(Milestone.CAUGHT_UP)

    def has_reached(self, milestone: Milestone) -> bool:
        """Whether the milestone has been told."""
        return any(known is milestone for known, _ in self.reached)


BACKLOGS_REMEMBERED = 10
"""Reports of a live task whose largest backlog counts as that before its failure: one report alone may come at a moment
when a busy input happens to be empty."""


def backlog_of(status: TaskStatus) -> int | None:
    """What waits in the task's inputs; None while that is not known."""
    for name, value in status.counters:  # of every task at every heartbeat: no generator
        if name is TaskCounter.BACKLOG_ELEMENTS or name is TaskCounter.BACKLOG_BYTES:
            return value
    return None


def milestones_of(status: TaskStatus, backlog_before: int | None) -> tuple[Milestone, ...]:
    """What a task with this status has reached, the view itself left out.

    It has caught up when its inputs have no more backlog than before the failure. A task that had not reported any, and
    one whose input has ended, has caught up when it is live.
    """
    match status.phase:
        case TaskPhase.WAITING | TaskPhase.RECOVERING:
            return ()
        case TaskPhase.CONNECTING | TaskPhase.REPLAYING | TaskPhase.STALLED | TaskPhase.LOST:
            return (Milestone.GATHERED,)
        case TaskPhase.LIVE if backlog_before is not None:
            backlog = backlog_of(status)
            if backlog is None or backlog > backlog_before:
                return (Milestone.GATHERED, Milestone.REPLAYED)
            return (Milestone.GATHERED, Milestone.REPLAYED, Milestone.CAUGHT_UP)
        case TaskPhase.LIVE | TaskPhase.FINAL:
            return (Milestone.GATHERED, Milestone.REPLAYED, Milestone.CAUGHT_UP)


def reach(recovery: Recovery, milestones: tuple[Milestone, ...], now_ns: int) -> tuple[Recovery, tuple[Milestone, ...]]:
    """The recovery after these milestones, and which of them are news."""
    news = tuple(milestone for milestone in milestones if not recovery.has_reached(milestone))
    if not news:
        return recovery, ()
    return replace(recovery, reached=(*recovery.reached, *((milestone, now_ns) for milestone in news))), news
