"""The plan knows the columns after windows, aggregates and joins of columns: those that their batches have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from clonos import col
from clonos.agg import first, min_
from clonos.api.columns.schemas import schema_of
from clonos.api.emission import changes, each
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.step import StepInput
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.expressions.expression_errors import InvalidExpression
from tests.unit.columns.test_column_totals import SCHEMA, START
from tests.unit.columns.test_column_totals import aggregates as running
from tests.unit.columns.test_column_windows import ColumnsOf, aggregates
from tests.unit.columns.test_windows_with_logs import aggregates as logs
from tests.unit.operators.driver import Outbox, run
from tests.unit.values.samples import printed_by

ROWS = [
    {"key": key, "other": bool(at % 2), "at": START + at, "x": at, "y": at / 2, "money": None}
    for at, key in enumerate(["a", "b", "a", "c", "a"])
]


class Described(ColumnsOf):
    """Columns of which the plan knows the types."""

    def column_schema(self) -> Any:
        return self.schema


def _shown(batch: Any) -> Any:
    """Records with the columns of their batch, and the form of its rows, as a text."""
    text = batch.schema.to_string(truncate_metadata=False)
    return batch.replace_schema_metadata(None).append_column("columns", pa.array([text] * batch.num_rows))


STREAMS: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda stream: stream.key_by("key").window(Tumbling("2s")).aggregate(**aggregates(), **_logs()),
    "sliding": lambda stream: stream.key_by("key", "other").window(Sliding("4s", every="2s")).aggregate(**logs()),
    "windows without a key": lambda stream: stream.window(Tumbling("2s")).count(),
    "sessions": lambda stream: stream.key_by("key").window(Session("2s")).aggregate(**aggregates()),
    "each": lambda stream: stream.key_by("key").aggregate(**running()),
    "each third": lambda stream: stream.key_by("key").aggregate(**running(), emit=each(3)),
    "changes": lambda stream: stream.key_by("key", "other").aggregate(**running(), emit=changes()),
    "replacements": lambda stream: stream.key_by("key").aggregate(**running(), emit=changes(before=True)),
    "count": lambda stream: stream.key_by("key").count(),
    "all": lambda stream: stream.aggregate(**running()),
    "all changes": lambda stream: stream.aggregate(**running(), emit=changes()),
    "as of": lambda stream: stream.join_as_of(stream.select("key", "at", z=col("x")), on="key"),
    "lookup": lambda stream: stream.lookup(stream.select("key", "at", z=col("x")), on="key"),
    "windows of windows": lambda stream: (
        stream.key_by("key").window(Tumbling("2s")).count().key_by("key").window(Tumbling("9s")).sum("value")
    ),
    **{
        how: lambda stream, how=how: stream.join(stream.filter(col("x") > 1), on="key", how=how, between=("-2s", "2s"))  # type: ignore[misc]
        for how in ("inner", "left", "right", "full", "semi", "anti")
    },
}


def _logs() -> dict[str, Any]:
    return {f"{name}_list": found for name, found in logs().items()}


@pytest.mark.parametrize("name", STREAMS)
def test_the_plan_knows_the_columns_of_results(name: str) -> None:
    graph = JobGraph("job")
    stream: Any = graph.source(Described(ROWS, SCHEMA), timestamps=Timestamps("at", future_max=None))
    results = STREAMS[name](stream)
    found = schema_of(graph.steps, StepInput(len(graph.steps) - 1))
    results.map_batches(_shown).sink(Outbox())
    (written,) = run(graph, 1, 9).written.values()
    assert found is not None
    assert {row["columns"] for row in written} == {found.to_string(truncate_metadata=False)}


def test_the_plan_does_not_know_the_columns_of_results_that_are_rows() -> None:
    graph = JobGraph("job")
    stream: Any = graph.source(Described(ROWS, SCHEMA), timestamps=Timestamps("at", future_max=None))
    results: list[Callable[[], Any]] = [
        lambda: stream.key_by("key").window(Session("2s")).aggregate(first=first("key")),
        lambda: stream.key_by("key").aggregate(least=min_("list")),
        lambda: stream.join(stream.select("at", key=col("x").cast("uint64")), on=("x", "key"), between=("-2s", "2s")),
    ]
    for add in results:
        add()
        assert schema_of(graph.steps, StepInput(len(graph.steps) - 1)) is None
    assert schema_of(graph.steps, StepInput(0)).equals(SCHEMA)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["tumbling", "each", "inner"])
def test_a_wrong_column_after_them_is_refused_where_the_step_is_added(name: str) -> None:
    graph = JobGraph("job")
    stream: Any = graph.source(Described(ROWS, SCHEMA), timestamps=Timestamps("at", future_max=None))
    results = STREAMS[name](stream)
    with pytest.raises(InvalidExpression, match="there is no column 'totals'"):
        results.filter(col("totals") > 1)


def test_finding_the_columns_of_a_join_imports_no_pandas() -> None:
    program = (
        "import sys, pyarrow; from clonos.operators.columnar.joins.join_results import schema_of_results;"
        "left, right = (pyarrow.schema({key: pyarrow.int64(), 't': pyarrow.string()}) for key in 'ab');"
        "print(schema_of_results((left, right), (('a',), ('b',)), (False, False), True).names, 'pandas' in sys.modules)"
    )
    assert printed_by(program) == "['a', 't', 'b', 't_right', 'join_time'] False"
