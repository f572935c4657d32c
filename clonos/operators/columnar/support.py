"""Which aggregations can be made for columns. Nothing here imports numpy or pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.distinct import ApproxDistinct, CountDistinct, Distinct
from clonos.operators.aggregates.numeric import Mean, Stddev, Sum, Variance
from clonos.operators.aggregates.quantiles import Quantile
from clonos.operators.aggregates.ranking import BottomK, Ranking, TopKRecords
from clonos.operators.aggregates.values import Collect, First, Last, Max, Min
from clonos.operators.columnar.row_forms import SINGLE

COLUMNAR: Final = (Sum, Mean, Variance, Stddev, Min, Max, First, Last)
"""Aggregates of a column whose state is a few numbers."""

LISTED: Final = (Collect, Distinct, TopKRecords, BottomK)
SKETCHED: Final = (Quantile, ApproxDistinct)
"""Aggregates of a column whose state is a log."""


def parts_of(aggregation: Aggregation[Any, Any]) -> dict[str, Any]:
    """Returns the aggregations of a step by the columns of their results."""
    return dict(aggregation.aggregations) if isinstance(aggregation, Named) else {SINGLE: aggregation}


def column_of(aggregation: Any) -> Any:
    """Returns what an aggregation reads: the name of a column, a function, or None."""
    return aggregation.by if isinstance(aggregation, Ranking) else getattr(aggregation, "of", None)


def is_of_records(aggregation: Any) -> bool:
    """Returns whether an aggregation lists whole records."""
    return type(aggregation) is Collect and aggregation.of is None


def reads_records(aggregation: Aggregation[Any, Any]) -> bool:
    """Returns whether an aggregation needs all columns of its records."""
    return any(isinstance(each, Ranking) or is_of_records(each) for each in parts_of(aggregation).values())


def columns_read(
    aggregation: Aggregation[Any, Any], *, has_members: bool = False, has_logs: bool = False
) -> tuple[str, ...] | None:
    """Returns the columns that an aggregation reads; None if it cannot be made for columns, whatever their types.

    ``has_members``: aggregates may have a table with the values of each key beside their columns of state.
    ``has_logs``: they may have a log there.
    """
    columnar: tuple[type, ...] = (*COLUMNAR, *LISTED, *SKETCHED, CountDistinct) if has_logs else COLUMNAR
    if has_members:
        columnar += (CountDistinct,)
    found: dict[str, None] = {}
    for each in parts_of(aggregation).values():
        if (type(each) is Count and not each.functions) or (has_logs and is_of_records(each)):
            continue
        of = column_of(each)
        if type(each) not in columnar or not isinstance(of, str):
            return None
        found[of] = None
    return tuple(found)


def reason_for_rows(aggregation: Aggregation[Any, Any], *, has_members: bool = False, has_logs: bool = False) -> str:
    """Returns which aggregate works on rows, whatever the types of columns; "" if all may work on columns.

    ``has_members``, ``has_logs``: see ``columns_read``.
    """
    for each in parts_of(aggregation).values():
        if columns_read(each, has_members=has_members, has_logs=has_logs) is None:
            return f"{each!r} works on rows"
    return ""


def name_reason(names: Sequence[str]) -> str:
    """Returns why results with columns of these names are rows; "" if no name is there twice."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    return f"its results would have two columns {twice[0]!r}" if twice else ""
