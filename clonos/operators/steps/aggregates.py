"""Aggregates of windows: count, sum, reduction, and accumulators of the user.

An aggregate has no state: accumulators are the entries of a window's table, under the state key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, ClassVar, Final

from clonos.core.values.keys import state_keys
from clonos.operators.state.keyed_state import Table
from clonos.operators.user_errors import Guard


class Aggregate:
    """Base of all aggregates. Rows are (key, value)."""

    ignores_order: ClassVar[bool] = False
    """True if the result is the same in whatever order values arrive."""

    field: str | None = None
    """Field of the values that it looks up, if it was given a name."""

    def add(self, table: Table, rows: list[Any], guard: Guard) -> None:
        """Adds a batch."""
        stored = state_keys([key for key, _ in rows])
        wrapped = list(zip(stored, rows, strict=True))
        guard.run(lambda records: self._consume(records, table), wrapped, pairs=rows)

    def add_keys(self, table: Table, keys: list[Any], guard: Guard) -> None:
        """Adds a batch whose values are their own keys."""
        self.add(table, list(zip(keys, keys, strict=True)), guard)

    def add_columns(self, table: Table, batch: Any, column: str, guard: Guard) -> None:
        """Adds a batch of columns, keyed by ``column``; values are dicts."""
        self.add(table, list(zip(batch.column(column).to_pylist(), batch.to_pylist(), strict=True)), guard)

    def results(self, keys: list[Any], accumulators: list[Any], guard: Guard) -> tuple[list[Any], list[Any]]:
        """Returns the keys and their results at the end of the window."""
        return keys, accumulators

    def _consume(self, records: Iterator[Any], table: Table) -> None:
        raise NotImplementedError


class CountAggregate(Aggregate):
    """Number of records."""

    ignores_order = True

    def add(self, table: Table, rows: list[Any], guard: Guard) -> None:
        self.add_keys(table, [key for key, _ in rows], guard)

    def add_keys(self, table: Table, keys: list[Any], guard: Guard) -> None:
        _add_all(table, Counter(state_keys(keys)))

    def add_columns(self, table: Table, batch: Any, column: str, guard: Guard) -> None:
        counted = batch.column(column).value_counts()
        keys = state_keys(counted.field(0).to_pylist())
        _add_all(table, dict(zip(keys, counted.field(1).to_pylist(), strict=True)))


class Sum(Aggregate):
    """Sum of the values, or of a function or a field of each."""

    ignores_order = True

    def __init__(self, of: Callable[[Any], Any] | str | None) -> None:
        self.field = of if isinstance(of, str) else None
        self._term = itemgetter(of) if isinstance(of, str) else of

    def _consume(self, records: Iterator[Any], table: Table) -> None:
        term, entries, changed = self._term, table.entries, table.changed
        get = entries.get
        for key, (_, value) in records:
            entries[key] = get(key, 0) + (value if term is None else term(value))
            changed[key] = None

    def add_columns(self, table: Table, batch: Any, column: str, guard: Guard) -> None:
        if self.field is None or self.field not in batch.schema.names:
            super().add_columns(table, batch, column, guard)
            return
        import pyarrow  # loaded only if there are columns

        pairs = pyarrow.table({"key": batch.column(column), "value": batch.column(self.field)})
        # One thread, because the result depends on the order in which floats are added.
        sums = pairs.group_by("key", use_threads=False).aggregate([("value", "sum")])
        keys = state_keys(sums.column("key").to_pylist())
        terms = (0 if term is None else term for term in sums.column("value_sum").to_pylist())
        _add_all(table, dict(zip(keys, terms, strict=True)))


class ReduceAggregate(Aggregate):
    """Reduction of the values in order of arrival."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def _consume(self, records: Iterator[Any], table: Table) -> None:
        function, entries, changed = self._function, table.entries, table.changed
        for key, (_, value) in records:
            entries[key] = function(entries[key], value) if key in entries else value
            changed[key] = None


class Accumulate(Aggregate):
    """Accumulator of the user: ``create()``, ``add(accumulator, value)``, ``result(accumulator)``.

    ``add`` returns the new accumulator, or None if it has changed the given one in place (``list.append``).
    """

    def __init__(
        self,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] | None,
    ) -> None:
        self._create = create
        self._add = add
        self._result = result

    def _consume(self, records: Iterator[Any], table: Table) -> None:
        create, add, entries, changed = self._create, self._add, table.entries, table.changed
        get = entries.get
        for key, (_, value) in records:
            accumulator = get(key, _MISSING)
            if accumulator is _MISSING:
                accumulator = create()
            replaced = add(accumulator, value)
            entries[key] = accumulator if replaced is None else replaced
            changed[key] = None

    def results(self, keys: list[Any], accumulators: list[Any], guard: Guard) -> tuple[list[Any], list[Any]]:
        result = self._result
        if result is None:
            return keys, accumulators
        values, failed = guard.each(result, accumulators)
        return [key for index, key in enumerate(keys) if index not in failed] if failed else keys, values


class _Missing:
    pass


_MISSING: Final = _Missing()


def _add_all(table: Table, terms: dict[Any, Any]) -> None:
    get = table.entries.get
    table.update({key: get(key, 0) + term for key, term in terms.items()})
