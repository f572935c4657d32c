"""Places in code as people read them: by module, since files lie elsewhere on another host."""

from __future__ import annotations

from types import TracebackType


def place_of(traceback: TracebackType) -> str:
    """``module:line in function`` of one entry of a traceback; the file's name where the module has none of its own."""
    frame = traceback.tb_frame
    module = frame.f_globals.get("__name__")
    if not isinstance(module, str) or module == "__main__":
        module = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{module}:{traceback.tb_lineno} in {frame.f_code.co_name}"
