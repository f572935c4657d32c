"""Text of an error for a terminal: one sentence and the frames of user code, at most 12 lines; or everything."""

from __future__ import annotations

import traceback
from typing import Final

from clonos.core.model.code_location import user_frames
from clonos.core.model.errors import ClonosError, InternalError, JobError

LINES_MAX: Final = 12


class JobFileRaised(JobError):
    """The file of a job raised an exception while it was loaded."""

    file: str
    error: str

    def __str__(self) -> str:
        return f"{self.file} raised {self.error}"


def error_text(error: BaseException) -> str:
    """Returns the type and the text of an exception; of a syntax error the place too."""
    return "".join(traceback.format_exception_only(error)).strip()


def short_report(error: ClonosError, verbose_by: str = "") -> str:
    """Returns the message of an error and the frames of user code that it passed, in at most 12 lines.

    ``verbose_by``: what shows the rest. The message of a bug of this library is returned whole, to be reported.
    """
    if isinstance(error, InternalError):
        return str(error)
    lines = str(error).splitlines()
    if not getattr(error, "details", ""):  # those of a failed task are in its message
        lines += user_frames(error).splitlines()
    hint = [f"({verbose_by} shows the whole traceback)"] if verbose_by and _has_more(error) else []
    room = LINES_MAX - len(hint)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"({len(lines) - room + 1} more lines)"]
    return "\n".join([*lines, *hint])


def full_report(error: ClonosError) -> str:
    """Returns the message of an error with everything that is known about it."""
    details = getattr(error, "details", "")
    if details:
        return f"{error}\n{details}"
    return f"{error}\n{''.join(traceback.format_exception(error))}"


def _has_more(error: ClonosError) -> bool:
    return bool(getattr(error, "details", "")) or error.__cause__ is not None
