"""Merged panes of sliding windows: the number of merges, and values that cannot be merged."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.agg import collect, last, max_
from clonos.api.emission import at_end
from clonos.api.graph import JobGraph
from clonos.api.windows import Sliding
from clonos.operators.aggregates.numeric import Sum
from clonos.operators.state.keyed_state import Table
from clonos.operators.windows.grid import Spans, UtcGrid
from clonos.operators.windows.merged_panes import MergedPanes
from tests.unit.operators.driver import START_NS, Given, Outbox, run
from tests.unit.windows.stepping import stepping

SECOND_NS = 1_000_000_000


class CountingSum(Sum):
    """Sum that counts its merges."""

    merges = 0

    def merge(self, accumulator: Any, other: Any) -> Any:
        self.merges += 1
        return super().merge(accumulator, other)


@pytest.mark.parametrize("width", [10, 100, 1_000])
@pytest.mark.parametrize("slide", [1, 3])
def test_a_result_takes_three_merges_whatever_the_overlap(width: int, slide: int) -> None:
    aggregation = CountingSum(None)
    tables = {pane: Table({"a": pane, "b": 2 * pane}) for pane in range(5 * width) if pane % 7}
    merged = MergedPanes(aggregation, Spans(UtcGrid(1, 0), width, 1), tables)
    results = 0
    for end in range(width, 5 * width, slide):
        for key, parts in merged.window(end):
            expected = sum(pane for pane in range(end - width, end) if pane % 7) * (2 if key == "b" else 1)
            assert parts == [expected]
            results += 1
    assert results == 2 * len(range(width, 5 * width, slide))
    assert aggregation.merges <= (1 + 2 * slide) * results + 4 * width


def test_a_pane_that_cannot_be_merged_is_an_error_of_the_window_that_has_it() -> None:
    graph = JobGraph("job", errors=Outbox())
    rows = [("a", 1, 0), ("b", 1, 0), ("b", 2, 1), ("a", "x", 2), ("a", "y", 4)]
    records = [{"key": key, "n": value, "at": START_NS // SECOND_NS + at} for key, value, at in rows]
    keyed = graph.source(Given(records), timestamps="at", parallelism=1).key_by("key")
    windows = keyed.window(Sliding("3s", every="1s")).aggregate(largest=max_("n"), name="largest")
    windows.map(lambda result: (result.key, round(result.end.timestamp()), result.value["largest"])).sink(Outbox())
    written = run(graph, parallelism=1).written
    (found,) = [rows for name, rows in written.items() if name != "errors"]
    start = START_NS // SECOND_NS
    assert [(key, end - start, value) for key, end, value in found] == [
        ("a", 1, 1),
        ("b", 1, 1),
        ("a", 2, 1),
        ("b", 2, 2),
        ("a", 3, 1),
        ("b", 3, 2),
        ("b", 4, 2),
        ("a", 4, "x"),
        ("a", 5, "y"),
        ("a", 6, "y"),
        ("a", 7, "y"),
    ]
    (error,) = written["errors"]
    assert (error.step, error.record) == ("largest", ["x"])


AGGREGATES: dict[str, Any] = {
    "collect": lambda windows: windows.aggregate(all=collect()),
    "last": lambda windows: windows.aggregate(last=last()),
    "reduce": lambda windows: windows.reduce(lambda a, b: a + b),
}


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("has_trigger", [False, True])
def test_values_of_sliding_windows_come_by_pane_and_with_a_trigger_by_arrival(name: str, has_trigger: bool) -> None:
    options: dict[str, Any] = {"trigger": at_end()} if has_trigger else {}
    step = stepping(lambda keyed: AGGREGATES[name](keyed.window(Sliding("10s", every="5s"), **options)))
    for second, value in ((7, "a"), (2, "b"), (8, "c"), (1, "d")):
        step.rows([(("k", value), second * SECOND_NS)])
    step.watermark(10 * SECOND_NS)
    found = next(result.value for result, _ in step.results if result.end.timestamp() == 10)
    order = "abcd" if has_trigger else "bdac"
    assert found == {"collect": {"all": list(order)}, "last": {"last": order[-1]}, "reduce": order}[name]
