"""The aggregates over columns that an aggregation has for the types of a schema."""

from __future__ import annotations

from typing import Any

from pyarrow import types

from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.aggregates.distinct import CountDistinct
from clonos.operators.aggregates.numeric import Mean, Stddev, Sum, Variance
from clonos.operators.aggregates.values import First, Last, Max, Min
from clonos.operators.columnar.column_aggregates import (
    ColumnAggregate,
    CountColumn,
    ExtremeColumn,
    FirstColumn,
    LastColumn,
    MeanColumn,
    SumColumn,
)
from clonos.operators.columnar.logs.listed_values import CollectedRecords, listed
from clonos.operators.columnar.logs.retained_values import RetainedValue, can_be_retained
from clonos.operators.columnar.logs.sketches import sketched
from clonos.operators.columnar.partial_form import can_be_partial
from clonos.operators.columnar.running.distinct_counts import DistinctCount
from clonos.operators.columnar.running.retained_totals import RetainedTotal
from clonos.operators.columnar.sums.decimal_sums import DecimalSum
from clonos.operators.columnar.sums.float_sums import FloatMean, FloatSum
from clonos.operators.columnar.sums.variances import FloatVariance, IntVariance
from clonos.operators.columnar.support import LISTED, SKETCHED, column_of, is_of_records, parts_of


def column_aggregates(
    aggregation: Aggregation[Any, Any], schema: Any, *, has_logs: bool = False, has_tables: bool = False
) -> list[ColumnAggregate] | None:
    """Makes the aggregates of an aggregation that ``columns_read`` accepts, for batches of a schema.

    ``has_logs``: aggregates may have a log, which has distinct values, and values that are no numbers. ``has_tables``:
    they may have state of their own beside their columns, as ``ColumnTotals`` opens it.

    Returns None if one of them cannot be made for the type of its column, or the column is missing.
    """
    found: list[ColumnAggregate] = []
    for name, each in parts_of(aggregation).items():
        of = column_of(each)
        if is_of_records(each):
            found.append(CollectedRecords(name, schema))
            continue
        if of is None:
            found.append(CountColumn(name, None))
            continue
        made = _made(name, each, of, schema, has_logs, has_tables) if of in schema.names else None
        if made is None:
            return None
        found.append(made)
    return found


def aggregate_reason(aggregation: Aggregation[Any, Any], schema: Any, **forms: bool) -> str:
    """Returns which aggregate works on rows for columns of these types; "" if none does.

    ``forms``: ``has_logs`` and ``has_tables`` of ``column_aggregates``.
    """
    for each in parts_of(aggregation).values():
        of = column_of(each)
        if of is not None and of not in schema.names:
            return f"there is no column {of!r}"
        if column_aggregates(each, schema, **forms) is None:
            advice = "; cast the column to float in front of it for columns" if isinstance(each, Mean) else ""
            return f"{each!r} of the type {schema.field(of).type} works on rows{advice}"
    return ""


def split_reason(aggregation: Aggregation[Any, Any], schema: Any) -> str:
    """Returns which aggregate has no partial aggregates over columns of these types; "" if all have them."""
    for each in parts_of(aggregation).values():
        made = column_aggregates(each, schema)
        if made is None or not can_be_partial(each) or not all(part.adds_states for part in made):
            return f"with split_hot_keys=True {each!r} works on rows"
    return ""


def _made(
    name: str, aggregation: Any, of: str, schema: Any, has_logs: bool, has_tables: bool
) -> ColumnAggregate | None:
    """Makes an aggregate of a column; None if it cannot be made for its type."""
    type_ = schema.field(of).type
    if type(aggregation) in LISTED or (has_logs and type(aggregation) is CountDistinct):
        return listed(name, aggregation, of, schema)
    if type(aggregation) in SKETCHED:
        return sketched(name, aggregation, of, type_)
    if not _is_supported(aggregation, type_):
        if type(aggregation) not in (Min, Max, First, Last) or not (has_logs or has_tables):
            return None
        made = RetainedTotal if has_tables else RetainedValue
        return made(name, aggregation, of, type_) if can_be_retained(aggregation, type_) else None
    if type(aggregation) in (Sum, Mean):
        return _sum(name, aggregation, of, type_)
    if type(aggregation) in (Variance, Stddev):
        return (FloatVariance if types.is_floating(type_) else IntVariance)(aggregation, name, of, type_)
    if type(aggregation) in (Min, Max):
        return ExtremeColumn(name, of, type_, is_largest=type(aggregation) is Max)
    if type(aggregation) is CountDistinct:
        return DistinctCount(name, of, type_)
    return (FirstColumn if type(aggregation) is First else LastColumn)(name, of, type_)


def _sum(name: str, aggregation: Any, of: str, type_: Any) -> ColumnAggregate:
    is_sum = type(aggregation) is Sum
    if types.is_decimal(type_):
        return DecimalSum(name, of, type_)
    if types.is_floating(type_):
        return (FloatSum if is_sum else FloatMean)(name, of, type_)
    return (SumColumn if is_sum else MeanColumn)(name, of, type_)


def _is_supported(aggregation: Any, type_: Any) -> bool:
    if type(aggregation) is CountDistinct:
        is_text = types.is_string(type_) or types.is_large_string(type_)
        return bool(is_text or types.is_integer(type_) or types.is_boolean(type_) or types.is_date32(type_))
    if types.is_float16(type_) or types.is_uint64(type_):
        return False
    if types.is_decimal(type_):  # a mean has 28 digits, wherever its point is; a column has one scale
        return type(aggregation) is Sum and not types.is_decimal256(type_)
    if type(aggregation) in (Sum, Mean, Variance, Stddev):
        return bool(types.is_integer(type_) or types.is_boolean(type_) or types.is_floating(type_))
    is_number = types.is_integer(type_) or types.is_floating(type_)
    return bool(is_number or types.is_timestamp(type_) or types.is_boolean(type_) or types.is_date32(type_))
