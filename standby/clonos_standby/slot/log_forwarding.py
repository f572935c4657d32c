"""Forwarding of what a slot logs and prints to the driver, because users do not see the output of slot processes.

Lines of ``clonos.logger``, of other loggers and of ``print`` in user code have their task, incarnation and epoch.
More than 100 log lines or 1,000 printed lines in a second are suppressed, and their number is logged.
"""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Final

from clonos.core.model.ids import SlotId
from clonos.core.ports.recorder import current
from clonos.core.ports.task_failure import encodable
from clonos.core.wire.control_messages import PRINTED, Logged
from clonos.io.net.rate_limited_log import ROOT

LINES_PER_SECOND_MAX: Final = 100
PRINTED_PER_SECOND_MAX: Final = 1_000
TEXT_CHARACTERS_MAX: Final = 20_000

THREAD_OF_TASK: Final = "task "
THREAD_OF_CALL: Final = "call "
"""Beginnings of the names of threads that run user code; the names of the task and of its incarnation follow."""


class RateLimit:
    """Limit of lines in a second, with the number of those beyond it."""

    def __init__(self, lines_max: int) -> None:
        self._lines_max = lines_max
        self._second = self._lines = 0

    def take(self) -> tuple[bool, int]:
        """Counts a line; returns whether it is within the limit, and how many were not in a second that has ended."""
        second, left_out = int(time.monotonic()), 0
        if second != self._second:
            left_out = max(0, self._lines - self._lines_max)
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= self._lines_max, left_out


class Forwarder(logging.Handler):
    """Handler that forwards log records. ``send`` may be called by any thread, and must not block."""

    def __init__(self, slot: SlotId, send: Callable[[Logged], None]) -> None:
        super().__init__()
        self._slot, self._send = slot, send
        self._limit = RateLimit(LINES_PER_SECOND_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        """Forwards one record; called with the handler's lock held."""
        is_within, left_out = self._limit.take()
        if left_out:
            self._send(Logged(self._slot, logging.WARNING, ROOT, f"{left_out} more lines were suppressed"))
        if is_within:
            text = encodable(self.format(record)[:TEXT_CHARACTERS_MAX])
            self._send(Logged(self._slot, record.levelno, record.name, text, *place_of(record.threadName or "")))


class PrintForwarder(io.TextIOBase):
    """Standard output or standard error of a slot: forwards each complete line that a thread writes."""

    def __init__(self, slot: SlotId, send: Callable[[Logged], None], level: int) -> None:
        self._slot, self._send, self._level = slot, send, level
        self._limit = RateLimit(PRINTED_PER_SECOND_MAX)
        self._lock = threading.RLock()  # a finalizer may print while this thread does
        self._begun: dict[str, str] = {}  # by thread, what it has written since its last line

    def writable(self) -> bool:
        """Returns True."""
        return True

    def write(self, text: str) -> int:
        """Takes text; returns its length. A line without an end is forwarded in pieces."""
        thread = threading.current_thread().name
        with self._lock:
            *lines, begun = (self._begun.pop(thread, "") + text).split("\n")
            if "\r" in begun.rstrip("\r"):  # a progress bar writes its line again
                begun = begun[begun.rstrip("\r").rindex("\r") + 1 :]
            if len(begun) >= TEXT_CHARACTERS_MAX:
                lines.append(begun)
            elif begun:
                self._begun[thread] = begun
            for line in lines:
                self._forward(line.rstrip("\r").rpartition("\r")[2], place_of(thread))
        return len(text)

    def _forward(self, line: str, place: tuple[str, str, int | None]) -> None:
        is_within, left_out = self._limit.take()
        if left_out:
            self._send(Logged(self._slot, logging.WARNING, ROOT, f"{left_out} more printed lines were suppressed"))
        if is_within:
            self._send(Logged(self._slot, self._level, PRINTED, encodable(line[:TEXT_CHARACTERS_MAX]), *place))

    def end(self) -> None:
        """Forwards the lines that were begun."""
        with self._lock:
            for thread, begun in self._begun.items():
                self._forward(begun, place_of(thread))
            self._begun.clear()


def place_of(thread: str) -> tuple[str, str, int | None]:
    """Returns task, incarnation and epoch of the code that runs in a thread of this name: "", "" and None for threads
    of the library."""
    if not thread.startswith((THREAD_OF_TASK, THREAD_OF_CALL)):
        return "", "", None
    recorder = current()
    _, task, incarnation, *_ = thread.split(" ")
    return task, incarnation, None if recorder is None else recorder.epoch


@contextmanager
def forwarded(
    level: int, slot: SlotId, send: Callable[[Logged], None], root_level: int = logging.WARNING
) -> Iterator[None]:
    """Forwards log lines and printed lines inside the context; they appear nowhere else.

    ``level``: of the library's loggers. ``root_level``: of all others.
    """
    handler = Forwarder(slot, send)
    outputs = [PrintForwarder(slot, send, logging.INFO), PrintForwarder(slot, send, logging.WARNING)]
    with ExitStack() as stack:
        stack.callback(handler.close)
        for name, wanted in ((ROOT, level), (None, root_level)):
            stack.enter_context(_handled(logging.getLogger(name), handler, wanted))
        for output, redirect in zip(outputs, (redirect_stdout, redirect_stderr), strict=True):
            stack.callback(output.end)
            stack.enter_context(redirect(output))
        yield


@contextmanager
def _handled(logger: logging.Logger, handler: logging.Handler, level: int) -> Iterator[None]:
    """Makes ``handler`` the only handler of a logger that gets its lines."""
    before = logger.level, logger.propagate, logger.handlers
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.handlers = before[2]
        logger.propagate = before[1]
        logger.setLevel(before[0])
