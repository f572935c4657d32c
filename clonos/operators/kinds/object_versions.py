"""Sides of as-of joins and lookups whose records are Python objects.

The tables of left records and versions have one entry for each record, by its number: (key of the user, timestamp,
record). So a checkpoint has only the records that came or went. Records are never changed here: results have copies.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from clonos.core.ports.operator_chain import ROWS_AT_ONCE
from clonos.core.values.copying import copied
from clonos.core.values.keys import state_keys
from clonos.operators.joins.match_rules import AsOfRules, Direction
from clonos.operators.kinds.object_side import MISSING, ObjectSide
from clonos.operators.state.keyed_state import Table

Version = tuple[int, int, Any]
"""Timestamp, number and row: no comparison comes to the row."""


class Agenda:
    """Tuples that begin with an instant and a number, in their order: a heap of sorted runs, one for each batch."""

    __slots__ = ("_runs",)

    def __init__(self, items: list[Any]) -> None:
        items.sort()
        self._runs = [items[first : first + ROWS_AT_ONCE] for first in range(0, len(items), ROWS_AT_ONCE)]
        heapify(self._runs)

    def add(self, items: list[Any]) -> None:
        """Adds tuples."""
        if items:
            items.sort()
            heappush(self._runs, items)

    def take(self, before_ns: int | None) -> list[Any]:
        """Removes those before an instant, or all, and returns them in order."""
        runs = self._runs
        found: list[Any] = []
        rest = []
        while runs and (before_ns is None or runs[0][0][0] < before_ns):
            run = heappop(runs)
            end = len(run) if before_ns is None else bisect_left(run, (before_ns,))
            found += run[:end] if end < len(run) else run
            if end < len(run):
                rest.append(run[end:])
        for run in rest:
            heappush(runs, run)
        found.sort()
        return found


class RecordTable:
    """Records of a side by number, in the order of arrival."""

    def __init__(self, table: Table) -> None:
        self._table = table  # number -> (key of the user, timestamp, record)
        self._next_number = next(reversed(table.contents()), -1) + 1

    def stored(self) -> Iterator[tuple[int, int, Any, Any]]:
        """Yields number, timestamp, state key and (key, record) of all."""
        entries = self._table.contents()
        keys = state_keys([key for key, _, _ in entries.values()])
        for stored, (number, (key, timestamp_ns, row)) in zip(keys, entries.items(), strict=True):
            yield number, timestamp_ns, stored, (key, row)

    def append(self, batch: ObjectSide) -> range:
        """Adds records and returns their numbers."""
        numbers = range(self._next_number, self._next_number + len(batch.keys))
        self._next_number = numbers.stop
        values = [(key, at_ns, row) for (key, row), at_ns in zip(batch.rows, batch.instants, strict=True)]
        self._table.update(dict(zip(numbers, values, strict=True)))
        return numbers

    def delete(self, numbers: list[int]) -> None:
        """Deletes records."""
        self._table.delete_each(numbers)


class ObjectLefts:
    """See ``Lefts``."""

    def __init__(self, table: Table) -> None:
        self._records = RecordTable(table)
        self._waiting = Agenda([(at_ns, number, *rest) for number, at_ns, *rest in self._records.stored()])

    def add(self, batch: ObjectSide) -> None:
        """See ``Lefts``."""
        numbers = self._records.append(batch)
        self._waiting.add(list(zip(batch.instants, numbers, batch.keys, batch.rows, strict=True)))

    def take(self, before_ns: int | None) -> Iterator[ObjectSide]:
        """See ``Lefts``."""
        due = self._waiting.take(before_ns)
        if due:
            self._records.delete([number for _, number, _, _ in due])
            rows = [(key, copied(row)) for _, _, _, (key, row) in due]
            yield ObjectSide([stored for _, _, stored, _ in due], rows, [at_ns for at_ns, _, _, _ in due])


class ObjectVersions:
    """See ``Versions``. A heap has the instants at which some version of a key may be forgotten."""

    def __init__(self, table: Table, rules: AsOfRules) -> None:
        self._records, self._rules = RecordTable(table), rules
        find = {Direction.BACKWARD: _last_at, Direction.FORWARD: _first_at, Direction.NEAREST: _nearest}
        self._find = find[rules.direction]
        self._of_key: dict[Any, list[Version]] = {}
        checks: list[Any] = []
        for number, at_ns, stored, (_, row) in self._records.stored():
            self._insert(stored, (at_ns, number, row), checks)
        self._checks = Agenda(checks)

    def __len__(self) -> int:
        return sum(map(len, self._of_key.values()))

    def add(self, batch: ObjectSide) -> None:
        """See ``Versions``."""
        checks: list[Any] = []
        numbers = self._records.append(batch)
        for stored, (_, row), at_ns, number in zip(batch.keys, batch.rows, batch.instants, numbers, strict=True):
            self._insert(stored, (at_ns, number, row), checks)
        self._checks.add(checks)

    def _insert(self, stored: Any, version: Version, checks: list[Any]) -> None:
        """Adds a version, and when it may replace another one, be replaced, or have become too old."""
        at_ns, number, _ = version
        if (tolerated_ns := self._rules.tolerated_ns) is not None:
            checks.append((at_ns + tolerated_ns + 1, number, stored))
        versions = self._of_key.get(stored)
        if versions is None:
            self._of_key[stored] = [version]
            return
        if versions[-1][0] <= at_ns:
            versions.append(version)
        else:
            insort(versions, version)
            checks.append((versions[bisect_left(versions, (at_ns + 1,))][0], number, stored))
        checks.append((at_ns, number, stored))

    def last_before(self, batch: ObjectSide, instant_ns: int) -> Iterator[tuple[int, Any, int, int]]:
        """See ``Versions``."""
        nulls = frozenset(batch.nulls)
        for place, (stored, at_ns) in enumerate(zip(batch.keys, batch.instants, strict=True)):
            if at_ns <= instant_ns and place not in nulls:
                last = _last_at(self._of_key.get(stored, []), instant_ns)
                yield place, stored, at_ns, at_ns if last is None else last[0]

    def find(self, lefts: ObjectSide) -> list[Any]:
        """See ``Versions``."""
        tolerance_ns, of_key, find, found = self._rules.tolerance_ns, self._of_key, self._find, list[Any]()
        for stored, at_ns in zip(lefts.keys, lefts.instants, strict=True):
            versions = of_key.get(stored)
            version = None if versions is None else find(versions, at_ns)
            if version is None or (tolerance_ns is not None and abs(version[0] - at_ns) > tolerance_ns):
                found.append(MISSING)
            else:
                found.append(version[2])
        return found

    def forget(self, earliest_ns: int) -> None:
        """See ``Versions``."""
        is_backward, tolerated_ns = self._rules.direction is Direction.BACKWARD, self._rules.tolerated_ns
        for stored in dict.fromkeys([stored for _, _, stored in self._checks.take(earliest_ns + 1)]):
            versions = self._of_key.get(stored)
            if versions is None:
                continue
            count = bisect_left(versions, (earliest_ns + 1,)) - 1 if is_backward else 0
            if tolerated_ns is not None:
                count = max(count, bisect_left(versions, (earliest_ns - tolerated_ns,)))
            if count > 0:
                self._records.delete([number for _, number, _ in versions[:count]])
                del versions[:count]
                if not versions:
                    del self._of_key[stored]


class ObjectLatest:
    """See ``Latest``. The table has the row of each key."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(self, batch: ObjectSide) -> None:
        """See ``Latest``."""
        self._table.update({stored: row for stored, (_, row) in zip(batch.keys, batch.rows, strict=True)})

    def find(self, lefts: ObjectSide) -> list[Any]:
        """See ``Latest``."""
        entries = self._table.entries
        return [entries.get(stored, MISSING) for stored in lefts.keys]


def _last_at(versions: list[Version], at_ns: int) -> Version | None:
    """Returns the last version that is not later."""
    if versions and versions[-1][0] <= at_ns:
        return versions[-1]
    place = bisect_left(versions, (at_ns + 1,))
    return versions[place - 1] if place else None


def _first_at(versions: list[Version], at_ns: int) -> Version | None:
    """Returns the first version that is not earlier; of several with its timestamp, the last to arrive."""
    place = bisect_left(versions, (at_ns,))
    return _last_at(versions, versions[place][0]) if place < len(versions) else None


def _nearest(versions: list[Version], at_ns: int) -> Version | None:
    before, after = _last_at(versions, at_ns), _first_at(versions, at_ns)
    if before is None or after is None:
        return before or after
    return before if at_ns - before[0] <= after[0] - at_ns else after
