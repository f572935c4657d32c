"""Wakes a thread that waits in a poll, from any other thread, at the cost of one system call a nap.

The order matters and nothing else is needed: a producer queues its item, then calls ``wake``; the consumer calls
``clear`` and then drains the queue. So an item is either drained or followed by a wake.
"""

from __future__ import annotations

import os


class Wakeup:
    """A file descriptor that becomes readable. ``wake`` may be called by any thread, ``clear`` by the waiting one."""

    __slots__ = ("_is_awake", "_read_end", "_write_end")

    def __init__(self) -> None:
        self._is_awake = False
        if hasattr(os, "eventfd"):
            self._read_end = self._write_end = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._read_end, self._write_end = os.pipe()
            os.set_blocking(self._read_end, False)
            os.set_blocking(self._write_end, False)

    def fileno(self) -> int:
        """What to poll for reading."""
        return self._read_end

    def wake(self) -> None:
        """Ends the nap of the waiting thread, the present or else the next one. Not to be called after ``close``."""
        if not self._is_awake:
            self._is_awake = True
            os.write(self._write_end, b"\1\0\0\0\0\0\0\0")

    def clear(self) -> None:
        """Before the queue is drained."""
        if self._is_awake:
            try:
                os.read(self._read_end, 4096)
            except BlockingIOError:  # the producer has set the flag and is about to write: one idle turn follows
                return
            self._is_awake = False

    def close(self) -> None:
        """Gives the descriptor back; a later ``wake`` does nothing."""
        self._is_awake = True
        os.close(self._read_end)
        if self._write_end != self._read_end:
            os.close(self._write_end)
