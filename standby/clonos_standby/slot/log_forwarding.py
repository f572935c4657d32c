"""Forwarding of a slot's log lines to the driver's log, because users do not see the output of slot processes.

Lines of ``clonos.logger`` in user code are forwarded too. More than 100 lines in a second are suppressed, and their
number is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clonos.core.model.ids import SlotId
from clonos.core.ports.task_failure import encodable
from clonos.core.wire.control_messages import Logged

LINES_PER_SECOND_MAX = 100
TEXT_CHARACTERS_MAX = 20_000
ROOT = "clonos"
"""Logger whose lines are forwarded, with all loggers below it."""


class Forwarder(logging.Handler):
    """Handler that forwards log records. ``send`` may be called by any thread, and must not block."""

    def __init__(self, slot: SlotId, send: Callable[[Logged], None]) -> None:
        super().__init__()
        self._slot, self._send = slot, send
        self._second = 0
        self._lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Forwards one record; called with the handler's lock held."""
        second = int(time.monotonic())
        if second != self._second:
            left_out = self._lines - LINES_PER_SECOND_MAX
            self._second, self._lines = second, 0
            if left_out > 0:
                self._forward(logging.WARNING, ROOT, f"{left_out} more lines were suppressed")
        self._lines += 1
        if self._lines <= LINES_PER_SECOND_MAX:
            self._forward(record.levelno, record.name, self.format(record))

    def _forward(self, level: int, name: str, text: str) -> None:
        self._send(Logged(self._slot, level, name, encodable(text[:TEXT_CHARACTERS_MAX])))


@contextmanager
def forwarded(level: int, slot: SlotId, send: Callable[[Logged], None]) -> Iterator[None]:
    """Forwards log lines of at least ``level`` inside the context; they appear nowhere else."""
    logger, handler = logging.getLogger(ROOT), Forwarder(slot, send)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        handler.close()
