"""Last line of a process's log, for the message about its end: the log is deleted with the run's folder."""

from __future__ import annotations

from pathlib import Path


def last_line(log: Path) -> str:
    """Returns the last line that is not empty: for a traceback, the error."""
    written = log.read_text("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(written) if line.strip()), "nothing")
