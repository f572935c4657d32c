"""Last lines of a driver's log, which has those of all its slots too: what keeps them, without the API's libraries."""

from __future__ import annotations

import logging
import re
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from clonos_standby.driver.printed_lines import PRINTED_LINES

Line = TypeVar("Line")
Handler = TypeVar("Handler", bound=logging.Handler)

LINES_MAX: Final = 5_000
"""Lines that are remembered. Older ones are dropped."""

ANSWER_LINES_MAX: Final = 1_000
"""Lines of one answer."""

_OF_TASK: Final = re.compile(r"\[?([A-Za-z0-9_.+-]+/\d+)(?:\]|:) ")
"""Beginning of a line that a task has written, as the driver logs it."""


class LastLines(logging.Handler, Generic[Line]):
    """Handler that keeps the last lines, numbered from 1 without gaps."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[Line] = deque(maxlen=LINES_MAX)
        self._number = 0
        self._lines_lock = threading.RLock()  # a signal handler logs in the thread that it interrupts, perhaps in emit
        self._came: deque[tuple[logging.LogRecord, str, str | None]] = deque()
        self._is_keeping = False

    @abstractmethod
    def line(self, number: int, record: logging.LogRecord, text: str, task: str | None) -> Line:
        """Makes a line of a record. ``task``: the name of the task that has written it, if one has."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one line."""
        text = str(getattr(record, "line", "") or record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        writer = _OF_TASK.match(text)
        task = getattr(record, "task", None) or (writer[1] if writer else None)
        with self._lines_lock:
            self._came.append((record, text, None if task is None else str(task)))
            if not self._is_keeping:  # else the call that this one has interrupted keeps this line after its own
                self._keep_all()

    def _keep_all(self) -> None:
        self._is_keeping = True
        try:
            while self._came:
                self._lines.append(self.line(self._number + 1, *self._came.popleft()))
                self._number += 1
        finally:
            self._is_keeping = False

    @property
    def last(self) -> int:
        """Number of the last line, 0 before the first."""
        return self._number

    def lines_after(self, number: int, limit: int) -> list[Line]:
        """Returns up to ``limit`` lines after line ``number``, oldest first."""
        with self._lines_lock:
            lines = list(self._lines)
            first = self._number - len(lines)  # the number before that of the first line
        begin = max(0, number - first)
        return lines[begin : begin + limit]


@contextmanager
def collecting(handler: Handler) -> Iterator[Handler]:
    """Context in which a handler gets the lines of this process, and those that tasks print."""
    loggers = (logging.getLogger(), PRINTED_LINES)
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield handler
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()
