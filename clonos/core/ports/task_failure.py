"""Report of a failed incarnation from its slot to the coordinator: who is at fault, where, and the text."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from clonos.core.model.code_location import user_frames
from clonos.core.model.errors import Divergence, blame_of, is_shortage, lasts
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.wire.recovery_messages import InputRange, Recourse, TaskFailed

ERROR_CHARACTERS_MAX = 10_000


TRACEBACK_CHARACTERS_MAX = 100_000


class FailurePlace(NamedTuple):
    """Place where user code failed, as far as it is known."""

    at: InputRange | None = None
    step: str = ""
    record: str = ""


UNKNOWN_PLACE = FailurePlace()


def encodable(text: str) -> str:
    """Returns the text with lone surrogates escaped, because no message can carry them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _text_of(error: BaseException) -> str:
    try:
        return encodable(str(error))
    except Exception as problem:  # noqa: BLE001  the error is the user's, and so is its text
        return f"(its text cannot be had: {type(problem).__name__})"


def failure_of(
    task: TaskId,
    incarnation: Incarnation,
    error: BaseException,
    recourse: Recourse | None = None,
    place: FailurePlace = UNKNOWN_PLACE,
    *,
    with_traceback: bool = True,
) -> TaskFailed:
    """Returns the report of a failure.

    ``recourse`` is by default ELSEWHERE if the process lacks a resource, ROLLBACK for a divergence, NONE for another
    error that lasts, else RETRY.
    """
    if recourse is None:
        recourse = _recourse_for(error)
    lines = traceback.format_exception(error) if with_traceback else []
    return TaskFailed(
        task=task,
        incarnation=incarnation,
        at=place.at,
        step=place.step,
        record=encodable(place.record)[:ERROR_CHARACTERS_MAX],
        error=f"{type(error).__name__}: {_text_of(error)}"[:ERROR_CHARACTERS_MAX].removesuffix(": "),
        traceback=encodable("".join(lines))[-TRACEBACK_CHARACTERS_MAX:],
        blame=blame_of(error),
        recourse=recourse,
        frames=encodable(user_frames(error)) if with_traceback else "",
    )


def _recourse_for(error: BaseException) -> Recourse:
    if is_shortage(error):
        return Recourse.ELSEWHERE
    if isinstance(error, Divergence):
        return Recourse.ROLLBACK
    return Recourse.NONE if lasts(error) else Recourse.RETRY
