"""Code locations for tracebacks, by module name because file paths differ between hosts."""

from __future__ import annotations

from types import TracebackType


def place_of(traceback: TracebackType) -> str:
    """Returns ``module:line in function`` for an entry of a traceback, with the file's name for a script."""
    frame = traceback.tb_frame
    module = frame.f_globals.get("__name__")
    if not isinstance(module, str) or module == "__main__":
        module = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{module}:{traceback.tb_lineno} in {frame.f_code.co_name}"
