"""Requests that wait until a keeper holds them: between the threads of the server and that of the journal."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from clonos.io.system import wall_clock

TAKE_BYTES: Final = 256 << 10
WAITING_BYTES_MAX: Final = 64 << 20
"""Bytes of bodies that are being received or wait. Further requests are told to come again."""

HELD_NS: Final = 500_000_000
"""Time without a ``take`` after which the source is held back, so that new requests are told to come again."""


class Receipt:
    """Request that waits. ``is_held`` when a keeper holds it."""

    __slots__ = ("is_answered", "is_held", "record")

    def __init__(self, record: bytes) -> None:
        self.record = record
        self.is_held = False
        self.is_answered = threading.Event()  # held, or never will be


class Receipts:
    """Queue of requests. The server's threads ``reserve``, ``release`` and ``hold``; one other thread does the rest."""

    def __init__(self, offset_bytes: int, monotonic: Callable[[], int] = wall_clock.monotonic_ns) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._arrived: deque[Receipt] = deque()
        self._taken: deque[tuple[int, Receipt]] = deque()  # with the offsets after them
        self._taken_bytes = offset_bytes
        self._reserved_bytes = 0
        self._is_taking = self._is_closed = False
        self._taken_ns = monotonic()

    # ------------------------------------------------------------------ the server's threads

    def reserve(self, size_bytes: int) -> bool:
        """Returns whether a body of this size may be received now; ``release`` gives its space back."""
        with self._changed:
            is_held = not self._is_taking and self._monotonic() - self._taken_ns > HELD_NS
            if self._is_closed or is_held or self._reserved_bytes + size_bytes > WAITING_BYTES_MAX:
                return False
            self._reserved_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Gives back the space of a body."""
        with self._changed:
            self._reserved_bytes -= size_bytes

    def hold(self, record: bytes, limit_s: float) -> bool:
        """Hands a record over; returns whether a keeper holds it within the limit.

        A record that was not taken by then never is. Another one may be journalled although the result is False.
        """
        receipt = Receipt(record)
        with self._changed:
            if self._is_closed:
                return False
            self._arrived.append(receipt)
            self._changed.notify_all()
        receipt.is_answered.wait(limit_s)
        with self._changed:
            if receipt in self._arrived:
                self._arrived.remove(receipt)
            return receipt.is_held

    # ------------------------------------------------------------------ the thread of the journal

    def take(self, wait_s: float) -> bytes:
        """Returns the records that have arrived, as soon as there are any; b"" if there are none in time."""
        with self._changed:
            self._is_taking = True
            self._changed.wait_for(lambda: self._arrived, wait_s)
            self._is_taking, self._taken_ns = False, self._monotonic()
            records: list[bytes] = []
            size_bytes = 0
            while self._arrived and size_bytes < TAKE_BYTES:
                receipt = self._arrived.popleft()
                records.append(receipt.record)
                size_bytes += len(receipt.record)
                self._taken.append((self._taken_bytes + size_bytes, receipt))
            self._taken_bytes += size_bytes
        return b"".join(records)

    def acknowledge(self, offset_bytes: int) -> None:
        """Notes that keepers hold the journal before an offset."""
        with self._changed:
            while self._taken and self._taken[0][0] <= offset_bytes:
                receipt = self._taken.popleft()[1]
                receipt.is_held = True
                receipt.is_answered.set()

    def close(self) -> None:
        """Ends all waits: what is not held will not be."""
        with self._changed:
            self._is_closed = True
            for receipt in (*self._arrived, *(receipt for _, receipt in self._taken)):
                receipt.is_answered.set()
