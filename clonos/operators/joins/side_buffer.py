"""Buffer of one side of a join: its records by key, in the order of their timestamps.

The table of the state has one entry per record, so that a checkpoint has only the records that came or went. Records
are never changed here; a join emits copies of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, NamedTuple

from clonos.core.values.keys import state_keys
from clonos.operators.state.keyed_state import Table


class Buffered(NamedTuple):
    """Record in a buffer. ``number`` is its place in the order of arrival, so no comparison comes to the record."""

    timestamp_ns: int
    number: int
    row: Any


class SideBuffer:
    """Buffer of one side. Its keys are state keys."""

    __slots__ = ("_of_key", "_table")

    def __init__(self, table: Table) -> None:
        self._table = table  # number -> (key of the user, timestamp in ns, record)
        self._of_key: dict[Any, list[Buffered]] = {}
        for key, buffered in self.all():
            self._of_key.setdefault(key, []).append(buffered)
        for records in self._of_key.values():
            records.sort()

    def all(self) -> Iterator[tuple[Any, Buffered]]:
        """Yields all records with their state keys, in the order of arrival."""
        entries = self._table.contents()
        keys = state_keys([key for key, _, _ in entries.values()])
        for stored, (number, (_, timestamp_ns, row)) in zip(keys, entries.items(), strict=True):
            yield stored, Buffered(timestamp_ns, number, row)

    def __contains__(self, number: int) -> bool:
        return number in self._table.entries

    def __len__(self) -> int:
        return sum(map(len, self._of_key.values()))

    def add(self, stored: Any, key: Any, buffered: Buffered) -> None:
        """Adds a record. ``key`` is the user's key."""
        self._table.set(buffered.number, (key, buffered.timestamp_ns, buffered.row))
        records = self._of_key.setdefault(stored, [])
        if records and records[-1].timestamp_ns > buffered.timestamp_ns:
            insort(records, buffered)
        else:
            records.append(buffered)

    def between(self, stored: Any, first_ns: int, last_ns: int) -> list[Buffered]:
        """Returns the records of a key with timestamps from ``first_ns`` to ``last_ns``, by timestamp and arrival."""
        records = self._of_key.get(stored)
        if records is None:
            return []
        return records[bisect_left(records, (first_ns,)) : bisect_left(records, (last_ns + 1,))]

    def has_between(self, stored: Any, first_ns: int, last_ns: int) -> bool:
        """Returns whether a key has a record with a timestamp from ``first_ns`` to ``last_ns``."""
        records = self._of_key.get(stored, ())
        place = bisect_left(records, (first_ns,))
        return place < len(records) and records[place].timestamp_ns <= last_ns

    def remove(self, stored: Any, buffered: Buffered) -> None:
        """Removes one record."""
        records = self._of_key[stored]
        del records[bisect_left(records, (buffered.timestamp_ns, buffered.number))]
        self._table.delete(buffered.number)
        if not records:
            del self._of_key[stored]

    def remove_before(self, stored: Any, timestamp_ns: int) -> None:
        """Removes the records of a key that are earlier than ``timestamp_ns``."""
        records = self._of_key.get(stored, [])
        end = bisect_left(records, (timestamp_ns,))
        self._remove_first(stored, records, end)

    def _remove_first(self, stored: Any, records: list[Buffered], count: int) -> None:
        if count <= 0:
            return
        for buffered in records[:count]:
            self._table.delete(buffered.number)
        del records[:count]
        if not records:
            del self._of_key[stored]
