"""Time to live of state: an entry of a descriptor ends some time after its last write.

An entry that has ended is absent from then on, and is deleted when a step has ended or the watermark has passed it.
State: ``descriptor//ttl`` has the instant at which each entry ends. In event time that depends on the timestamps of the
records of a key, not on how the input is cut into batches.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import ANY, keyed
from clonos.operators.state.undo import Undo

ENDS: Final = keyed(f"{ANY}//ttl")
"""Table beside that of a descriptor: the instant at which each entry ends."""


class HasTime(Protocol):
    """Object that knows the time of the current record or timer."""

    def now_ns(self, is_event_time: bool) -> int:
        """Returns it in nanoseconds since the Unix epoch; it falls for records out of order in event time only."""


class Expiry:
    """Ends of the entries of one descriptor in one incarnation."""

    __slots__ = ("is_event_time", "_table", "_ends", "_ttl_ns", "_time", "_undo", "_queue", "_pushed", "_used_ns")

    def __init__(
        self, table: Table, name: str, state: StepState, ttl_ns: int, *, is_event_time: bool, time: HasTime
    ) -> None:
        """Creates the ends of ``table``, that of the descriptor ``name``."""
        self._table, self._ends = table, state.table(ENDS, name)
        self._ttl_ns, self.is_event_time, self._time = ttl_ns, is_event_time, time
        self._undo: Undo | None = None
        self._used_ns: int | None = None  # time of the last use in this step
        contents = self._ends.contents()
        self._queue = [(ends_ns, number, key) for number, (key, ends_ns) in enumerate(contents.items())]
        self._pushed = len(self._queue)
        heapify(self._queue)

    def with_undo(self, undo: Undo | None) -> Expiry:
        """Lets the changes of a record that raises be undone."""
        self._undo = undo
        return self

    def look(self, key: Any) -> None:
        """Deletes the entry of a key if it has ended."""
        ends_ns = self._ends.entries.get(key)
        if ends_ns is not None and ends_ns <= self._now_ns():
            if self._undo is not None:
                self._undo.keep(self._table, key, copies=False)
            self._table.delete(key)
            self.forget(key)

    def write(self, key: Any) -> None:
        """Notes that the entry of a key is written now."""
        ends_ns = self._now_ns() + self._ttl_ns
        before_ns = self._ends.entries.get(key)
        if before_ns is not None and before_ns >= ends_ns:
            return
        if self._undo is not None:
            self._undo.keep(self._ends, key, copies=False)
        self._ends.set(key, ends_ns)
        if before_ns is None:
            self._push(ends_ns, key)

    def forget(self, key: Any) -> None:
        """Notes that the entry of a key is deleted."""
        if self._undo is not None:
            self._undo.keep(self._ends, key, copies=False)
        self._ends.delete(key)

    def _now_ns(self) -> int:
        self._used_ns = now_ns = self._time.now_ns(self.is_event_time)
        return now_ns

    def end_step(self) -> None:
        """Deletes the entries that have ended by the clock, in a step that has read it.

        Another step must not read it: whether state was used before depends on where its incarnation began.
        """
        if self._used_ns is not None and not self.is_event_time:
            self.sweep(self._used_ns)
        self._used_ns = None

    def sweep(self, now_ns: int) -> None:
        """Deletes the entries that have ended, between two records."""
        while self._queue and self._queue[0][0] <= now_ns:
            _, _, key = heappop(self._queue)
            ends_ns = self._ends.entries.get(key)
            if ends_ns is None:
                continue
            if ends_ns > now_ns:  # written again
                self._push(ends_ns, key)
            else:
                self._table.delete(key)
                self._ends.delete(key)

    def _push(self, ends_ns: int, key: Any) -> None:
        self._pushed += 1
        heappush(self._queue, (ends_ns, self._pushed, key))
