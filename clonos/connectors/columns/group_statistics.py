"""Row groups of Parquet that cannot hold a wanted row, by the least and the greatest value of their columns.

Statistics only say what is not there: where they are missing, or compare otherwise than Python does, the group is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any, Final

import pyarrow

from clonos.expressions.pushdown import Comparison

NOT_FOR_FLOATS: Final = (">", ">=")
"""NaN is in no statistics, and greater than all numbers."""

EXACT_MAX: Final = 1 << 53
"""Limit of the integers that floats represent without rounding."""


def has_no_row(file: Any, group: int, comparisons: Sequence[Comparison]) -> bool:
    """Returns whether no row of a row group of a ``pyarrow.parquet.ParquetFile`` fulfils all comparisons."""
    metadata, schema = file.metadata.row_group(group), file.schema_arrow
    places = {metadata.column(index).path_in_schema: index for index in range(metadata.num_columns)}
    return any(
        _excludes(metadata.column(places[each.column]).statistics, schema.field(each.column).type, each)
        for each in comparisons
        if each.column in places and each.column in schema.names
    )


def _excludes(statistics: Any, kind: Any, comparison: Comparison) -> bool:
    if statistics is None or not any(is_ordered(kind) for is_ordered in _ORDERED):
        return False
    if comparison.comparator == "is_null":
        return bool(statistics.has_null_count and statistics.null_count == 0)
    if statistics.has_null_count and statistics.num_values == 0 and statistics.null_count > 0:
        return True  # all are null
    if not statistics.has_min_max:
        return False
    try:
        low, high = statistics.min, statistics.max
        if not _is_compared_exactly(low, high, kind, comparison):
            return False
        return _is_excluded(low, high, comparison.comparator, comparison.value)
    except (TypeError, ValueError, OverflowError):  # a value of another type than the column's
        return False


def _is_compared_exactly(low: Any, high: Any, kind: Any, comparison: Comparison) -> bool:
    """Returns whether Python compares a column with a constant as kernels do, which may round integers to floats."""
    values = comparison.value if comparison.comparator == "is_in" else (comparison.value,)
    if pyarrow.types.is_floating(kind):
        if comparison.comparator in NOT_FOR_FLOATS or any(value != value for value in values) or isnan(low + high):
            return False
    elif not pyarrow.types.is_integer(kind) or not any(isinstance(value, float) for value in values):
        return True
    return all(abs(each) < EXACT_MAX for each in (low, high, *values))


def _is_excluded(low: Any, high: Any, comparator: str, value: Any) -> bool:
    match comparator:
        case "==":
            return bool(value < low or value > high)
        case "is_in":
            return all(each is not None and (each < low or each > high) for each in value)
        case "<":
            return bool(low >= value)
        case "<=":
            return bool(low > value)
        case ">":
            return bool(high <= value)
        case ">=":
            return bool(high < value)
    return False


_ORDERED: Final = (
    pyarrow.types.is_integer,
    pyarrow.types.is_float64,
    pyarrow.types.is_string,
    pyarrow.types.is_large_string,
    pyarrow.types.is_boolean,
    pyarrow.types.is_date32,
    pyarrow.types.is_timestamp,
)
