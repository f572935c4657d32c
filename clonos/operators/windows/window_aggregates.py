"""Aggregations of windows over tables: accumulators are the entries of a window's table, under the state key.

``WindowAggregate`` adds rows one by one. Counts and sums have a faster way for keys and columns, with the same
accumulators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from clonos.core.values.column_keys import python_keys
from clonos.core.values.copying import copied
from clonos.core.values.keys import state_keys
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.exact_numbers import exact
from clonos.operators.aggregates.numeric import Sum
from clonos.operators.columnar.python_rows import python_rows, record_at
from clonos.operators.columnar.row_forms import without_form
from clonos.operators.state.keyed_state import Table
from clonos.operators.user_errors import Guard


class WindowAggregate:
    """Aggregation of rows (key, value) into the entries of tables."""

    def __init__(self, aggregation: Aggregation[Any, Any]) -> None:
        self.aggregation = aggregation

    def add(self, table: Table, rows: list[Any], guard: Guard) -> None:
        """Adds a batch."""
        stored = state_keys([key for key, _ in rows])
        wrapped = list(zip(stored, rows, strict=True))
        add = self.aggregation.add_or_keep if guard.routes else self.aggregation.add
        guard.run(lambda records: self._consume(records, table, add), wrapped, pairs=rows)

    def add_keys(self, table: Table, keys: list[Any], guard: Guard) -> None:
        """Adds a batch whose values are their own keys."""
        self.add(table, list(zip(keys, keys, strict=True)), guard)

    def add_columns(self, table: Table, batch: RecordBatch, key: Any, guard: Guard) -> None:
        """Adds a batch of columns, keyed by the column ``key`` or a tuple of columns; values are dicts."""
        rows, batch = python_rows(without_form(batch), guard)
        if rows:
            self.add(table, list(zip(python_keys(batch, key), rows, strict=True)), guard)

    def add_to_each(self, tables: list[Table], rows: list[Any], guard: Guard) -> list[Any]:
        """Adds a batch to several tables; a row that raises is in none of them. Returns the keys with a new row."""
        keys: dict[Any, None] = {}
        create, add = self.aggregation.create, self.aggregation.add
        copies = len(tables) > 1 and self.aggregation.changes_terms

        def consume(records: Iterator[Any]) -> None:
            for key, (_, value) in records:
                before = [table.entries[key] if key in table.entries else create() for table in tables]
                added = [
                    add(copied(each) if guard.routes else each, copied(value) if copies else value) for each in before
                ]
                for table, accumulator in zip(tables, added, strict=True):
                    table.set(key, accumulator)
                keys[key] = None

        guard.run(consume, list(zip(state_keys([key for key, _ in rows]), rows, strict=True)), pairs=rows)
        return list(keys)

    def _consume(self, records: Iterator[Any], table: Table, add: Callable[[Any, Any], Any]) -> None:
        create = self.aggregation.create
        entries, changed = table.entries, table.changed
        for key, (_, value) in records:
            entries[key] = add(entries[key] if key in entries else create(), value)
            changed[key] = None


class WindowCount(WindowAggregate):
    """Count of records, by key alone."""

    @staticmethod
    def totals(tables: Sequence[Table]) -> dict[Any, int]:
        """Returns the counts of all keys over several tables, in the order in which they occur."""
        found: dict[Any, int] = {}
        for table in tables:
            if not found:
                found = dict(table.contents())
                continue
            get = found.get
            for key, number in table.contents().items():
                found[key] = get(key, 0) + number
        return found

    def add(self, table: Table, rows: list[Any], guard: Guard) -> None:
        self.add_keys(table, [key for key, _ in rows], guard)

    def add_keys(self, table: Table, keys: list[Any], guard: Guard) -> None:
        self._add_all(table, Counter(state_keys(keys)))

    def add_columns(self, table: Table, batch: RecordBatch, key: Any, guard: Guard) -> None:
        if not isinstance(key, str):
            self.add_keys(table, python_keys(batch, key), guard)
            return
        counted = batch.column(key).value_counts()
        keys = state_keys(counted.field(0).to_pylist())
        self._add_all(table, dict(zip(keys, counted.field(1).to_pylist(), strict=True)))

    def _add_all(self, table: Table, counts: dict[Any, int]) -> None:
        get = table.entries.get
        table.update({key: get(key, 0) + count for key, count in counts.items()})


SUM_MAX: Final = 1 << 62
"""Bound of sums of ints that Arrow adds, which would wrap beyond 64 bits."""


class Records(Sequence[tuple[None, Any]]):
    """Records of a batch of columns as pairs, made when an error asks for one."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return self._batch.num_rows

    def __getitem__(self, index: Any) -> Any:
        return None, record_at(self._batch, index)


class WindowSum(WindowAggregate):
    """Sum of a field, by key in columns: ints by Arrow if no sum can be too large for it, others one by one."""

    def __init__(self, aggregation: Sum, field: str) -> None:
        super().__init__(aggregation)
        self._field = field

    def add_columns(self, table: Table, batch: RecordBatch, key: Any, guard: Guard) -> None:
        if self._field not in batch.schema.names or not isinstance(key, str):
            super().add_columns(table, batch, key, guard)
            return
        keys, values = batch.column(key), batch.column(self._field)
        if not _is_summable(values) or not self._add_ints(table, keys, values):
            pairs = zip(state_keys(keys.to_pylist()), values.to_pylist(), strict=True)
            guard.run(lambda records: self._add_terms(table, records), list(pairs), pairs=Records(batch))

    def _add_ints(self, table: Table, keys: Any, values: Any) -> bool:
        """Adds the sums of Arrow. Returns False if the table has a sum of another kind, such as of timedeltas."""
        import pyarrow  # loaded only if there are columns

        pairs = pyarrow.table({"key": keys, "value": values})
        # One thread, so that new keys come in the order of their first records.
        sums = pairs.group_by("key", use_threads=False).aggregate([("value", "sum")])
        found = dict(zip(state_keys(sums.column("key").to_pylist()), sums.column("value_sum").to_pylist(), strict=True))
        get, insert = table.entries.get, self.aggregation.insert
        try:
            table.update({key: insert(get(key, 0), term) for key, term in found.items()})
        except TypeError:
            return False
        return True

    def _add_terms(self, table: Table, records: Iterator[Any]) -> None:
        entries, changed, insert = table.entries, table.changed, self.aggregation.insert
        for key, term in records:
            entries[key] = insert(entries.get(key, 0), None if term is None else exact(term))
            changed[key] = None


def _is_summable(values: Any) -> bool:
    """Returns whether a column has ints whose sum fits 64 bits, whatever their order."""
    import pyarrow
    from pyarrow import compute

    if not pyarrow.types.is_integer(values.type):
        return False
    bounds = [abs(bound or 0) for bound in compute.min_max(values).as_py().values()]
    return bool(max(bounds) * len(values) <= SUM_MAX)


def window_aggregate(aggregation: Aggregation[Any, Any]) -> WindowAggregate:
    """Returns the fastest way to add batches of rows or columns for an aggregation."""
    if isinstance(aggregation, Count) and not aggregation.functions:
        return WindowCount(aggregation)
    if isinstance(aggregation, Sum) and isinstance(aggregation.of, str):
        return WindowSum(aggregation, aggregation.of)
    return WindowAggregate(aggregation)
