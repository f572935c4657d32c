"""Sinks that store fields by name refuse tuples in the plan, and say which columns to select."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from clonos import Stream, Timestamps, Tumbling, changes, files
from clonos.agg import count, max_
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.options import Options
from tests.unit.columns.test_column_windows import ColumnsOf, UnknownColumns
from tests.unit.operators.driver import Given

SCHEMA = pyarrow.schema([("a", pyarrow.int64()), ("b", pyarrow.int64()), ("at", pyarrow.int64())])

AnyStream = Stream[Any]


class Described(ColumnsOf):
    """Columns that the plan knows."""

    def column_schema(self) -> Any:
        return SCHEMA


def compiled(source: Any, extend: Callable[[AnyStream], AnyStream], sink: Any) -> None:
    graph = JobGraph("job")
    extend(graph.source(source, timestamps=Timestamps("at"))).sink(sink, name="out")
    graph.compile(Options(), parallelism=1)


def totals(stream: AnyStream) -> AnyStream:
    return stream.key_by("a").aggregate(n=count(), high=max_("b"), emit=changes(), name="given")


def joined(stream: AnyStream) -> AnyStream:
    return stream.key_by("a").join(stream.key_by("a"), between=(0, "1s"), name="given")


TUPLES: dict[str, tuple[type, Callable[[AnyStream], AnyStream], str]] = {
    "totals": (Described, totals, r"Put select\('a', 'n', 'high'\) in front of the sink\."),
    "unknown": (UnknownColumns, totals, r'Put select\("a", "b"\) in front of the sink\.'),
    "sampled": (Described, lambda stream: totals(stream).sample(0.5), r"Put select\('a', 'n', 'high'\) in front"),
    "pairs": (Described, joined, r"Put select\('a', 'b', 'at', 'a_right', .*\) in front of the sink\."),
    "rows": (Given, totals, r"Put map\(\.\.\.\) with a function that returns a dict in front of the sink\."),
    "count of rows": (Given, lambda stream: stream.key_by("a").count(name="given"), "Put map"),
    "lists": (Described, lambda stream: stream.key_by("a").reduce(max, name="given"), "Put map"),
}


@pytest.mark.parametrize("kind", TUPLES)
@pytest.mark.parametrize("connect", [files.parquet, files.arrow, files.csv])
def test_a_sink_that_stores_fields_by_name_refuses_tuples(kind: str, connect: Any, tmp_path: Path) -> None:
    cls, extend, remedy = TUPLES[kind]
    problem = r"out stores fields by their names, and given gives tuples, which have none.*"
    with pytest.raises(InvalidJob, match=problem + remedy):
        compiled(cls([]), extend, connect(str(tmp_path)))


NAMED: dict[str, tuple[type, Callable[[AnyStream], AnyStream]]] = {
    "selected": (Described, lambda stream: totals(stream).select("a", "n")),
    "count": (Described, lambda stream: stream.key_by("a").count()),
    "windows": (Described, lambda stream: stream.key_by("a").window(Tumbling("1s")).count()),
    "all": (Described, lambda stream: stream.aggregate(n=count())),
    "semi": (Described, lambda stream: stream.key_by("a").join(stream.key_by("a"), between=(0, "1s"), how="semi")),
    "function": (Given, lambda stream: totals(stream).map(lambda pair: pair[1])),
    "ranks": (Described, lambda stream: stream.key_by("a").top_k(2, "b", rank="rank")),
}


@pytest.mark.parametrize("kind", NAMED)
def test_a_sink_that_stores_fields_by_name_takes_records_with_names(kind: str, tmp_path: Path) -> None:
    cls, extend = NAMED[kind]
    compiled(cls([]), extend, files.parquet(str(tmp_path)))


def test_a_sink_with_a_schema_takes_tuples_by_position(tmp_path: Path) -> None:
    pair = pyarrow.schema([("a", pyarrow.int64()), ("b", pyarrow.struct([("n", pyarrow.int64())]))])
    compiled(Given([]), totals, files.parquet(str(tmp_path), schema=pair))
    compiled(Given([]), totals, files.csv(str(tmp_path), columns=["a", "b"]))
