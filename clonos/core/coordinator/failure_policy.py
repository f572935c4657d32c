"""What befalls a task between two completed checkpoints, and the timeline of each of its recoveries.

``step`` judges a death or an exception: the task is replaced, cautiously where it should be, or the job fails. It
never loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from clonos.core.coordinator.coordinator_effects import Fault, JobFailed, Milestone
from clonos.core.model.errors import InternalError
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.wire.control_messages import BACKLOG_BYTES, BACKLOG_ELEMENTS, TaskStatus
from clonos.core.wire.recovery_messages import TaskFailed

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
    approached: tuple[int, int, int] = (0, 0, 0)  # (incarnation, channel, number): what a cautious one took last
    died_at: tuple[int, int, int] = (0, 0, 0)  # (channel, number, times): where cautious ones died last

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.incarnations or any(self.deaths) or self.raised)


# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """The task's process is gone."""

    task_name: str
    incarnation: int
    was_live: bool  # as far as it could tell
    reason: str
    incarnations_max: int


@dataclass(frozen=True, slots=True)
class Approached:
    """A cautious incarnation is about to take this element; its process may die of it."""

    incarnation: int
    channel: int
    first_seq: int


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
    incarnation, *place = state.approached
    is_located = incarnation == event.incarnation
    deaths = (*state.deaths[:-1], state.deaths[-1] + (event.was_live or is_located))
    record = replace(state, incarnations=state.incarnations + 1, deaths=deaths)
    if is_located:
        channel, first_seq = place
        times = 1 + (state.died_at[2] if state.died_at[:2] == (channel, first_seq) else 0)
        record = replace(record, died_at=(channel, first_seq, times))
        if times == DEATHS_OF_POISON:
            return record, _poisoned(event, channel, first_seq)
    if record.incarnations > event.incarnations_max:
        return record, JobFailed(
            Fault.ENVIRONMENT,
            f"task {event.task_name} has lost {record.incarnations} incarnations since the last completed checkpoint"
            f" (failures_per_epoch_max is {event.incarnations_max}), at last because {event.reason}.",
            task_name=event.task_name,
        )
    is_cautious = sum(deaths) >= DEATHS_BEFORE_CAUTION or record.incarnations >= INCARNATIONS_BEFORE_CAUTION
    return record, Replace(is_cautious)


def _poisoned(event: ProcessDied, channel: int, first_seq: int) -> JobFailed:
    return JobFailed(
        Fault.JOB,
        f"the process of task {event.task_name} has died {DEATHS_OF_POISON} times when the task took the same input"
        f" element: a poison record ({event.reason}).",
        task_name=event.task_name,
        channel=channel,
        first_seq=first_seq,
        count=1,
    )


def _approach(state: RecoveryRecord, event: Approached) -> Step:
    return replace(state, approached=(event.incarnation, event.channel, event.first_seq)), Replace(False)


POISON = "at the same input element in two incarnations: a poison record"


def _judge(state: RecoveryRecord, event: Raised) -> Step:
    failed = event.failed
    raised = (*state.raised, failed)[-RAISED_MAX:]
    record = replace(state, incarnations=state.incarnations + 1, raised=raised)
    if failed.is_fatal:
        return record, _failure(event, "and no second try helps")
    if any(is_same_element(earlier, failed) for earlier in state.raised):
        return record, _failure(event, POISON if failed.count else "in two incarnations, at no element of its input")
    if record.incarnations > event.incarnations_max:
        count = record.incarnations
        return record, _failure(event, f"the end of {count} incarnations since the last completed checkpoint")
    return record, Replace(True)


def is_same_element(one: TaskFailed, other: TaskFailed) -> bool:
    """True when two incarnations raised in steps that share an input element, or nowhere nearer than the same step."""
    if one.incarnation == other.incarnation or one.channel != other.channel:
        return False
    if one.count == 0 or other.count == 0:  # a timer, or the end of the stream
        return (one.count, one.step, one.error) == (other.count, other.step, other.error)
    return one.first_seq < other.first_seq + other.count and other.first_seq < one.first_seq + one.count


def _failure(event: Raised, why: str) -> JobFailed:
    failed = event.failed
    step = f" in step {failed.step}" if failed.step else ""
    record = f", record {failed.record}" if failed.record else ""
    return JobFailed(
        fault=Fault.ENVIRONMENT if failed.is_environment else Fault.JOB,
        reason=f"task {event.task_name} raised {failed.error}{step}{record}, {why}.",
        task_name=event.task_name,
        step=failed.step,
        record=failed.record,
        channel=failed.channel,
        first_seq=failed.first_seq,
        count=failed.count,
        error=failed.error,
        traceback=failed.traceback,
    )


def _begin_epoch(state: RecoveryRecord, _event: EpochOver) -> Step:
    # What raised is remembered longer: the element may lie behind the barrier of the checkpoint that is complete now.
    # So are deaths for a few epochs, and where one was located.
    deaths = (*state.deaths, 0)[-EPOCHS_REMEMBERED:]
    died_at = state.died_at if any(deaths) else (0, 0, 0)
    return RecoveryRecord(0, deaths, state.raised, state.approached, died_at), Replace(False)


HANDLERS: dict[tuple[type, type], Callable[[Any, Any], Step]] = {
    (RecoveryRecord, ProcessDied): _replace_dead,
    (RecoveryRecord, Approached): _approach,
    (RecoveryRecord, Raised): _judge,
    (RecoveryRecord, EpochOver): _begin_epoch,
}


def step(state: RecoveryRecord, event: ProcessDied | Approached | Raised | EpochOver) -> Step:
    """The next state and the verdict. A pair without a row is a bug."""
    handler = HANDLERS.get((type(state), type(event)))
    if handler is None:
        raise InternalError(f"{type(event).__name__} in state {type(state).__name__}: {event}")
    return handler(state, event)


# ------------------------------------------------------------------ timeline


@dataclass(frozen=True, slots=True)
class Recovery:
    """One recovery of one task: when each milestone was reached (wall clock, ns), in order."""

    task: TaskId
    failed: Incarnation
    cause: str
    incarnation: Incarnation  # the successor's; 0 until a view names it
    reached: tuple[tuple[Milestone, int], ...]
    backlog_before: int | None = None  # of the task's inputs before the failure; None: the task had not reported any

    @property
    def is_over(self) -> bool:
        """True when nothing more will be told of it."""
        return self.has_reached(Milestone.CAUGHT_UP)

    def has_reached(self, milestone: Milestone) -> bool:
        """Whether the milestone has been told."""
        return any(known is milestone for known, _ in self.reached)


GATHERED_PHASES = ("connecting", "replaying", "stalled", "lost", "live", "final")
SETTLED_PHASES = ("live", "final")

BACKLOGS_REMEMBERED = 10
"""Reports of a live task whose largest backlog counts as that before its failure: one report alone may come at a moment
when a busy input happens to be empty."""


def backlog_of(status: TaskStatus) -> int | None:
    """What waits in the task's inputs; None while that is not known."""
    for name, value in status.counters:  # of every task at every heartbeat: no generator
        if name in (BACKLOG_ELEMENTS, BACKLOG_BYTES):
            return value
    return None


def milestones_of(status: TaskStatus, backlog_before: int | None) -> tuple[Milestone, ...]:
    """What a task with this status has reached, the view itself left out.

    It has caught up when its inputs have no more backlog than before the failure. A task that had not reported any, and
    one whose input has ended, has caught up when it is live.
    """
    if status.phase not in GATHERED_PHASES:
        return ()
    if status.phase not in SETTLED_PHASES:
        return (Milestone.GATHERED,)
    backlog = backlog_of(status)
    if status.phase == "live" and backlog_before is not None and (backlog is None or backlog > backlog_before):
        return (Milestone.GATHERED, Milestone.REPLAYED)
    return (Milestone.GATHERED, Milestone.REPLAYED, Milestone.CAUGHT_UP)


def reach(recovery: Recovery, milestones: tuple[Milestone, ...], now_ns: int) -> tuple[Recovery, tuple[Milestone, ...]]:
    """The recovery after these milestones, and which of them are news."""
    news = tuple(milestone for milestone in milestones if not recovery.has_reached(milestone))
    if not news:
        return recovery, ()
    return replace(recovery, reached=(*recovery.reached, *((milestone, now_ns) for milestone in news))), news
