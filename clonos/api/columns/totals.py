"""Running, changed and final aggregates of streams of columns by key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from clonos.api.columns.key_columns import key_columns
from clonos.api.columns.row_reasons import aggregate_reason, name_reason
from clonos.api.emission import Emission
from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.aggregates.partial import Partial
from clonos.operators.columnar.running.total_forms import FinalForm, RunningForm
from clonos.operators.columnar.support import columns_read
from clonos.operators.operator import Operator
from clonos.operators.steps.running_aggregates import name_before

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
    is_keyed: bool = True,
    is_count: bool = False,
) -> dict[str, Any]:
    """Returns ``make`` and other keywords of a step over columns, or of one over rows if that is not possible.

    ``make_rows``: makes the operator over rows. ``is_count``: the aggregation is that of ``count()``.
    """
    part = aggregation if isinstance(aggregation, Partial) else None
    aggregation = aggregation if part is None else part.aggregation
    in_rows = {"make": make_rows, "row_reason": aggregate_reason(aggregation, has_members=emit.count is None)}
    emits = _emits(emit)
    keys = key_columns(stream._graph, stream._inputs) if is_keyed else ()
    reads = columns_read(aggregation, has_members=emit.count is None)
    is_columnar = bool(keys) if is_keyed else all(map(stream._graph.gives_columns, stream._inputs))
    if not is_columnar or reads is None or not isinstance(aggregation, Named):
        return in_rows
    if not is_keyed and emit.is_final:
        return {"make": make_rows, "form": FinalForm(aggregation, (), is_part=part is not None)}
    results = tuple(aggregation.aggregations)
    replaced = tuple(map(name_before, results)) if emit.has_before else ()
    names = [*keys, *results, *replaced]
    time = stream._graph.steps[stream._inputs[0].step].timestamp_column
    if time is not None and emits == "EACH" and time.name not in keys:
        names.append(time.name)
    if reason := name_reason(names):
        return {**in_rows, "row_reason": reason}
    pace = None if emits else (emit.count, emit.interval_ns)
    return {
        "make": make_rows,
        "form": RunningForm(aggregation, keys, emits, is_count, pace),
        "emits_columns": True,
        "reads": reads if is_keyed else reads or None,
        "schema_from": partial(_result_schema, aggregation, keys, names, emit.has_before, is_count),
    }


def _emits(emit: Emission) -> str:
    """Returns the name of a member of ``Emits``; "" if results leave at a pace."""
    if emit.is_per_batch:
        return "REPLACEMENTS" if emit.has_before else "CHANGES"
    return "EACH" if emit.count == 1 else "END" if emit.is_final else ""


def _result_schema(
    aggregation: Aggregation[Any, Any],
    keys: tuple[str, ...],
    names: list[str],
    has_before: bool,
    is_count: bool,
    schema: Any,
) -> Any | None:
    from clonos.operators.columnar.result_schemas import schema_of_totals  # loads pyarrow

    return schema_of_totals(aggregation, keys, names, schema, has_before=has_before, is_count=is_count)
