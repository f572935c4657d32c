"""Sinks that keep one row per key: compiling a job checks that its stream is keyed by it."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.keyed_stream import KeyedStream
from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.connectors import sqlite
from clonos.core.model.options import Options
from clonos.core.model.plan import Partitioning, Plan
from tests.unit.operators.driver import Given, Outbox, run
from tests.unit.operators.samples import ColumnsGiven

WORDS = ["word", "n"]


def table(*key: str, columns: Any = WORDS) -> Any:
    return sqlite("out.db", "words", columns, upsert=key)


def words() -> tuple[JobGraph, Stream[Any]]:
    graph = JobGraph("words")
    return graph, graph.source(Given([]))


def compiled(graph: JobGraph, parallelism: int = 2) -> Plan:
    return graph.compile(Options(), parallelism=parallelism).plan


def refusal(graph: JobGraph) -> str:
    with pytest.raises(InvalidJob) as refused:
        compiled(graph)
    return str(refused.value)


def test_a_stream_that_is_keyed_by_the_key_column_is_accepted() -> None:
    graph, stream = words()
    stream.key_by("word").sink(table("word"))
    plan = compiled(graph)
    assert {edge.partitioning for edge in plan.edges} == {Partitioning.HASH, Partitioning.EXTERNAL}


def test_a_stream_keyed_by_one_of_several_key_columns_is_accepted() -> None:
    graph, stream = words()
    stream.key_by("n").sink(table("word", "n"))
    compiled(graph)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_stream_without_a_key_is_refused_at_every_parallelism(parallelism: int) -> None:
    graph, stream = words()
    stream.sink(table("word"), name="counts")
    with pytest.raises(InvalidJob) as refused:
        compiled(graph, parallelism)
    assert str(refused.value) == (
        "the step counts replaces rows by word, and its stream is not keyed by that."
        ' Put .key_by("word") before the sink: all rows of a key must come from one task.'
    )


@pytest.mark.parametrize(("key", "by"), [("n", " but by n"), (len, "")])
def test_a_stream_with_another_or_an_opaque_key_is_refused(key: Any, by: str) -> None:
    graph, stream = words()
    stream.key_by(key).sink(table("word"))
    assert f"is not keyed by that{by}. Put" in refusal(graph)


def test_all_streams_of_a_union_have_to_be_keyed() -> None:
    graph, stream = words()
    other: KeyedStream[Any, Any] = graph.source(Given([])).key_by("n")
    stream.key_by("word").union(other).sink(table("word"))
    assert "keyed by that but by n" in refusal(graph)


def test_results_of_a_keyed_step_are_keyed_by_their_first_field() -> None:
    graph, stream = words()
    stream.key_by(lambda row: row).count().filter(bool).sink(table("word"))
    stream.key_by(str).reduce(max).sink(table("word"))
    compiled(graph)
    stream.key_by(str).count().sink(table("n"))
    assert "keyed by that but by word" in refusal(graph)


def test_windows_are_keyed_by_their_key() -> None:
    columns = ["start", "key", "value"]
    graph, stream = words()
    stream.key_by(str).window(Tumbling("1s")).count().sink(table("key", "start", columns=columns))
    compiled(graph)
    stream.key_by(str).window(Tumbling("1s")).count().sink(table("start", columns=columns))
    assert "keyed by that but by key" in refusal(graph)


def test_results_of_a_function_on_keyed_results_are_not_keyed() -> None:
    graph, stream = words()
    stream.key_by(str).count().map(str).sink(table("word"))
    assert "is not keyed by that. Put" in refusal(graph)


def test_rebalanced_results_are_not_keyed() -> None:
    graph, stream = words()
    stream.key_by(str).count().sink(table("word"), parallelism=3)
    assert "is not keyed by that. Put" in refusal(graph)
    graph, stream = words()
    stream.key_by(str).count().rebalance().sink(table("word"))
    assert "is not keyed by that. Put" in refusal(graph)


def test_an_error_output_needs_no_keyed_stream() -> None:
    graph = JobGraph("words", errors=table("word"))
    graph.source(Given([])).map(str).sink(Outbox())
    assert "the step errors replaces rows by word, and errors have no key" in refusal(graph)


# ------------------------------------------------------------------ input of a keyed sink


def test_a_keyed_sink_gets_records_without_their_keys() -> None:
    rows = [{"word": f"w{number % 5}", "n": number} for number in range(40)]
    graph = JobGraph("words")
    graph.source(Given(rows)).key_by("word").sink(Outbox(), name="rows")
    graph.source(Given("abcabc")).key_by(lambda word: word).sink(Outbox(), name="own-keys")
    finished = run(graph)
    assert sorted(finished.written["rows"], key=lambda row: row["n"]) == rows
    assert sorted(finished.written["own-keys"]) == sorted("abcabc")


def test_a_keyed_sink_gets_columns_as_records() -> None:
    rows = [{"word": f"w{number % 5}", "n": number} for number in range(10)]
    graph = JobGraph("words")
    graph.source(ColumnsGiven(rows)).key_by("word").sink(Outbox(), name="rows")
    finished = run(graph)
    assert sorted(finished.written["rows"], key=lambda row: row["n"]) == rows
