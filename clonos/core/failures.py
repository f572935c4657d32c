"""What a slot tells the coordinator about an incarnation whose thread has raised."""

from __future__ import annotations

import traceback

from clonos.core.chain import StepFailed
from clonos.core.errors import ClonosError, EnvironmentFault
from clonos.core.messages import TaskFailed
from clonos.core.task import Task


def describe_failure(task: Task, error: BaseException) -> TaskFailed:
    """What the coordinator is told when a task's thread raised."""
    at = error.at if isinstance(error, StepFailed) else None
    cause = error.__cause__ or error if at else error
    channel, first_seq, count = task.at
    if at is not None and 0 <= at.index < count:
        first_seq, count = first_seq + at.index, 1
    lines = traceback.format_exception(cause)
    return TaskFailed(
        task=task.task,
        incarnation=task.incarnation,
        channel=channel,
        first_seq=first_seq,
        count=count,
        step=at.step if at else "",
        record=at.record[:10_000] if at else "",
        error=f"{type(cause).__name__}: {cause}"[:10_000],
        traceback="".join(lines)[-100_000:],
        is_fatal=isinstance(cause, ClonosError) and not isinstance(cause, EnvironmentFault),
    )
