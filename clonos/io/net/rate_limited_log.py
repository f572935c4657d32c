"""Rate-limited log of messages that peers can cause: at most 10 lines of a kind in 10 seconds, indented so that no peer
can forge a line."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clonos.core.wire.printable import indented

LINES_MAX = 10
"""Lines of one kind in ``WINDOW_S``; further lines are counted."""

WINDOW_S = 10.0

ROOT: Final = "clonos"
"""Logger of the library. Lines of a slot for it, and for all loggers below it, appear nowhere but in the driver."""


@dataclass(slots=True)
class _Window:
    """Count of the lines of one kind since ``began_s``."""

    level: int
    began_s: float
    lines: int = 0
    left_out: int = 0


class RateLimitedLog:
    """Log that writes to ``logger``. A kind is a short text, which the summary of suppressed lines names."""

    def __init__(self, logger: logging.Logger, lines_max: int = LINES_MAX) -> None:
        self._logger = logger
        self._lines_max = lines_max
        self._windows: dict[str, _Window] = {}

    def warning(self, kind: str, text: str) -> bool:
        """Logs or counts a warning; returns True when it was logged."""
        return self.log(kind, logging.WARNING, text)

    def log(
        self,
        kind: str,
        level: int,
        text: str,
        logger: logging.Logger | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> bool:
        """Logs or counts a line; returns True when it was logged. ``extra``: attributes of the log record."""
        now_s = time.monotonic()
        window = self._windows.get(kind)
        if window is None or now_s - window.began_s >= WINDOW_S:
            self._end(kind)
            window = self._windows[kind] = _Window(level, now_s)
        window.lines += 1
        if window.lines > self._lines_max:
            window.left_out += 1
            return False
        (logger or self._logger).log(level, "%s", indented(text), extra=extra)
        return True

    def tick(self) -> None:
        """Logs the number of suppressed lines of each window that has ended. Called periodically."""
        now_s = time.monotonic()
        for kind, window in list(self._windows.items()):
            if now_s - window.began_s >= WINDOW_S:
                self._end(kind)

    def close(self) -> None:
        """Logs the number of suppressed lines so far."""
        for kind in list(self._windows):
            self._end(kind)

    def _end(self, kind: str) -> None:
        window = self._windows.pop(kind, None)
        if window is not None and window.left_out:
            self._logger.log(window.level, "%d more lines were suppressed: %s", window.left_out, kind)


def logger_of(name: str) -> logging.Logger:
    """Returns the logger of this name, else the library's or the root: a peer must not create loggers."""
    if name in logging.Logger.manager.loggerDict:
        return logging.getLogger(name)
    return logging.getLogger(ROOT if name.startswith(ROOT) else None)
