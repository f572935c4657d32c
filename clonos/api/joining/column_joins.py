"""Joins over columns in a plan: when a join is one, and what its step then has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from clonos.api.columns.key_columns import key_columns
from clonos.api.columns.schemas import schema_of
from clonos.api.steps import GraphBuilder
from clonos.operators.columnar.joins.join_by_type import JoinByType
from clonos.operators.columnar.row_forms import JOIN_TIME
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import TwoInputOperator


def over_columns(
    left: GraphBuilder,
    right: GraphBuilder,
    make_rows: Callable[..., TwoInputOperator],
    make_columns: Callable[..., Any],
    row_tables: tuple[str, ...],
    select: Callable[[Any, Any], Any] | None,
    *,
    gives_pairs: bool = True,
    has_times: bool,
    has_join_time: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Returns the maker of a join, over columns if it can be, and what its step has if its results are columns.

    ``select`` makes rows of the pairs; the state is in columns all the same. See ``_in_columns``, ``_result_columns``.
    """
    results = _result_columns(left, right, gives_pairs=gives_pairs, has_times=has_times, has_join_time=has_join_time)
    make = _in_columns(left, right, make_rows, make_columns, row_tables)
    if make is None:
        return partial(partial, make_rows), {}
    if select is None:
        return make, results
    return partial(make, select=select, pair_times=results["timestamp_column"]), {}


def _in_columns(
    left: GraphBuilder,
    right: GraphBuilder,
    make_rows: Callable[..., TwoInputOperator],
    make_columns: Callable[..., Any],
    row_tables: tuple[str, ...],
) -> Any | None:
    """Returns the maker of a join over columns, None if a side gives rows or its key is no column.

    ``make_rows`` and ``make_columns`` make the joins for the name of the step, the latter with ``keys`` too.
    """
    graph = left._graph
    keys = key_columns(graph, left._inputs), key_columns(graph, right._inputs)
    if graph is not right._graph or not all(keys) or len(keys[0]) != len(keys[1]):
        return None
    expected = _known_schema(left), _known_schema(right)
    return partial(
        partial,
        JoinByType,
        make_rows=make_rows,
        make_columns=partial(make_columns, keys=keys),
        expected=expected,
        row_tables=row_tables,
    )


def _result_columns(
    left: GraphBuilder, right: GraphBuilder, *, gives_pairs: bool, has_times: bool, has_join_time: bool = False
) -> dict[str, Any]:
    """Returns what the step of a join over columns has for its results, which are pairs or records of the left side.

    ``has_join_time``: they have the later timestamp of both sides, else that of the left one.
    """
    column: TimestampColumn | None = left._graph.steps[left._inputs[0].step].timestamp_column if has_times else None
    keys = key_columns(left._graph, left._inputs), key_columns(left._graph, right._inputs)
    return {
        "emits_columns": True,
        "timestamp_column": TimestampColumn(JOIN_TIME) if has_join_time else column,
        "schema_from": partial(_result_schema, keys, gives_pairs, has_join_time),
    }


def _result_schema(
    keys: tuple[tuple[str, ...], tuple[str, ...]], gives_pairs: bool, has_join_time: bool, left: Any, right: Any
) -> Any | None:
    from clonos.operators.columnar.joins.join_results import schema_of_results  # loads pyarrow

    return schema_of_results((left, right), keys, gives_pairs, has_join_time)


def _known_schema(stream: GraphBuilder) -> bytes:
    """Returns the encoded schema of a stream, b"" if the plan does not know it."""
    schemas = [schema_of(stream._graph.steps, each) for each in stream._inputs]
    if schemas[0] is None or any(each is None or not each.equals(schemas[0]) for each in schemas):
        return b""
    return schemas[0].serialize().to_pybytes()  # type: ignore[no-any-return]
