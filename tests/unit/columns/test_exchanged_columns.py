"""An exchange by key carries the columns that the steps after it read, and whole records to those that read all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos import Sliding, Tag, Tumbling, changes
from clonos.agg import count, max_
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.operators.chain_outputs import ToColumnKeys
from tests.unit.operators.driver import Outbox, run
from tests.unit.operators.samples import ColumnsGiven, UnknownGiven

RECORDS: list[dict[str, Any]] = [
    {"n": number % 3, "text": str(number), "share": number / 4, "at": 1_700_000_000 + number} for number in range(9)
]
ALL = ("n", "text", "share", "at")
WINDOW = ("n", "start", "end", "window_time", "value")


class Recording:
    """Collector that takes note of the columns that leave."""

    def __init__(self, collector: Any, carried: list[tuple[str, ...]]) -> None:
        self._collector, self._carried = collector, carried

    def columns(self, port: int, batch: Any, groups: Any = None) -> None:
        self._carried.append(tuple(batch.schema.names))
        self._collector.columns(port, batch, groups)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collector, name)


@pytest.fixture(name="carried")
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The columns of each batch that leaves by key."""
    found: list[tuple[str, ...]] = []
    opening = ToColumnKeys.open

    def opened(self: Any, scope: Any) -> None:
        opening(self, scope)
        self._collector = Recording(self._collector, found)

    monkeypatch.setattr(ToColumnKeys, "open", opened)
    return found


def two(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a builder of two steps after one key."""

    def build(stream: Any) -> Any:
        keyed = stream.key_by("n")
        first(keyed).sink(Outbox(), name="first_out")
        return second(keyed)

    return build


@pytest.mark.parametrize(
    ("build", "timestamps", "columns"),
    [
        (lambda stream: stream.key_by("n").count(), None, {("n",)}),
        (lambda stream: stream.key_by("n").aggregate(m=max_("share"), emit=changes()), None, {("n", "share")}),
        (lambda stream: stream.key_by("n").count(), "at", {("n", "at")}),
        (
            lambda stream: stream.key_by("n").window(Tumbling("2s")).aggregate(m=max_("share")),
            "at",
            {ALL[:1] + ALL[2:]},
        ),
        (lambda stream: stream.key_by("n").window(Tumbling("2s"), late=Tag("late")).count(), "at", {ALL}),
        (lambda stream: stream.key_by("n").deduplicate(), None, {ALL}),
        (lambda stream: stream.key_by("n").top_k(1, "share", rank="rank"), None, {ALL}),
        (two(lambda keyed: keyed.count(), lambda keyed: keyed.aggregate(m=max_("share"))), None, {("n", "share")}),
        (
            two(
                lambda keyed: keyed.count(),
                lambda keyed: keyed.window(Sliding("4s", every="2s"), lateness="1s", late=Tag("late")).count(),
            ),
            "at",
            {ALL},
        ),
        (
            lambda stream: stream.key_by("n").window(Tumbling("2s")).count().key_by("value").aggregate(n=count()),
            "at",
            {("n", "at"), WINDOW},
        ),
    ],
    ids=["count", "changes", "times", "windows", "late", "first", "top", "two", "two with all", "of windows"],
)
def test_an_exchange_carries_the_columns_that_are_read_after_it(
    build: Callable[[Any], Any], timestamps: Any, columns: Any, carried: list[tuple[str, ...]]
) -> None:
    graph = JobGraph("job")
    times = None if timestamps is None else Timestamps(timestamps, future_max=None)
    build(graph.source(ColumnsGiven(RECORDS), timestamps=times)).sink(Outbox(), name="out")
    assert any(run(graph, 2, 3).written.values())
    assert {*carried} == columns


def test_a_step_that_misses_a_column_gets_whole_records(carried: list[tuple[str, ...]]) -> None:
    graph = JobGraph("job")
    graph.source(UnknownGiven(RECORDS)).key_by("n").aggregate(m=max_("price"), name="most").sink(Outbox())
    with pytest.raises(Exception, match="'text': '0'"):
        run(graph, 1)
    assert {*carried} == {ALL}
