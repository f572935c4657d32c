"""Which aggregations can be made for columns. Nothing here imports numpy or pyarrow."""

from __future__ import annotations

from typing import Any

from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.distinct import CountDistinct
from clonos.operators.aggregates.numeric import Mean, Sum
from clonos.operators.aggregates.values import First, Last, Max, Min
from clonos.operators.columnar.row_forms import SINGLE


def parts_of(aggregation: Aggregation[Any, Any]) -> dict[str, Any]:
    """Returns the aggregations of a step by the columns of their results."""
    return dict(aggregation.aggregations) if isinstance(aggregation, Named) else {SINGLE: aggregation}


def columns_read(
    aggregation: Aggregation[Any, Any], *, merges: bool = False, has_members: bool = False
) -> tuple[str, ...] | None:
    """Returns the columns that an aggregation reads; None if it cannot be made for columns, whatever their types.

    ``merges``: windows become one, and the order of their records follows from which of them met first.
    ``has_members``: aggregates may have a table with the values of each key beside their columns of state.
    """
    found: dict[str, None] = {}
    for each in parts_of(aggregation).values():
        if type(each) is Count and not each.functions:
            continue
        if has_members and type(each) is CountDistinct and isinstance(each.of, str):
            found[each.of] = None
            continue
        if type(each) not in (Sum, Mean, Min, Max, First, Last) or not isinstance(each.of, str):
            return None
        if merges and not each.ignores_order:
            return None
        found[each.of] = None
    return tuple(found)
