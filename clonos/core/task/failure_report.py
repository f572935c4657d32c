"""The report about a task whose thread raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.ports.operator_chain import StepFailed
from clonos.core.wire.recovery_messages import TaskFailed

if TYPE_CHECKING:
    from clonos.core.task.task import Task
from clonos.core.ports.task_failure import failure_of


def describe_failure(task: Task, error: BaseException) -> TaskFailed:
    """What the coordinator is told when a task's thread raised."""
    found = error.at if isinstance(error, StepFailed) else None
    cause = error.__cause__ or error if found else error
    at = task.at
    if found is not None and 0 <= found.index < at[2]:
        at = (at[0], at[1] + found.index, 1)
    step, record = (found.step, found.record) if found else ("", "")
    return failure_of(task.task, task.incarnation, cause, at, step=step, record=record)
