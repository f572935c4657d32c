"""Columns of the results of windows and aggregates, as far as they follow from those of the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow

from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.columnar.aggregate_maker import column_aggregates
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.logs.value_log import ValueLog
from clonos.operators.columnar.row_forms import END, START, TIME, TotalForm, WindowForm, metadata_of
from clonos.operators.columnar.running.stored_keys import plain
from clonos.operators.columnar.window_columns import INSTANT
from clonos.operators.kinds.total_kind import name_before


def schema_of_windows(aggregation: Aggregation[Any, Any], keys: Sequence[str], schema: Any, *, has_logs: bool) -> Any:
    """Returns the columns of the results of windows over records of a schema, for which they work on columns.

    ``has_logs``: see ``column_aggregates``.
    """
    fields, values = _fields(aggregation, keys, schema, has_logs=has_logs)
    times = [pyarrow.field(name, INSTANT) for name in (START, END, TIME)]
    form = WindowForm(tuple(keys), tuple(field.name for field in values))
    return pyarrow.schema([*fields, *times, *values], metadata_of(form))


def schema_of_totals(
    aggregation: Aggregation[Any, Any],
    keys: Sequence[str],
    names: Sequence[str],
    schema: Any,
    *,
    has_before: bool = False,
    is_count: bool = False,
) -> Any:
    """Returns the same for aggregates of keys. ``names`` has the time of records last, if results have it.

    ``has_before``: results have those that they replace. ``is_count``: the aggregation is that of ``count()``.
    """
    fields, values = _fields(aggregation, keys, schema, has_tables=True)
    if has_before:
        values += [field.with_name(name_before(field.name)) for field in values]
    times = [schema.field(name).remove_metadata() for name in names[len(fields) + len(values) :]]
    form = TotalForm(tuple(keys), tuple(field.name for field in values), is_count)
    return pyarrow.schema([*fields, *times, *values], metadata_of(form))


def _fields(
    aggregation: Aggregation[Any, Any], keys: Sequence[str], schema: Any, **forms: bool
) -> tuple[list[Any], list[Any]]:
    """Returns the columns of the key, and those of the aggregates. ``forms``: see ``column_aggregates``."""
    aggregates = column_aggregates(aggregation, plain(schema, schema.names), **forms)
    assert aggregates is not None, "these columns have no reason to be rows"
    return [*plain(schema, keys)], [pyarrow.field(each.name, _type_of(each)) for each in aggregates]


def _type_of(aggregate: ColumnAggregate) -> Any:
    state: dict[str, Any] = {name: numpy.zeros(0, dtype) for name, dtype in aggregate.dtypes().items()}
    state |= {name: ValueLog() for name in aggregate.logs}
    return aggregate.results(state, numpy.arange(0)).type
