"""Wakes a thread that waits in a poll, from any other thread, with at most one system call per wait.

A producer enqueues its item and then calls ``wake``; the consumer calls ``clear`` and then drains the queue. Because of
this order, each item is either drained or followed by a wake.
"""

from __future__ import annotations

import os
import weakref


class Wakeup:
    """File descriptor that becomes readable. ``wake`` may be called by any thread, ``clear`` by the waiting one."""

    __slots__ = ("__weakref__", "_is_awake", "_read_end", "_write_end")

    def __init__(self) -> None:
        self._is_awake = False
        if hasattr(os, "eventfd"):
            self._read_end = self._write_end = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._read_end, self._write_end = os.pipe()
            os.set_blocking(self._read_end, False)
            os.set_blocking(self._write_end, False)
        weakref.finalize(self, _close, {self._read_end, self._write_end})

    def fileno(self) -> int:
        """Returns the file descriptor to poll for reading."""
        return self._read_end

    def wake(self) -> None:
        """Ends the current or the next wait of the consumer."""
        if not self._is_awake:
            self._is_awake = True
            os.write(self._write_end, b"\1\0\0\0\0\0\0\0")

    def clear(self) -> None:
        """Resets the descriptor, before the queue is drained."""
        if self._is_awake:
            try:
                os.read(self._read_end, 4096)
            except BlockingIOError:  # a producer has set the flag and will write next: one idle turn follows
                return
            self._is_awake = False

    def close(self) -> None:
        """Makes every later ``wake`` do nothing.

        The descriptor is closed with the last reference to the object: a thread may be about to write to it, and must
        not write to a file that has been given the same number.
        """
        self._is_awake = True


def _close(descriptors: set[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
