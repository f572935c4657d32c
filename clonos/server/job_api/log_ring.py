"""Ring of the last log lines of a driver, as documents of its API."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from clonos.io.system.wall_clock import time_text
from clonos.job.last_lines import ANSWER_LINES_MAX, LastLines, collecting
from clonos.server.job_api.documents import LogDocument, LogLine

TEXT_CHARACTERS_MAX: Final = 8_000


class LogRing(LastLines[LogLine]):
    """Handler that keeps the last lines. ``notify`` is called after each, in the thread that logs."""

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.notify = notify

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one line."""
        super().emit(record)
        self.notify()

    def line(self, number: int, record: logging.LogRecord, text: str, task: str | None) -> LogLine:
        """Makes a line of a record."""
        return LogLine(
            number=number,
            at=time_text(int(record.created * 1e9)),
            level=record.levelname,
            logger=record.name,
            text=text[:TEXT_CHARACTERS_MAX],
            task=task,
            incarnation=_number(record, "incarnation"),
            epoch=_number(record, "epoch"),
        )

    def after(self, number: int, limit: int = ANSWER_LINES_MAX) -> LogDocument:
        """Returns up to ``limit`` lines after line ``number``, oldest first; of more lines, the next ones."""
        lines = self.lines_after(number, min(limit, ANSWER_LINES_MAX))
        return LogDocument(lines=lines, next=lines[-1].number if lines else max(number, 0))


def _number(record: logging.LogRecord, name: str) -> int | None:
    """Returns an attribute that the driver gives to records of tasks; None without it."""
    found = getattr(record, name, None)
    return found if isinstance(found, int) and found else None


def log_ring() -> AbstractContextManager[LogRing]:
    """Returns a context in which a ring keeps the lines of this process."""
    return collecting(LogRing())
