"""Aggregates of Python objects over the whole input: a table with the accumulator of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.core.values.keys import key_of
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.kinds.object_batch import ObjectBatch
from clonos.operators.kinds.object_kind import ObjectKind
from clonos.operators.kinds.total_kind import name_before
from clonos.operators.operator import Operator, Times, without
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import StateSpec, keyed

STATE: Final = keyed("state")

WAITING: Final = keyed("waiting")
"""Table of what is not emitted yet: key -> records since the key was last emitted."""

RESULTS_MAX: Final = 1 << 12
"""Results that leave in one batch, if they are those of keys."""


class ObjectTotalKind:
    """Kind of Python objects; without keys the key of all records is None."""

    takes_columns = False

    def __init__(self, aggregation: Aggregation[Any, Any], *, is_keyed: bool) -> None:
        self._aggregation, self._is_keyed = aggregation, is_keyed
        self._kind = ObjectKind()

    def of_rows(self, operator: Operator, rows: list[Any], times: Times) -> ObjectBatch | None:
        """See ``TotalKind``."""
        return self._kind.of_rows(operator, rows if self._is_keyed else [(None, row) for row in rows], times)

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> ObjectBatch:
        """See ``TotalKind``."""
        raise AssertionError("the plan says that records are rows")

    def state_specs(self, is_paced: bool) -> tuple[StateSpec, ...]:
        """See ``TotalKind``."""
        return tuple(spec.by_key(self._is_keyed) for spec in ((STATE, WAITING) if is_paced else (STATE,)))

    def totals(self, operator: Operator, state: StepState, is_paced: bool) -> ObjectTotals:
        """See ``TotalKind``."""
        return ObjectTotals(operator, state, self._aggregation, is_keyed=self._is_keyed, is_paced=is_paced)


class ObjectTotals:
    """Accumulators of the keys."""

    def __init__(
        self,
        operator: Operator,
        state: StepState,
        aggregation: Aggregation[Any, Any],
        *,
        is_keyed: bool,
        is_paced: bool,
    ) -> None:
        self._operator, self._guard, self._aggregation, self._is_keyed = operator, operator.guard, aggregation, is_keyed
        self._table = state.table(STATE)
        if is_paced:
            self._waiting = state.table(WAITING)
        self._add_one = aggregation.add_or_keep if operator.guard.routes else aggregation.add

    @property
    def is_empty(self) -> bool:
        """See ``KeyTotals``."""
        return not self._table.contents()

    def add(self, batch: ObjectBatch) -> None:
        """See ``KeyTotals``."""
        self._added(batch)

    def pass_each(self, batch: ObjectBatch) -> None:
        """See ``KeyTotals``."""
        create, add, result = self._aggregation.create, self._aggregation.add, self._aggregation.result
        entries, changed, routes = self._table.entries, self._table.changed, self._guard.routes
        results, is_keyed = list[Any](), self._is_keyed

        def consume(records: Iterator[Any]) -> None:
            append = results.append
            for stored, (key, value) in records:
                accumulator = entries[stored] if stored in entries else create()
                accumulator = add(copied(accumulator) if routes else accumulator, value)
                append((key, result(accumulator)) if is_keyed else result(accumulator))
                entries[stored] = accumulator
                changed[stored] = None

        failed, times = self._run(batch, consume), batch.times
        if results:
            self._operator.out.rows(results, without(times, failed) if times and failed else times)

    def pass_changes(self, batch: ObjectBatch, has_before: bool) -> None:
        """See ``KeyTotals``."""
        if has_before:
            before, entries = self._replaced(batch), self._table.entries
            self._emit(list(before), self._with_replaced, [(entries[key], before[key]) for key in before])
        else:
            self._emit_present(self._added(batch))

    def pass_every(self, batch: ObjectBatch, count: int) -> None:
        """See ``KeyTotals``."""
        create, add, waiting = self._aggregation.create, self._add_one, self._waiting
        entries, changed = self._table.entries, self._table.changed
        results = list[Any]()

        def consume(records: Iterator[Any]) -> None:
            for stored, (key, value) in records:
                accumulator = entries[stored] if stored in entries else create()
                gathered = waiting.entries.get(stored, 0) + 1
                if gathered == count:
                    if self._guard.routes:
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

        self._run(batch, consume)
        if results:
            self._operator.out.rows(results)

    def add_waiting(self, batch: ObjectBatch) -> bool:
        """See ``KeyTotals``."""
        keys, waiting = self._added(batch), self._waiting.entries
        self._waiting.update({key: 1 for key in keys if key not in waiting})
        return bool(keys)

    def pass_waiting(self) -> None:
        """See ``KeyTotals``."""
        keys = list(self._waiting.contents())
        for key in keys:
            self._waiting.delete(key)
        self._emit_present(keys)

    def pass_all(self) -> None:
        """See ``KeyTotals``."""
        keys = list(self._table.contents())
        self._emit_present(keys)
        for key in keys:
            self._table.delete(key)

    def _run(self, batch: ObjectBatch, consume: Callable[[Iterator[Any]], None]) -> list[int]:
        """Passes (stored key, (key, value)) of each row to ``consume``; returns the indexes of rows that raised."""
        return self._guard.run(consume, list(zip(batch.keys, batch.rows, strict=True)), pairs=batch.rows)

    def _added(self, batch: ObjectBatch) -> list[Any]:
        """Adds records, and returns their keys, by first arrival."""
        create, add = self._aggregation.create, self._add_one
        entries, keys = self._table.entries, dict[Any, None]()

        def consume(records: Iterator[Any]) -> None:
            for stored, (_, value) in records:
                entries[stored] = add(entries[stored] if stored in entries else create(), value)
                keys[stored] = None

        self._run(batch, consume)
        self._table.changed.update(keys)
        return list(keys)

    def _replaced(self, batch: ObjectBatch) -> dict[Any, Any]:
        """Adds records, and returns the accumulators that their keys have had, by first arrival; None for none."""
        create, add = self._aggregation.create, self._add_one
        entries, before = self._table.entries, dict[Any, Any]()

        def consume(records: Iterator[Any]) -> None:
            for stored, (_, value) in records:
                held = entries.get(stored)
                replaced = held if stored in before else copied(held)
                entries[stored] = add(create() if held is None else held, value)
                before.setdefault(stored, replaced)

        self._run(batch, consume)
        self._table.changed.update(dict.fromkeys(before))
        return before

    def _with_replaced(self, accumulators: tuple[Any, Any]) -> dict[str, Any]:
        now, before = accumulators
        results: dict[str, Any] = self._aggregation.result(now)
        replaced = dict.fromkeys(results) if before is None else self._aggregation.result(before)
        return results | {name_before(name): value for name, value in replaced.items()}

    def _emit_present(self, keys: list[Any]) -> None:
        entries = self._table.entries
        self._emit(keys, self._aggregation.result, [entries[key] for key in keys])

    def _emit(self, keys: list[Any], result: Callable[[Any], Any], accumulators: list[Any]) -> None:
        """Emits the results of keys."""
        for first in range(0, len(keys), RESULTS_MAX):
            results, failed = self._guard.each(result, accumulators[first : first + RESULTS_MAX])
            if self._is_keyed:
                part = list(map(key_of, keys[first : first + RESULTS_MAX]))
                results = list(zip(without(part, failed) if failed else part, results, strict=True))
            if results:
                self._operator.out.rows(results)
