"""Code locations for tracebacks: by module name, because file paths differ between hosts, and as lines of user code."""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Final, NamedTuple

USER_FRAMES_MAX: Final = 3
FRAMES_MAX: Final = 20
LINE_CHARACTERS_MAX: Final = 160

_RECORDED: Final = "__recorded_frames__"
"""Attribute of an exception that was rebuilt from the log: its frames when it was recorded."""

LIBRARY: Final = ("clonos", "clonos_chaos", "clonos_services", "clonos_standby")
"""Packages whose frames are not the user's."""

INSTALLED: Final = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Folders of modules that the user has not written: the standard library and installed packages."""


class UserFrame(NamedTuple):
    """Frame of user code in the traceback of an exception. ``source``: its line, if the file is here."""

    place: str
    file: str
    line: int
    function: str
    source: str


def place_of(traceback: TracebackType) -> str:
    """Returns ``module:line in function`` for an entry of a traceback, with the file's name for a script."""
    frame = traceback.tb_frame
    module = frame.f_globals.get("__name__")
    if not isinstance(module, str) or module == "__main__":
        module = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{module}:{traceback.tb_lineno} in {frame.f_code.co_name}"


def user_frames(error: BaseException) -> str:
    """Formats the innermost frames of user code in an exception's traceback, at most 3, with their source lines.

    Frames of this library, of the standard library and of installed packages are left out, and so are the exceptions
    that led to this one.
    """
    frames = user_frames_of(error)
    lines = []
    hidden = len(frames) - USER_FRAMES_MAX
    if hidden > 0:
        lines.append(f"  ({hidden} more {'frame' if hidden == 1 else 'frames'})")
    for frame in frames[-USER_FRAMES_MAX:]:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        if frame.source:
            lines.append(f"    {frame.source[:LINE_CHARACTERS_MAX]}")
    return "\n".join(lines)


def user_frames_of(error: BaseException) -> list[UserFrame]:
    """Returns the frames of user code that an exception passed, innermost last: first those of its traceback, then
    those that were recorded with it."""
    frames = [_frame_of(entry) for entry in _entries(error) if _is_users(entry.tb_frame)]
    recorded: list[UserFrame] = vars(error).get(_RECORDED, [])
    return frames + recorded


def keep_frames(error: BaseException, frames: list[UserFrame]) -> None:
    """Gives an exception that was rebuilt the frames that were recorded with it."""
    vars(error)[_RECORDED] = frames  # no setattr, which a class may refuse


def _frame_of(entry: TracebackType) -> UserFrame:
    code = entry.tb_frame.f_code
    source = linecache.getline(code.co_filename, entry.tb_lineno, entry.tb_frame.f_globals).strip()
    return UserFrame(place_of(entry), code.co_filename, entry.tb_lineno, code.co_name, source)


def _entries(error: BaseException) -> Iterator[TracebackType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package not in LIBRARY and not file.startswith(("<frozen ", *INSTALLED))
