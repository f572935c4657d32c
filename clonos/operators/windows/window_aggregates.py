"""Aggregates of windows: count, sum, reduction, and accumulators of the user.

An aggregate has no state: accumulators are the entries of a window's table, under the state key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.core.values.keys import state_keys
from clonos.operators.state.keyed_state import Table
from clonos.operators.user_errors import Guard


class Aggregate:
    """Base of all aggregates. Rows are (key, value)."""

    ignores_order: bool = False
    """True if the result is the same in whatever order values arrive."""

    can_merge: bool = True
    """True if it has ``merge``: only an aggregate of the user may lack it."""

    def first(self, value: Any) -> Any:
        """Returns the accumulator of one value."""
        raise NotImplementedError

    def insert(self, accumulator: Any, value: Any) -> Any:
        """Returns the accumulator with one more value, which may be the given one changed in place."""
        raise NotImplementedError

    def merge(self, accumulator: Any, other: Any) -> Any:
        """Returns the accumulator with the values of ``other``, which stays as it is.

        It may be the given one changed in place.
        """
        raise NotImplementedError

    def result(self, accumulator: Any) -> Any:
        """Returns the result, which shares no mutable part with the accumulator."""
        return copied(accumulator)

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

    def _consume(self, records: Iterator[Any], table: Table) -> None:
        first, insert, entries, changed = self.first, self.insert, table.entries, table.changed
        get = entries.get
        for key, (_, value) in records:
            accumulator = get(key, _MISSING)
            entries[key] = first(value) if accumulator is _MISSING else insert(accumulator, value)
            changed[key] = None


class CountAggregate(Aggregate):
    """Number of records."""

    ignores_order = True

    def first(self, value: Any) -> Any:
        return 1

    def insert(self, accumulator: Any, value: Any) -> Any:
        return accumulator + 1

    def merge(self, accumulator: Any, other: Any) -> Any:
        return accumulator + other

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
        self._of = of
        self._term = itemgetter(of) if isinstance(of, str) else of

    def first(self, value: Any) -> Any:
        return 0 + (value if self._term is None else self._term(value))

    def insert(self, accumulator: Any, value: Any) -> Any:
        return accumulator + (value if self._term is None else self._term(value))

    def merge(self, accumulator: Any, other: Any) -> Any:
        return accumulator + other

    def _consume(self, records: Iterator[Any], table: Table) -> None:
        term, entries, changed = self._term, table.entries, table.changed
        get = entries.get
        for key, (_, value) in records:
            entries[key] = get(key, 0) + (value if term is None else term(value))
            changed[key] = None

    def add_columns(self, table: Table, batch: Any, column: str, guard: Guard) -> None:
        if not isinstance(self._of, str):
            super().add_columns(table, batch, column, guard)
            return
        import pyarrow  # loaded only if there are columns

        pairs = pyarrow.table({"key": batch.column(column), "value": batch.column(self._of)})
        # One thread, because the result depends on the order in which floats are added.
        sums = pairs.group_by("key", use_threads=False).aggregate([("value", "sum")])
        keys = state_keys(sums.column("key").to_pylist())
        terms = (0 if term is None else term for term in sums.column("value_sum").to_pylist())
        _add_all(table, dict(zip(keys, terms, strict=True)))


class ReduceAggregate(Aggregate):
    """Reduction of the values in order of arrival."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def first(self, value: Any) -> Any:
        return value

    def insert(self, accumulator: Any, value: Any) -> Any:
        return self._function(accumulator, value)

    def merge(self, accumulator: Any, other: Any) -> Any:
        return self._function(accumulator, copied(other))


class Accumulate(Aggregate):
    """Accumulator of the user: ``create()``, ``add(accumulator, value)``, ``result(accumulator)``, ``merge``.

    ``add`` and ``merge`` return the new accumulator, or None if they have changed the given one in place
    (``list.append``).
    """

    def __init__(
        self,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] | None,
        merge: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self._create = create
        self._add = add
        self._result = result
        self._merge = merge
        self.can_merge = merge is not None

    def first(self, value: Any) -> Any:
        return self.insert(self._create(), value)

    def insert(self, accumulator: Any, value: Any) -> Any:
        replaced = self._add(accumulator, value)
        return accumulator if replaced is None else replaced

    def merge(self, accumulator: Any, other: Any) -> Any:
        assert self._merge is not None, "an aggregate without merge gathers the values instead"
        replaced = self._merge(accumulator, copied(other))
        return accumulator if replaced is None else replaced

    def result(self, accumulator: Any) -> Any:
        return copied(accumulator if self._result is None else self._result(accumulator))


class Gathered(Aggregate):
    """List of all values in order of arrival, which ``aggregate`` aggregates when the window emits, if given."""

    def __init__(self, aggregate: Aggregate | None = None) -> None:
        self._aggregate = aggregate

    def first(self, value: Any) -> Any:
        return [value]

    def insert(self, accumulator: Any, value: Any) -> Any:
        accumulator.append(value)
        return accumulator

    def merge(self, accumulator: Any, other: Any) -> Any:
        accumulator.extend(other)
        return accumulator

    def result(self, accumulator: Any) -> Any:
        values = iter(copied(accumulator))
        if self._aggregate is None:
            return list(values)
        found = self._aggregate.first(next(values))
        for value in values:
            found = self._aggregate.insert(found, value)
        return self._aggregate.result(found)


class _Missing:
    pass


_MISSING: Final = _Missing()


def _add_all(table: Table, terms: dict[Any, Any]) -> None:
    get = table.entries.get
    table.update({key: get(key, 0) + term for key, term in terms.items()})
