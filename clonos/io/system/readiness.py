"""Waiting for one descriptor. ``select`` takes none above 1,023, which a driver with many connections reaches."""

from __future__ import annotations

import select
from typing import Final

MILLISECONDS: Final = 1_000


def wait_readable(descriptor: int, wait_s: float | None = None) -> bool:
    """Waits until a descriptor can be read, or its other end is gone. Returns False when nothing came in time.

    ``wait_s``: None waits without a limit, 0 only looks.
    """
    return _wait(descriptor, select.POLLIN, wait_s)


def wait_writable(descriptor: int, wait_s: float | None = None) -> bool:
    """Waits until a descriptor can be written, or its other end is gone. Returns False when nothing came in time."""
    return _wait(descriptor, select.POLLOUT, wait_s)


def _wait(descriptor: int, event: int, wait_s: float | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, event)
    return bool(poller.poll(None if wait_s is None else wait_s * MILLISECONDS))
