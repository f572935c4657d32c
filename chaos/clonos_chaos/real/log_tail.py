"""What a process wrote last, for the message that tells of its end: its log goes with the folder of the run."""

from __future__ import annotations

from pathlib import Path


def last_line(log: Path) -> str:
    """The last line that is not empty; of a traceback, what was raised."""
    written = log.read_text("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(written) if line.strip()), "nothing")
