"""What a slot reports to the coordinator about a failed incarnation: who is at fault, where, and the text."""

from __future__ import annotations

import traceback

from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.wire.recovery_messages import TaskFailed

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
