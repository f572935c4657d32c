"""Branches of a stream share no mutable row with user code, whatever steps lie in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.operators.event_time.timestamps import from_timestamp_ns
from tests.unit.operators.driver import START_NS, Given, Outbox, run

Row = dict[str, Any]
NOON = from_timestamp_ns(START_NS)


def change(row: Row) -> Row:
    row["n"] = "changed"
    return row


BETWEEN: dict[str, Callable[[Stream[Row]], Stream[Row]]] = {
    "nothing": lambda stream: stream,
    "limit": lambda stream: stream.limit(100),
    "timestamps": lambda stream: stream.with_timestamps("at"),
    "timestamps and limit": lambda stream: stream.with_timestamps("at").limit(100),
}


def count_calls(row: Row) -> Row:
    row["n"] += 1
    return row


@pytest.mark.parametrize("times", [None, "at"])
@pytest.mark.parametrize("is_remote", [False, True])
def test_a_record_that_flat_map_gives_twice_is_two_records(is_remote: bool, times: str | None) -> None:
    graph = JobGraph("job")
    given = graph.source(Given([{"n": n, "at": NOON} for n in range(2)]), timestamps=times)
    twice: Stream[Row] = given.flat_map(lambda row: [row, row])
    (twice.rebalance() if is_remote else twice).map(count_calls).map(lambda row: row["n"]).sink(Outbox())
    (written,) = run(graph).written.values()
    assert sorted(written) == [1, 1, 2, 2]


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("is_remote", [False, True])
def test_a_branch_that_changes_its_rows_changes_those_of_no_other_branch(between: str, is_remote: bool) -> None:
    graph = JobGraph("job")
    rows = graph.source(Given([{"n": n, "at": NOON} for n in range(2)]))
    BETWEEN[between](rows).map(change, name="change").sink(Outbox(), name="changed")
    other = rows.rebalance() if is_remote else rows
    other.map(lambda row: row["n"], name="read").sink(Outbox(), name="read-sink")
    written = run(graph).written.values()
    assert sorted(row for output in written for row in output if isinstance(row, int)) == [0, 1]
