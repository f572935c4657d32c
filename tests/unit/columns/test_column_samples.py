"""peek, sample and limit of a stream of columns pass columns on, and the records that they do over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from clonos import col
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from tests.unit.columns.test_column_windows import START, ColumnsOf
from tests.unit.operators.driver import Given, Outbox, run

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.int64())])
ROWS = [{"key": "ab"[number % 2], "at": START + number, "x": number} for number in range(40)]


def refuse_thirteen(row: Any) -> None:
    """Raises for one record."""
    if row["x"] == 13:
        raise ValueError("thirteen")


def refuse_others(row: Any) -> None:
    """Raises for a record that is no dict of these records."""
    if row not in ROWS:
        raise TypeError(row)


STEPS: dict[str, Callable[[Any], Any]] = {
    "sample": lambda stream: stream.sample(0.4, seed=3),
    "all": lambda stream: stream.sample(1.0),
    "none": lambda stream: stream.sample(0.0),
    "peek": lambda stream: stream.peek(len),
    "peek that fails": lambda stream: stream.peek(refuse_thirteen),
    "limit": lambda stream: stream.limit(5),
    "sample of windows": lambda stream: stream.key_by("x").window(Tumbling("9s")).count().sample(0.5),
    "peek of windows": lambda stream: stream.key_by("x").window(Tumbling("9s")).count().peek(len),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_passes_on_what_it_does_over_rows(name: str) -> None:
    found = []
    for source in (Given(ROWS), ColumnsOf(ROWS, SCHEMA)):
        graph = JobGraph("job", errors=Outbox())
        stream = graph.source(source, timestamps=Timestamps("at", future_max=None))
        STEPS[name](stream).sink(Outbox(), name="out")
        finished = run(graph, 1, 7)
        found.append(
            (finished.written, [error.split(b"(")[0] for each in finished.collectors for error in each.errors])
        )
    assert found[1] == found[0]
    assert ("fails" in name) == bool(found[0][1])


def test_a_function_that_peeks_gets_dicts_and_columns_pass_on() -> None:
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf(ROWS[:3], SCHEMA)).peek(refuse_others).sample(1.0).limit(2)
    stream.filter(col("x") > 0).select("x").sink(Outbox())
    ((_, written),) = run(graph, 1).written.items()
    assert written == [{"x": 1}]
