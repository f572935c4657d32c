"""Lines that a slot logs appear in the driver's log: nobody looks into the output of a slot's process.

What user code says by ``clonos.logger`` goes the same way. A flood is cut: so many lines a second, then a line that
says how many were left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clonos.core.model.ids import SlotId
from clonos.core.wire.control_messages import Logged

LINES_PER_SECOND_MAX = 100
TEXT_CHARACTERS_MAX = 20_000
ROOT = "clonos"
"""The logger whose lines travel, with those below it."""


class Forwarder(logging.Handler):
    """``send`` may be called by any thread, and must not block."""

    def __init__(self, slot: SlotId, send: Callable[[Logged], None]) -> None:
        super().__init__()
        self._slot, self._send = slot, send
        self._second = 0
        self._lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """One line; the handler's lock is held."""
        second = int(time.monotonic())
        if second != self._second:
            left_out = self._lines - LINES_PER_SECOND_MAX
            self._second, self._lines = second, 0
            if left_out > 0:
                self._tell(logging.WARNING, ROOT, f"{left_out} more lines were suppressed")
        self._lines += 1
        if self._lines <= LINES_PER_SECOND_MAX:
            self._tell(record.levelno, record.name, self.format(record))

    def _tell(self, level: int, name: str, text: str) -> None:
        self._send(Logged(self._slot, level, name, text[:TEXT_CHARACTERS_MAX]))


@contextmanager
def forwarded(level: int, slot: SlotId, send: Callable[[Logged], None]) -> Iterator[None]:
    """Within it, lines of at least this level travel, and appear nowhere else."""
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
