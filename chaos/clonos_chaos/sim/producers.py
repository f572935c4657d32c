"""Simulated producers: servers that push lines to a source that cannot be re-read.

A producer that goes back starts each connection where the job asks, so that nothing is lost. Other producers forget
what they have sent: lines not replicated when the connection ended are gone, and must not come out of the job.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any, Protocol

from clonos.core.model.ids import Incarnation, TaskId
from clonos.operators.journal_source import END_OF_JOURNAL
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, Clockwork

BREAKS = 0.01
REFUSALS = 0.05
LINES_MAX = 5


class ConnectionEnd(Protocol):
    """The slot's end of a connection to a producer."""

    clock: Clockwork
    incarnation: Incarnation
    is_held: bool

    @property
    def is_live(self) -> bool:
        """Whether it is open and its process runs."""

    @property
    def is_wanted(self) -> bool:
        """Whether it is live and the latest view has its incarnation."""

    def deliver(self, data: bytes) -> None:
        """Delivers data after a short delay, in order."""

    def fail(self, error: str) -> None:
        """Breaks the connection; both ends see it."""


class SimProducer:
    """Producer of the lines of some offsets. ``_sent``: lines replicated or in flight, in the order of the journal."""

    def __init__(self, task: TaskId, offsets: list[int], rng: Random, goes_back: bool) -> None:
        self.task, self.offsets, self.rng, self.goes_back = task, offsets, rng, goes_back
        self._sent: list[int] = []
        self._next = 0  # index of what to send next
        self._acknowledged_bytes = 0
        self.set_back: list[int] = []  # offsets (bytes) that the job went back to, below what it had acknowledged
        self._complaints: list[str] = []
        self.connection: ConnectionEnd | None = None

    # ------------------------------------------------------------------ the slot's side

    def connect(self, connection: ConnectionEnd, offset_bytes: int) -> None:
        """Accepts a connection of a slot after a delay."""
        clock = connection.clock
        clock.after(clock.between(10_000, 2 * MILLISECOND_NS), self._accept, connection, offset_bytes)

    def acknowledge(self, offset_bytes: int) -> None:
        """Takes note that the job has replicated the journal up to an offset."""
        self._acknowledged_bytes = max(self._acknowledged_bytes, offset_bytes)

    # ------------------------------------------------------------------ the producer's side

    def _accept(self, connection: ConnectionEnd, offset_bytes: int) -> None:
        if not connection.is_wanted:
            return  # the slot is dead, or the incarnation was replaced
        if self.rng.random() < REFUSALS:
            connection.fail("refused")
            return
        if self.connection is not None:
            self.connection.fail("there is another one")
        self.connection = connection
        self._go_back(offset_bytes)
        self._send_later(connection)

    def _go_back(self, offset_bytes: int) -> None:
        ends = [0, *accumulate(len(self._line(offset)) for offset in self._sent)]
        if offset_bytes not in ends:
            self._complaints.append(
                f"producer {self.task} is asked to begin at {offset_bytes}, where no line ends: {ends}"
            )
            return
        if offset_bytes < self._acknowledged_bytes:
            self.set_back.append(offset_bytes)
        self._acknowledged_bytes = offset_bytes
        retained = ends.index(offset_bytes)
        if self.goes_back:
            self._next -= len(self._sent) - retained
        del self._sent[retained:]

    @staticmethod
    def _line(offset: int) -> bytes:
        return b"%d\n" % offset

    def _send_later(self, connection: ConnectionEnd) -> None:
        connection.clock.after(self.rng.randint(10_000, 3 * MILLISECOND_NS), self._send, connection)

    def _send(self, connection: ConnectionEnd) -> None:
        if not connection.is_live:
            return
        if connection.is_held:
            self._send_later(connection)
            return
        if self.rng.random() < BREAKS:
            connection.fail("reset")
            return
        if self._next == len(self.offsets):
            connection.deliver(END_OF_JOURNAL)
            return
        offsets = self.offsets[self._next : self._next + self.rng.randint(1, LINES_MAX)]
        self._next += len(offsets)
        self._sent += offsets
        connection.deliver(b"".join(map(self._line, offsets)))
        self._send_later(connection)

    # ------------------------------------------------------------------ the end

    def retained(self) -> list[int]:
        """Returns the offsets that the job must have read, once it has ended."""
        return self._sent

    def complaints_of(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """Returns what is wrong: lines requested again after their acknowledgement were lost, which needs an alarm."""
        found = list(self._complaints)
        alarmed = {
            alarm["behind_bytes"] for alarm in alarms if alarm.get("task") == self.task and "behind_bytes" in alarm
        }
        for offset_bytes in self.set_back:
            if self.task not in exposed:
                found.append(f"producer {self.task} is set back to {offset_bytes}, below what was acknowledged")
            elif offset_bytes not in alarmed:
                found.append(f"producer {self.task} is set back to {offset_bytes} without an alarm")
        if self._next < len(self.offsets):
            found.append(f"the job has ended, but producer {self.task} has {len(self.offsets) - self._next} more lines")
        return found
