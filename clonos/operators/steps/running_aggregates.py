"""Aggregates that run over the whole input, with results after each record, batch or interval, or at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.core.values.keys import key_of, state_keys
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.operator import Operator, Scope, Times, without
from clonos.operators.state.interval_timer import LeavesAtIntervals
from clonos.operators.state.keyed_state import Table

STATE_NAME: Final = "state"

WAITING_NAME: Final = "waiting"
"""Table of what is not emitted yet: key -> records since the key was last emitted."""

"""Table with at most one entry, the time of the next emission in nanoseconds since the Unix epoch."""

EMITTED_NAME: Final = "emitted"
"""Table with at most one entry, which is there once the total is emitted."""

RESULTS_MAX: Final = 1 << 12
"""Results that leave in one batch at the end of the input."""


BEFORE_SUFFIX: Final = "_before"


def name_before(name: str) -> str:
    """Returns the name of the result that one of this name replaces."""
    return name + BEFORE_SUFFIX


class KeyedAccumulators(Operator):
    """Base: the accumulators of the keys. Without keys, all records have the key None."""

    runs_user_code = True
    keeps_times = False

    def __init__(self, step: str, aggregation: Aggregation[Any, Any], *, is_keyed: bool) -> None:
        self._step = step
        self._aggregation = aggregation
        self._is_keyed = is_keyed

    def open(self, scope: Scope) -> None:
        self._table: Table = scope.state.table(f"{self._step}/{STATE_NAME}")
        self._add_one = self._aggregation.add_or_keep if self.guard.routes else self._aggregation.add

    def _add(self, rows: list[Any], consume: Callable[[Iterator[Any]], None]) -> list[int]:
        """Passes (stored key, (key, value)) of each row to ``consume``; returns the indexes of rows that raised."""
        if not self._is_keyed:
            rows = [(None, row) for row in rows]
        stored = state_keys([key for key, _ in rows])
        return self.guard.run(consume, list(zip(stored, rows, strict=True)), pairs=rows)

    def _emit(self, stored: list[Any]) -> None:
        """Emits the results of these keys."""
        entries = self._table.entries
        for first in range(0, len(stored), RESULTS_MAX):
            keys = stored[first : first + RESULTS_MAX]
            results, failed = self.guard.each(self._aggregation.result, [entries[key] for key in keys])
            if self._is_keyed:
                results = list(zip(without(list(map(key_of, keys)), failed), results, strict=True))
            if results:
                self.out.rows(results)


class RunningAggregate(KeyedAccumulators):
    """Emits (key, result so far) after each record; the result alone without keys."""

    keeps_times = True

    def rows(self, rows: list[Any], times: Times = None) -> None:
        results: list[Any] = []
        failed = self._add(rows, lambda records: self._consume(records, results))
        if results:
            self.out.rows(results, without(times, failed) if times and failed else times)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        create, add, result = self._aggregation.create, self._aggregation.add, self._aggregation.result
        entries, changed, routes = self._table.entries, self._table.changed, self.guard.routes
        append, is_keyed = results.append, self._is_keyed
        for stored, (key, value) in records:
            accumulator = entries[stored] if stored in entries else create()
            accumulator = add(copied(accumulator) if routes else accumulator, value)
            append((key, result(accumulator)) if is_keyed else result(accumulator))
            entries[stored] = accumulator
            changed[stored] = None


class ChangedAggregate(KeyedAccumulators):
    """Emits (key, result) for each key that a batch has changed, by first arrival in it; the result alone without
    keys."""

    def rows(self, rows: list[Any], times: Times = None) -> None:
        keys: dict[Any, None] = {}
        self._add(rows, lambda records: self._consume(records, keys))
        self._emit(list(keys))

    def _consume(self, records: Iterator[Any], keys: dict[Any, None]) -> None:
        create, add = self._aggregation.create, self._add_one
        entries, changed = self._table.entries, self._table.changed
        for stored, (_, value) in records:
            entries[stored] = add(entries[stored] if stored in entries else create(), value)
            changed[stored] = keys[stored] = None


class ReplacedAggregate(ChangedAggregate):
    """Emits the same with the results that the last batch of the key has left, None for each of a new key."""

    def rows(self, rows: list[Any], times: Times = None) -> None:
        before: dict[Any, Any] = {}
        self._add(rows, lambda records: self._consume(records, before))
        entries, keys = self._table.entries, list(before)
        for first in range(0, len(keys), RESULTS_MAX):
            part = keys[first : first + RESULTS_MAX]
            results, failed = self.guard.each(self._result, [(entries[key], before[key]) for key in part])
            if self._is_keyed:
                results = list(zip(without(list(map(key_of, part)), failed), results, strict=True))
            if results:
                self.out.rows(results)

    def _consume(self, records: Iterator[Any], before: dict[Any, Any]) -> None:
        create, add = self._aggregation.create, self._add_one
        entries, changed = self._table.entries, self._table.changed
        for stored, (_, value) in records:
            if stored in before:
                entries[stored] = add(entries[stored], value)
            elif stored in entries:
                replaced = copied(entries[stored])
                entries[stored] = add(entries[stored], value)
                before[stored] = replaced
            else:
                entries[stored] = add(create(), value)
                before[stored] = None
            changed[stored] = None

    def _result(self, accumulators: tuple[Any, Any]) -> dict[str, Any]:
        now, before = accumulators
        results: dict[str, Any] = self._aggregation.result(now)
        replaced = dict.fromkeys(results) if before is None else self._aggregation.result(before)
        return results | {name_before(name): value for name, value in replaced.items()}


class PacedAggregate(LeavesAtIntervals, KeyedAccumulators):
    """Emits (key, result) after a number of records of the key, or for all changed keys at multiples of an interval.

    What has changed since it was last emitted is in a table in the order of its first change, so it leaves in that
    order, at the end of the input too.
    """

    def __init__(
        self,
        step: str,
        aggregation: Aggregation[Any, Any],
        *,
        is_keyed: bool,
        count: int | None,
        interval_ns: int | None,
    ) -> None:
        super().__init__(step, aggregation, is_keyed=is_keyed)
        self._count, self._interval_ns = count, interval_ns

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._waiting = scope.state.table(f"{self._step}/{WAITING_NAME}")
        self.open_timer(self._step, self._interval_ns, scope)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        results: list[Any] = []
        failed = self._add(rows, lambda records: self._consume(records, results))
        if len(failed) < len(rows):
            self._timer.start()
        if results:
            self.out.rows(results)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        create, add, table, waiting = self._aggregation.create, self._add_one, self._table, self._waiting
        entries, changed = table.entries, table.changed
        for stored, (key, value) in records:
            accumulator = entries[stored] if stored in entries else create()
            gathered = waiting.entries.get(stored, 0) + 1
            if gathered == self._count:
                if self.guard.routes:
                    accumulator = copied(accumulator)  # the result may raise
                accumulator = self._aggregation.add(accumulator, value)
                result = self._aggregation.result(accumulator)
                results.append((key, result) if self._is_keyed else result)
                waiting.delete(stored)
            else:
                accumulator = add(accumulator, value)
                waiting.set(stored, gathered)
            entries[stored] = accumulator
            changed[stored] = None

    def end_of_time(self) -> None:
        self._timer.stop()
        keys = list(self._waiting.contents())
        for key in keys:
            self._waiting.delete(key)
        self._emit(keys)


class FinalAggregate(KeyedAccumulators):
    """Emits (key, result) for each key at the end of the input, by first arrival; the result alone without keys."""

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self._add(rows, self._consume)

    def _consume(self, records: Iterator[Any]) -> None:
        create, add = self._aggregation.create, self._add_one
        entries, changed = self._table.entries, self._table.changed
        for stored, (_, value) in records:
            entries[stored] = add(entries[stored] if stored in entries else create(), value)
            changed[stored] = None

    def end_of_time(self) -> None:
        keys = list(self._table.contents())
        self._emit(keys)
        for key in keys:  # a task that is restored after this must not emit them again
            self._table.delete(key)


class FinalTotal(FinalAggregate):
    """Emits one result at the end of the input, that of no records if there were none."""

    def __init__(self, step: str, aggregation: Aggregation[Any, Any]) -> None:
        super().__init__(step, aggregation, is_keyed=False)

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._emitted = scope.state.table(f"{self._step}/{EMITTED_NAME}", is_small=True)

    def end_of_time(self) -> None:
        if not self._table.contents() and not self._emitted.entries:
            self._table.set(None, self._aggregation.create())
        self._emitted.set(0, True)
        super().end_of_time()
