"""Records of one side of a join that are Python objects: by number, by key, and by the instant at which they are due.

A table has one entry for each record, so that a checkpoint has only those that came or went. Records are never changed
here: results have copies.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import Any

from clonos.core.ports.operator_chain import ROWS_AT_ONCE
from clonos.core.values.keys import state_keys
from clonos.operators.kinds.object_side import ObjectSide
from clonos.operators.state.keyed_state import Table

Record = tuple[int, int, Any, Any]
"""Timestamp, number in the order of arrival, row, and key of the user. No comparison comes to the row."""


class Agenda:
    """Tuples that begin with an instant and a number, in their order: a heap of sorted runs, one for each batch."""

    __slots__ = ("_runs",)

    def __init__(self, items: list[Any]) -> None:
        self._runs: list[list[Any]] = []
        self.add(items)

    @property
    def first_ns(self) -> int | None:
        """Instant of the first one."""
        return self._runs[0][0][0] if self._runs else None

    def add(self, items: list[Any]) -> None:
        """Adds tuples."""
        items = sorted(items)
        for first in range(0, len(items), ROWS_AT_ONCE):
            heappush(self._runs, items[first : first + ROWS_AT_ONCE])

    def take(self, before_ns: int | None) -> list[Any]:
        """Removes those before an instant, or all, and returns them in order."""
        runs = self._runs
        found: list[Any] = []
        rest = []
        while runs and (before_ns is None or runs[0][0][0] < before_ns):
            run = heappop(runs)
            end = len(run) if before_ns is None else bisect_left(run, (before_ns,))
            found += run[:end]
            if end < len(run):
                rest.append(run[end:])
        for run in rest:
            heappush(runs, run)
        found.sort()
        return found


class RecordTable:
    """Records of a side by number."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.next_number: int = next(reversed(table.contents()), -1) + 1

    @property
    def records(self) -> list[Record]:
        """Records, in the order of arrival."""
        return list(self._table.contents().values())

    def __contains__(self, number: int) -> bool:
        return number in self._table.entries

    def append(self, batch: ObjectSide, *, without_rows: bool = False) -> list[Record]:
        """Adds records and returns them. ``without_rows``: their keys and timestamps alone."""
        numbers = range(self.next_number, self.next_number + len(batch.keys))
        self.next_number = numbers.stop
        rows = [None] * len(numbers) if without_rows else batch.rows
        records = list(zip(batch.instants, numbers, rows, batch.keys, strict=True))
        self._table.update(dict(zip(numbers, records, strict=True)))
        return records

    def delete(self, numbers: list[int]) -> None:
        """Deletes records."""
        self._table.delete_each(numbers)


class KeyedRecords(RecordTable):
    """Records of a side by key, those of a key by timestamp and arrival."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.of_key: dict[Any, list[Record]] = {}
        records = self.records
        for stored, record in zip(state_keys([key for *_, key in records]), records, strict=True):
            self.insert(stored, record)

    def __len__(self) -> int:
        return sum(map(len, self.of_key.values()))

    def insert(self, stored: Any, record: Record) -> list[Record]:
        """Adds a record that the table has, and returns those of its key."""
        records = self.of_key.get(stored)
        if records is None:
            records = self.of_key[stored] = [record]
        elif records[-1][0] <= record[0]:
            records.append(record)
        else:
            insort(records, record)
        return records

    def take(self, stored: Any, first: int, count: int) -> list[int]:
        """Takes records of a key away by their places, and returns their numbers, which are to be deleted."""
        records = self.of_key[stored]
        if count == len(records):
            del self.of_key[stored]
            return [record[1] for record in records]
        numbers = [record[1] for record in records[first : first + count]]
        del records[first : first + count]
        return numbers

    def forget(self, keys: list[Any], needed_ns: int | None) -> None:
        """Forgets the records of some keys before an instant, or all."""
        numbers: list[int] = []
        of_key = self.of_key
        for stored in dict.fromkeys(keys):
            if (records := of_key.get(stored)) is not None:
                is_over = needed_ns is None or records[-1][0] < needed_ns
                numbers += self.take(stored, 0, len(records) if is_over else bisect_left(records, (needed_ns,)))
        self.delete(numbers)
