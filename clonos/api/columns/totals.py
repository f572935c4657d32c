"""Running, changed and final aggregates of streams of columns by key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from clonos.api.columns.key_columns import key_columns
from clonos.api.columns.row_reasons import aggregate_reason, name_reason, type_reason
from clonos.api.emission import Emission
from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.columnar.running.totals_by_type import TotalsByType
from clonos.operators.columnar.support import columns_read
from clonos.operators.operator import Operator

if TYPE_CHECKING:
    from clonos.api.steps import GraphBuilder

COUNT_COLUMN: Final = "count"
"""Column that a running count gives beside the key."""


def column_totals(
    stream: GraphBuilder,
    aggregation: Aggregation[Any, Any],
    emit: Emission,
    make_rows: Callable[[str], Callable[[], Operator]],
    *,
    is_count: bool = False,
) -> dict[str, Any]:
    """Returns ``make`` and other keywords of a step over columns, or of one over rows if that is not possible.

    ``make_rows``: makes the operator over rows. ``is_count``: the aggregation is that of ``count()``.
    """
    in_rows = {"make": make_rows, "row_reason": aggregate_reason(aggregation, has_members=emit.count != 1)}
    emits = "EACH" if emit.count == 1 else "CHANGES" if emit.is_per_batch else "END" if emit.is_final else None
    keys = key_columns(stream._graph, stream._inputs)
    reads = columns_read(aggregation, has_members=emit.count != 1)
    if emits is None:
        return {**in_rows, "row_reason": f"emit={emit} works on rows"}
    if not keys or reads is None or not isinstance(aggregation, Named):
        return in_rows
    names = [*keys, *aggregation.aggregations]
    time = stream._graph.steps[stream._inputs[0].step].timestamp_column
    if time is not None and emits == "EACH" and time.name not in keys:
        names.append(time.name)
    if reason := name_reason(names):
        return {**in_rows, "row_reason": reason}
    return {
        "make": lambda step: partial(
            TotalsByType, step, aggregation, keys, reads, emits, make_rows(step), is_count=is_count
        ),
        "emits_columns": True,
        "reads": reads,
        "rows_for": partial(type_reason, aggregation, keys),
    }
