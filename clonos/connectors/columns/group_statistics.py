"""Row groups of Parquet that cannot hold a wanted row, by the least and the greatest value of their columns.

Statistics only say what is not there: where they are missing, or compare otherwise than Python does, the group is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any, Final

import pyarrow

from clonos.operators.column_contract import Bound


def has_no_row(file: Any, group: int, bounds: Sequence[Bound]) -> bool:
    """Returns whether no row of a row group of a ``pyarrow.parquet.ParquetFile`` meets all bounds."""
    metadata = file.metadata.row_group(group)
    places = {metadata.column(index).path_in_schema: index for index in range(metadata.num_columns)}
    return any(
        _excludes(metadata.column(places[bound.column]).statistics, file.schema_arrow.field(bound.column).type, bound)
        for bound in bounds
        if bound.column in places and bound.column in file.schema_arrow.names
    )


def _excludes(statistics: Any, kind: Any, bound: Bound) -> bool:
    if statistics is None or not any(is_ordered(kind) for is_ordered in _ORDERED):
        return False
    if statistics.has_null_count and statistics.num_values == 0 and statistics.null_count > 0:
        return True  # all are null
    is_floating = pyarrow.types.is_floating(kind)
    if is_floating and (bound.comparison in (">", ">=") or bound.value != bound.value):
        return False  # NaN is in no statistics, and greater than all numbers where floats have a total order
    if not statistics.has_min_max:
        return False
    try:
        low, high = statistics.min, statistics.max
        if is_floating:
            if isnan(low) or isnan(high):
                return False
            bound = bound._replace(value=float(bound.value))  # an integer is rounded, as kernels do it
        return bool(_is_excluded(low, high, bound))
    except (TypeError, ValueError, OverflowError):  # a value of another type than the column's
        return False


def _is_excluded(low: Any, high: Any, bound: Bound) -> Any:
    value = bound.value
    if bound.comparison == "==":
        return value < low or value > high
    if bound.comparison == "<":
        return low >= value
    if bound.comparison == "<=":
        return low > value
    if bound.comparison == ">":
        return high <= value
    return high < value


_ORDERED: Final = (
    pyarrow.types.is_integer,
    pyarrow.types.is_float64,
    pyarrow.types.is_string,
    pyarrow.types.is_large_string,
    pyarrow.types.is_boolean,
    pyarrow.types.is_date32,
    pyarrow.types.is_timestamp,
)
