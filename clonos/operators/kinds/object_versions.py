"""Sides of as-of joins and lookups whose records are Python objects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from clonos.operators.joins.match_rules import AsOfRules, Direction
from clonos.operators.kinds.object_records import Agenda, KeyedRecords, Record, RecordTable
from clonos.operators.kinds.object_side import MISSING, ObjectSide
from clonos.operators.state.keyed_state import Table


class ObjectLefts:
    """See ``Lefts``."""

    def __init__(self, table: Table) -> None:
        self._records = RecordTable(table)
        self._waiting = Agenda(self._records.records)

    def add(self, batch: ObjectSide) -> None:
        """See ``Lefts``."""
        self._waiting.add(self._records.append(batch))

    def take(self, before_ns: int | None) -> Iterator[ObjectSide]:
        """See ``Lefts``."""
        due = self._waiting.take(before_ns)
        if due:
            instants, numbers, rows, keys = map(list, zip(*due, strict=True))
            self._records.delete(numbers)
            yield ObjectSide(keys, rows, instants, is_retained=True)


class ObjectVersions:
    """See ``Versions``. A heap has the instants at which some version of a key may be forgotten."""

    def __init__(self, table: Table, rules: AsOfRules) -> None:
        self._records, self._rules = KeyedRecords(table), rules
        find = {Direction.BACKWARD: _last_at, Direction.FORWARD: _first_at, Direction.NEAREST: _nearest}
        self._find = find[rules.direction]
        checks: list[Any] = []
        for stored, records in self._records.of_key.items():
            for place, record in enumerate(records, 1):
                checks += self._checks_of(stored, record, records[:place])
        self._checks = Agenda(checks)

    def __len__(self) -> int:
        return len(self._records)

    def add(self, batch: ObjectSide) -> None:
        """See ``Versions``."""
        checks: list[Any] = []
        insert = self._records.insert
        for stored, record in zip(batch.stored, self._records.append(batch), strict=True):
            checks += self._checks_of(stored, record, insert(stored, record))
        self._checks.add(checks)

    def _checks_of(self, stored: Any, version: Record, records: list[Record]) -> list[tuple[int, int, Any]]:
        """Returns when a version may replace another one of its key, be replaced, or be too old."""
        found, (at_ns, number, _, _) = [], version
        if (tolerated_ns := self._rules.tolerated_ns) is not None:
            found.append((at_ns + tolerated_ns + 1, number, stored))
        if len(records) > 1:
            found.append((at_ns, number, stored))
            if records[-1][0] > at_ns:
                found.append((records[bisect_left(records, (at_ns + 1,))][0], number, stored))
        return found

    def last_before(self, batch: ObjectSide, instant_ns: int) -> Iterator[tuple[int, Any, int, int]]:
        """See ``Versions``."""
        nulls = frozenset(batch.nulls)
        for place, (stored, at_ns) in enumerate(zip(batch.stored, batch.instants, strict=True)):
            if at_ns <= instant_ns and place not in nulls:
                last = _last_at(self._records.of_key.get(stored, []), instant_ns)
                yield place, stored, at_ns, at_ns if last is None else last[0]

    def find(self, lefts: ObjectSide) -> list[Any]:
        """See ``Versions``."""
        tolerance_ns, of_key, find, found = self._rules.tolerance_ns, self._records.of_key, self._find, list[Any]()
        for stored, at_ns in zip(lefts.stored, lefts.instants, strict=True):
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
        numbers: list[int] = []
        for stored in dict.fromkeys([stored for _, _, stored in self._checks.take(earliest_ns + 1)]):
            records = self._records.of_key.get(stored)
            if records is None:
                continue
            count = bisect_left(records, (earliest_ns + 1,)) - 1 if is_backward else 0
            if tolerated_ns is not None:
                count = max(count, bisect_left(records, (earliest_ns - tolerated_ns,)))
            if count > 0:
                numbers += self._records.take(stored, 0, count)
        self._records.delete(numbers)


class ObjectLatest:
    """See ``Latest``. The table has the row of each key."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(self, batch: ObjectSide) -> None:
        """See ``Latest``."""
        self._table.update(dict(zip(batch.stored, batch.rows, strict=True)))

    def find(self, lefts: ObjectSide) -> list[Any]:
        """See ``Latest``."""
        entries = self._table.entries
        return [entries.get(stored, MISSING) for stored in lefts.stored]


def _last_at(versions: list[Record], at_ns: int) -> Record | None:
    """Returns the last version that is not later."""
    if versions and versions[-1][0] <= at_ns:
        return versions[-1]
    place = bisect_left(versions, (at_ns + 1,))
    return versions[place - 1] if place else None


def _first_at(versions: list[Record], at_ns: int) -> Record | None:
    """Returns the first version that is not earlier; of several with its timestamp, the last to arrive."""
    place = bisect_left(versions, (at_ns,))
    return _last_at(versions, versions[place][0]) if place < len(versions) else None


def _nearest(versions: list[Record], at_ns: int) -> Record | None:
    before, after = _last_at(versions, at_ns), _first_at(versions, at_ns)
    if before is None or after is None:
        return before or after
    return before if at_ns - before[0] <= after[0] - at_ns else after
