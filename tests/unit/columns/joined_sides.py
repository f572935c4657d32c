"""Two sides of joins as rows or as columns, for tests that compare joins over both."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.operators.tags import Tag
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import START_NS, Given, Outbox, run

START = START_NS // 1_000_000_000
LEFT = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.int64())])
RIGHT = pa.schema([("key", pa.large_string()), ("at", pa.int64()), ("name", pa.string()), ("x", pa.int32())])
LATE = Tag[Any]("late")

Record = dict[str, Any]


def records(schema: Any, keys: int, seconds: int) -> st.SearchStrategy[list[Record]]:
    """Records of a side; keys and values may be null."""
    columns = {
        "key": st.sampled_from(["a", None, "b", "c"][:keys]),
        "at": st.integers(START, START + seconds),
        "x": st.none() | st.integers(-5, 5),
        "name": st.none() | st.sampled_from(["x", "yy"]),
    }
    return st.lists(st.fixed_dictionaries({name: columns[name] for name in schema.names}), max_size=40)


def many_records(seed: int, keys: int, seconds: int) -> tuple[list[Record], list[Record]]:
    """Sides of 40 records: lists of hypothesis are shorter, and seldom have several equal timestamps of a key."""
    rng = Random(seed)
    columns: dict[str, Callable[[], Any]] = {
        "key": lambda: rng.choice(["a", None, "b", "c"][:keys]),
        "at": lambda: START + rng.randint(0, seconds),
        "x": lambda: rng.randint(-99, 99),
        "name": lambda: rng.choice([None, "x", "yy"]),
    }
    lefts, rights = ([{name: columns[name]() for name in each.names} for _ in range(40)] for each in (LEFT, RIGHT))
    return lefts, rights


SPREADS = st.tuples(st.sampled_from([2, 4]), st.sampled_from([2, 8, 30]))
SIDES = st.one_of(
    SPREADS.flatmap(lambda spread: st.tuples(records(LEFT, *spread), records(RIGHT, *spread))),
    st.tuples(st.integers(0, 1000), SPREADS).map(lambda given: many_records(given[0], *given[1])),
)


def joined(graph: JobGraph, sides: Any, join: Callable[..., Any], make: Any = ColumnsOf, is_timed: bool = True) -> Any:
    """Adds both sides, as rows with ``Given``, and their join."""
    timestamps: Any = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None) if is_timed else None
    streams: list[Stream[Any]] = []
    for rows, schema in zip(sides, (LEFT, RIGHT), strict=True):
        source = Given(rows) if make is Given else make(rows, schema)
        streams.append(graph.source(source, timestamps=timestamps))
    return join(*streams)


def written_by(build: Callable[[JobGraph], Any], parallelism: int, records_max: int) -> dict[str, list[Any]]:
    """Runs a job to its end."""
    graph = JobGraph("job")
    build(graph)
    return run(graph, parallelism, records_max).written


def stamped(results: Any, *, is_timed: bool = True, has_late: bool = False) -> None:
    """Shows the results, with the second of their timestamps; and the late records."""
    shown = results.process(Stamped, name="out") if is_timed else results
    shown.sink(Outbox(), name="out-sink")
    if has_late:
        results.side_output(LATE).sink(Outbox(), name="late")


class Stamped:
    """Emits each record with the second of its timestamp."""

    def process(self, value: Any, context: Any) -> None:
        assert context.timestamp_ns is not None
        context.emit((value, (context.timestamp_ns - START_NS) // 1_000_000_000))
