"""Steps that name columns or keep whole records, right after windows, aggregates and joins over columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from clonos import Session, Stream, Timestamps, Tumbling, at_end, changes, files
from clonos.agg import bottom_k, collect, count, last, max_, min_, top_k
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import ColumnsNeeded, InvalidJob
from clonos.api.plan.explaining import explain_graph
from clonos.core.model.options import Options
from tests.unit.columns.test_column_windows import START, ColumnsOf
from tests.unit.operators.driver import Outbox, run

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("key", pa.string()), ("price", pa.int64()), ("at", pa.int64())])
ROWS = [{"key": "abcd"[number % 4], "price": number * 37 % 101, "at": START + number} for number in range(60)]

AnyStream = Stream[Any]


def source(graph: JobGraph, cls: type[ColumnsOf] = ColumnsOf) -> AnyStream:
    return graph.source(cls(ROWS, SCHEMA), name="bids", timestamps=Timestamps("at", future_max=None))


def windows(bids: AnyStream) -> tuple[AnyStream, tuple[str, ...]]:
    found = bids.key_by("key").window(Tumbling("10s")).aggregate(n=count(), high=max_("price"), name="given")
    return found, ("key", "start", "end", "window_time", "n", "high")


def totals(bids: AnyStream) -> tuple[AnyStream, tuple[str, ...]]:
    return bids.key_by("key").aggregate(n=count(), high=max_("price"), name="given"), ("key", "at", "n", "high")


def pairs(bids: AnyStream) -> tuple[AnyStream, tuple[str, ...]]:
    right = bids.select("key", "at", high="price", n="price")
    found = bids.key_by("key").join(right.key_by("key"), between=("-3s", "3s"), name="given")
    return found, ("key", "price", "at", "key_right", "at_right", "high", "n", "join_time")


def sampled(bids: AnyStream) -> tuple[AnyStream, tuple[str, ...]]:
    found, names = windows(bids)
    return found.sample(1.0).peek(len).limit(1_000), names


STEPS: dict[str, Callable[[AnyStream], AnyStream]] = {
    "top_k": lambda stream: stream.key_by("key").top_k(2, "high", name="next"),
    "ranks": lambda stream: stream.key_by("key").top_k(2, "high", rank="rank", name="next"),
    "windows without a key": lambda stream: stream.window(Tumbling("30s")).aggregate(a=top_k(2, "n"), name="next"),
    "windows": lambda stream: (
        stream.key_by("key").window(Tumbling("30s")).aggregate(a=bottom_k(2, "high"), b=collect(), name="next")
    ),
    "records without a key": lambda stream: stream.window(Tumbling("30s")).aggregate(a=collect(), name="next"),
    "sessions": lambda stream: (
        stream.key_by("key").window(Session("5s")).aggregate(a=top_k(2, "high"), b=last("n"), name="next")
    ),
    "totals": lambda stream: stream.key_by("key").aggregate(a=collect("high"), b=collect(), emit=at_end(), name="next"),
    "all": lambda stream: stream.aggregate(a=top_k(2, "high"), emit=changes(), name="next"),
}
TIMED = ("windows", "windows without a key", "records without a key", "sessions")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("give", [windows, totals, pairs, sampled])
def test_a_step_after_results_in_columns_gives_what_it_does_after_their_columns(give: Any, step: str) -> None:
    found = []
    for is_selected in (True, False):
        graph = JobGraph("job")
        stream, names = give(source(graph))
        STEPS[step](stream.select(*names) if is_selected else stream).sink(Outbox())
        found.append(list(run(graph, 1, 7).written.values()))
    assert found[1] == found[0]
    assert found[0] != [[]]


@pytest.mark.parametrize("give", [windows, totals, pairs])
@pytest.mark.parametrize("more", [{}, {"within": "5s"}, {"within": "5s", "keep": "last"}, {"keep": "last"}])
def test_deduplicate_by_a_column_passes_results_on_as_they_came(give: Any, more: dict[str, Any]) -> None:
    found = []
    for is_selected in (True, False):
        graph = JobGraph("job")
        stream, names = give(source(graph))
        chosen = (stream.select(*names) if is_selected else stream).key_by("key").deduplicate("n", **more)
        chosen.map(lambda record: record).sink(Outbox())
        found.append([row for rows in run(graph, 1, 7).written.values() for row in rows])
    assert len(found[1]) == len(found[0]) > 0
    assert {type(row) for row in found[0]} == {dict}
    assert all(isinstance(row, tuple) for row in found[1])


def test_a_step_that_names_columns_after_windows_in_rows_fails_with_one_sentence() -> None:
    graph = JobGraph("job")
    first = source(graph, ColumnsOf).key_by("key").window(Session("10s")).aggregate(n=min_("key"), name="given")
    first.window(Tumbling("30s")).aggregate(a=top_k(2, "n"), name="next").sink(Outbox())
    with pytest.raises(ColumnsNeeded, match=r"the step next works on columns, and .* gives it rows, because min_"):
        run(graph, 1, 7)


@pytest.mark.parametrize(
    "extend",
    [
        lambda stream: stream.key_by("key").count(name="next"),
        lambda stream: stream.window(Tumbling("30s")).aggregate(a=top_k(2, "n"), name="next"),
    ],
    ids=["key", "ranks"],
)
def test_the_plan_refuses_a_step_on_columns_after_windows_whose_types_need_rows(extend: Any) -> None:
    graph = JobGraph("job")
    first = source(graph).key_by("key").window(Session("10s")).aggregate(n=min_("key"), name="given")
    extend(first).sink(Outbox())
    message = r"the step next works on columns, and given gives it rows, because min_\('key'\) of the type string works"
    with pytest.raises(ColumnsNeeded, match=message):
        explain_graph(graph, Options(), 1)


@pytest.mark.parametrize(
    "compare",
    [
        lambda stream: stream.distinct(),
        lambda stream: stream.deduplicate(),
        lambda stream: stream.key_by("key").distinct(),
        lambda stream: windows(stream)[0].distinct(),
    ],
    ids=["distinct", "deduplicate", "of a key", "results"],
)
def test_whole_records_of_columns_are_not_compared(compare: Any) -> None:
    with pytest.raises(
        InvalidJob, match=r"compares whole records, and those of \w+ are columns\. Name what to compare"
    ):
        compare(source(JobGraph("job")))


def test_the_plan_reports_a_sink_of_rows_after_steps_that_pass_results_on(tmp_path: Any) -> None:
    graph = JobGraph("job")
    stream = source(graph)
    sampled(stream)[0].sink(files.jsonl(str(tmp_path / "sampled")), name="sampled")
    in_rows = stream.key_by("key").window(Session("10s")).aggregate(n=min_("key"), name="texts")
    in_rows.sink(files.jsonl(str(tmp_path / "texts")), name="texts_out")
    reasons = {each.name: each.row_reason for each in explain_graph(graph, Options(), 1).steps}
    assert reasons["sampled"] == "it writes the rows that given gives; put select(...) in front of it for columns"
    assert reasons["texts_out"] == "texts works on rows, because min_('key') of the type string works on rows"
