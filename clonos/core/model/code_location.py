"""Code locations for tracebacks: by module name, because file paths differ between hosts, and as lines of user code."""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Final

USER_FRAMES_MAX: Final = 3
LINE_CHARACTERS_MAX: Final = 160

LIBRARY: Final = ("clonos", "clonos_chaos", "clonos_services", "clonos_standby")
"""Packages whose frames are not the user's."""

INSTALLED: Final = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Folders of modules that the user has not written: the standard library and installed packages."""


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
    entries = [entry for entry in _entries(error) if _is_users(entry.tb_frame)]
    lines = []
    hidden = len(entries) - USER_FRAMES_MAX
    if hidden > 0:
        lines.append(f"  ({hidden} more {'frame' if hidden == 1 else 'frames'})")
    for entry in entries[-USER_FRAMES_MAX:]:
        code = entry.tb_frame.f_code
        lines.append(f'  File "{code.co_filename}", line {entry.tb_lineno}, in {code.co_name}')
        source = linecache.getline(code.co_filename, entry.tb_lineno, entry.tb_frame.f_globals).strip()
        if source:
            lines.append(f"    {source[:LINE_CHARACTERS_MAX]}")
    return "\n".join(lines)


def _entries(error: BaseException) -> Iterator[TracebackType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package not in LIBRARY and not file.startswith(("<frozen ", *INSTALLED))
