"""Last lines of a process's log, for the message about its end: the log is deleted with the run's folder."""

from __future__ import annotations

from pathlib import Path


def last_line(log: Path) -> str:
    """Returns the last line that is not empty: for a traceback, the error."""
    return (last_lines(log, 1) or ["nothing"])[0].strip()


def last_lines(log: Path, count: int) -> list[str]:
    """Returns the last ``count`` lines that are not empty."""
    return [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()][-count:]
