"""Ring of the last log lines of a driver, which has the lines of all its slots too."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from clonos.server.job_api.documents import LogDocument, LogLine, time_text
from clonos_standby.driver.printed_lines import PRINTED_LINES

LINES_MAX: Final = 5_000
"""Lines that are remembered. Older ones are dropped."""

ANSWER_LINES_MAX: Final = 1_000
"""Lines of one answer."""

TEXT_CHARACTERS_MAX: Final = 8_000

_OF_TASK: Final = re.compile(r"\[?([A-Za-z0-9_.+-]+/\d+)(?:\]|:) ")
"""Beginning of a line that a task has written, as the driver logs it."""


class LogRing(logging.Handler):
    """Handler that keeps the last lines. ``notify`` is called after each, in the thread that logs."""

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.notify = notify
        self._lines: deque[LogLine] = deque(maxlen=LINES_MAX)
        self._number = 0
        self._lines_lock = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one line."""
        text = str(getattr(record, "line", "") or record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        writer = _OF_TASK.match(text)
        task = getattr(record, "task", "") or (writer[1] if writer else "")
        with self._lines_lock:
            self._number += 1
            self._lines.append(
                LogLine(
                    number=self._number,
                    at=time_text(int(record.created * 1e9)),
                    level=record.levelname,
                    logger=record.name,
                    text=text[:TEXT_CHARACTERS_MAX],
                    task=str(task) or None,
                    incarnation=_number(record, "incarnation"),
                    epoch=_number(record, "epoch"),
                )
            )
        self.notify()

    @property
    def last(self) -> int:
        """Number of the last line, 0 before the first."""
        return self._number

    def after(self, number: int, limit: int = ANSWER_LINES_MAX) -> LogDocument:
        """Returns up to ``limit`` lines behind line ``number``, oldest first; of more lines, the next ones."""
        with self._lines_lock:
            found: list[LogLine] = []
            for line in reversed(self._lines):
                if line.number <= number:
                    break
                found.append(line)
        found.reverse()
        lines = found[: min(limit, ANSWER_LINES_MAX)]
        return LogDocument(lines=lines, next=lines[-1].number if lines else max(number, 0))


def _number(record: logging.LogRecord, name: str) -> int | None:
    """Returns an attribute that the driver gives to records of tasks; None without it."""
    found = getattr(record, name, None)
    return found if isinstance(found, int) and found else None


@contextmanager
def log_ring() -> Iterator[LogRing]:
    """Context in which a ring keeps the lines of this process."""
    ring = LogRing()
    loggers = (logging.getLogger(), PRINTED_LINES)
    for logger in loggers:
        logger.addHandler(ring)
    try:
        yield ring
    finally:
        for logger in loggers:
            logger.removeHandler(ring)
        ring.close()
