"""What a slot tells the coordinator about an incarnation that has failed: who is at fault, where, with what text."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from clonos.core.chain import StepFailed
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.wire.recovery_messages import TaskFailed

if TYPE_CHECKING:
    from clonos.core.task import Task

ERROR_CHARACTERS_MAX = 10_000
TRACEBACK_CHARACTERS_MAX = 100_000

NOWHERE = (-1, 0, 0)
"""(channel, first number, count) of what failed at no element of its input."""


def failure_of(
    task: TaskId,
    incarnation: Incarnation,
    error: BaseException,
    at: tuple[int, int, int] = NOWHERE,
    *,
    step: str = "",
    record: str = "",
    is_fatal: bool | None = None,
    with_traceback: bool = True,
) -> TaskFailed:
    """``is_fatal``: no second try helps; by default so for what is the job's own fault, and says so by its class."""
    is_environment = isinstance(error, EnvironmentFault)
    lines = traceback.format_exception(error) if with_traceback else []
    channel, first_seq, count = at
    return TaskFailed(
        task=task,
        incarnation=incarnation,
        channel=channel,
        first_seq=first_seq,
        count=count,
        step=step,
        record=record[:ERROR_CHARACTERS_MAX],
        error=f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX],
        traceback="".join(lines)[-TRACEBACK_CHARACTERS_MAX:],
        is_fatal=isinstance(error, ClonosError) and not is_environment if is_fatal is None else is_fatal,
        is_environment=is_environment,
    )


def describe_failure(task: Task, error: BaseException) -> TaskFailed:
    """What the coordinator is told when a task's thread raised."""
    found = error.at if isinstance(error, StepFailed) else None
    cause = error.__cause__ or error if found else error
    at = task.at
    if found is not None and 0 <= found.index < at[2]:
        at = (at[0], at[1] + found.index, 1)
    step, record = (found.step, found.record) if found else ("", "")
    return failure_of(task.task, task.incarnation, cause, at, step=step, record=record)
