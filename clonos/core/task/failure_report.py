"""Report of a task whose thread raised: the step, the record and the input range (protocol 6)."""

from __future__ import annotations

from clonos.core.ports.operator_chain import StepFailed
from clonos.core.ports.task_failure import FailurePlace, failure_of
from clonos.core.task.task import Task
from clonos.core.wire.recovery_messages import InputRange, TaskFailed


def describe_failure(task: Task, error: BaseException) -> TaskFailed:
    """Returns the report to the coordinator about a task whose thread raised ``error``."""
    found = error.at if isinstance(error, StepFailed) else None
    cause = error.__cause__ or error if found else error
    at = task.at
    if at is not None and found is not None and found.index is not None and found.index < at.count:
        at = InputRange(at.channel, at.first_seq + found.index, 1)
    step, record = (found.step, found.record) if found else ("", "")
    return failure_of(task.task, task.incarnation, cause, place=FailurePlace(at, step, record))
