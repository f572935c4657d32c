"""What joins refuse and warn of, and what they do without timestamps, with columns and with errors of users."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.joining.joins import bound_ns
from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.event_time.durations import InvalidDuration
from tests.unit.operators import driver
from tests.unit.operators.driver import Outbox, Run, run
from tests.unit.operators.joins.given_sides import LATE, SECOND_NS, START, Given, key_of, played, script_of, sunk, timed
from tests.unit.operators.samples import ColumnsGiven

HOUR_NS = 3600 * SECOND_NS


def two_streams() -> tuple[Stream[Given], Stream[Given]]:
    graph = JobGraph("job")
    return timed(graph, []), timed(graph, [])


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({}, r"has no bound in time, so it would keep every record for ever\. Give one of between="),
        ({"between": (0, 1), "ttl": "1d"}, "gets more than one of between, window and ttl"),
        ({"between": ("1h", "-1h")}, "in which nothing lies"),
        ({"between": (0, 0), "closed": "left"}, "in which nothing lies"),
        ({"between": (0, 1), "closed": "open"}, "gets closed='open'"),
        ({"between": "1h"}, r"gets between='1h'"),
        ({"window": "1h"}, r"gets window='1h'\. Give Tumbling"),
        ({"between": (0, 1), "how": "outer"}, r"gets how='outer'\. Give one of 'inner', 'left', 'right'"),
        ({"between": (0, 1), "how": "semi", "select": max}, "gives records of the left stream, and gets select="),
        ({"between": (0, 1), "select": 3}, r"gets select=3\. Give a function select\(left, right\)"),
        ({"between": (0, 1), "on": ("a", "b", "c")}, "Give a field that both streams have"),
        ({"between": (0, 1), "on": None}, "gets on=None"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(keywords: dict[str, Any], sentence: str) -> None:
    left, right = two_streams()
    with pytest.raises(InvalidJob, match=sentence):
        left.join(right, **{"on": "key", **keywords})


def test_streams_without_timestamps_are_refused() -> None:
    graph = JobGraph("job")
    left, right = timed(graph, []), graph.source(driver.Given([]))
    with pytest.raises(
        InvalidJob, match=r"the step pairs joins a right stream without timestamps by time\. Give the rec"
    ):
        left.join(right, on="key", between=(0, 1), name="pairs")
    with pytest.raises(InvalidJob, match="joins streams without timestamps by time"):
        right.join(right, on="key", window=Tumbling("1h"))
    with pytest.raises(InvalidJob, match="gets late=, and its streams have no timestamps"):
        right.join(right, on="key", ttl="1h", late=LATE)
    with pytest.raises(InvalidJob, match="joins streams of two jobs"):
        left.join(timed(JobGraph("other"), []), on="key", between=(0, 1))


@pytest.mark.parametrize("method", ["join", "join_as_of", "lookup"])
def test_a_keyed_stream_is_joined_with_keyed_streams_only(method: str) -> None:
    left, right = two_streams()
    keyed: Any = getattr(left.key_by("key"), method)
    with pytest.raises(
        InvalidJob, match=r"the step near joins a keyed stream with one without keys\. Call key_by on bo"
    ):
        keyed(right, name="near")
    with pytest.raises(InvalidJob, match=r"gets on='key', and its streams have the keys of key_by\. Leave on out"):
        keyed(right.key_by("key"), on="key")


@pytest.mark.parametrize(
    ("method", "keywords"),
    [("join", {"between": (0, 2), "how": "full"}), ("join_as_of", {"tolerance": "5s"}), ("lookup", {"how": "inner"})],
)
def test_keyed_streams_are_joined_as_streams_with_keys_given_by_on(method: str, keywords: dict[str, Any]) -> None:
    rows = [("a", 1), ("b", 2), ("a", 3), ("b", 9)], [("b", 2), ("a", 2), ("c", 4), ("a", 5)]

    def build(graph: JobGraph, is_keyed: bool) -> None:
        lefts, rights = (timed(graph, script_of(each)) for each in rows)
        if is_keyed:
            found = getattr(lefts.key_by(key_of), method)(rights.key_by(key_of), **keywords)
        else:
            found = getattr(lefts, method)(rights, on=(key_of, key_of), **keywords)
        sunk(found, late=False)

    results = [played(partial(build, is_keyed=is_keyed), 1, 3)["out"] for is_keyed in (True, False)]
    assert results[0] == results[1] != []


@pytest.mark.parametrize(
    ("bound", "nanoseconds"),
    [
        ("-1h", -HOUR_NS),
        ("1h", HOUR_NS),
        ("- 30 min", -HOUR_NS // 2),
        (0, 0),
        ("0 h", 0),
        ("0s", 0),
        (timedelta(0), 0),
        (timedelta(hours=-1), -HOUR_NS),
        (-3600, -HOUR_NS),
        (0.001, 1_000_000),
    ],
)
def test_a_bound_is_a_length_of_time_that_may_be_negative(bound: Any, nanoseconds: int) -> None:
    assert bound_ns(bound) == nanoseconds


@pytest.mark.parametrize("bound", ["soon", None, True, "--1h", 1e-9])
def test_a_malformed_bound_is_refused(bound: Any) -> None:
    with pytest.raises(InvalidDuration):
        bound_ns(bound)


def joined(left: list[Any], right: list[Any], **keywords: Any) -> dict[str, list[Any]]:
    """What a join of rows (key, time) gives."""

    def build(graph: JobGraph) -> None:
        lefts, rights = timed(graph, script_of(left)), timed(graph, script_of(right))
        arguments: Any = {"on": (key_of, key_of), "between": (0, 1), **keywords}
        sunk(lefts.join(rights, **arguments), late="late" in keywords)

    return played(build, 1, 3)


def test_sides_with_keys_of_different_types_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        joined([("1", 0), ("2", 0)], [(1, 0), (2, 0)])
        joined([(("a", 1), 0)], [(("a", "1"), 0)])
        joined([(("a", None), 0)], [(("a", "1"), 0)])
        joined([(None, 0)], [("1", 0)])
    assert [record.getMessage() for record in caplog.records] == [
        "the step join joins the key '1' (str) of the left stream with 1 (int) of the right one: keys of different"
        " types never match. Convert one of them in on=(..., ...).",
        "the step join joins the key ('a', 1) (tuple of str, int) of the left stream with ('a', '1') (tuple of str,"
        " str) of the right one: keys of different types never match. Convert one of them in on=(..., ...).",
    ]


def test_late_records_without_a_reader_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert joined([("a", 20), ("a", 20), ("a", 20), ("a", 1), ("a", 2)], [("a", 20)]).keys() == {"out"}
        joined([("a", 20), ("a", 20), ("a", 20), ("a", 1), ("a", 2)], [("a", 20)], late=LATE)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(
        "the step join leaves out late records: the first one has the timestamp 2023-11-14T22:13:21"
    )
    assert 'Give late=Tag("late") and read them by side_output' in warning


def test_a_select_that_raises_sends_the_pair_to_the_error_output() -> None:
    graph = JobGraph("job", errors=Outbox())
    lefts, rights = timed(graph, script_of([("a", 1), ("b", 1)])), timed(graph, script_of([("a", 1), ("b", 1)]))
    found = lefts.join(rights, on=(key_of, key_of), between=(0, 1), select=lambda left, _: {"a": 1}[left.key])
    found.map(_same, name="out").sink(Outbox())
    written = run(graph, parallelism=1).written
    assert [rows for name, rows in written.items() if "out" in name] == [[1]]
    (error,) = written["errors"]
    assert (error.step, error.record[0].key) == ("join", "b")


def test_a_record_without_the_field_is_the_error_of_the_record() -> None:
    graph = JobGraph("job")
    lefts = graph.source(driver.Given([{"id": 1, "at": START}]), timestamps="at")
    rights = graph.source(driver.Given([{"at": START}]), timestamps="at")
    lefts.join(rights, on="id", between=(0, 1)).sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        run(graph, parallelism=1)
    assert "the record has no field 'id'; it has at" in str(raised.value.__cause__)


def test_columns_are_joined_by_a_field() -> None:
    graph = JobGraph("job")
    lefts = graph.source(ColumnsGiven([{"id": n, "at": START + n} for n in range(5)]), timestamps="at")
    rights = graph.source(ColumnsGiven([{"order": n, "when": START + n} for n in range(3, 9)]), timestamps="when")
    pairs = lefts.join(
        rights, on=("id", "order"), between=(0, 1), select=lambda left, right: (left["id"], right["order"])
    )
    pairs.map(_same, name="out").sink(Outbox())
    ((_, found),) = run(graph, parallelism=2).written.items()
    assert sorted(found) == [(3, 3), (4, 4)]


def test_a_step_that_changes_a_result_in_place_does_not_change_the_buffers() -> None:
    def spoil(pair: Any) -> Any:
        left = pair[0]["n"]
        pair[0].clear()
        pair[1].clear()
        return left

    graph = JobGraph("job")
    lefts = graph.source(driver.Given([{"n": n, "k": 1, "at": START} for n in range(3)]), timestamps="at")
    rights = graph.source(driver.Given([{"k": 1, "at": START} for n in range(3)]), timestamps="at")
    lefts.join(rights, on="k", between=(0, 1)).map(spoil, name="out").sink(Outbox())
    ((_, found),) = run(graph, parallelism=1).written.items()
    assert sorted(found) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


# --- by the clock


def by_clock(how: Any) -> Run:
    graph = JobGraph("job")
    lefts = graph.source(driver.Given([("a", n) for n in range(4)]))
    rights = graph.source(driver.Given([("a", -n) for n in range(4)]))
    lefts.join(rights, on=(_first, _first), how=how, ttl="5s").map(_same, name="out").sink(Outbox())
    return Run(graph.compile(Options(), parallelism=1))


def test_a_join_without_timestamps_forgets_by_the_clock() -> None:
    running = by_clock("full")
    lefts, rights = running.plan.sources

    def read(task: int, seconds: float) -> None:
        running.chains[task].read(*running.chains[task].poll(1))  # type: ignore[misc]
        running.drain()
        running.pass_time(seconds)

    read(lefts, 4)  # ("a", 0) at 0 s
    read(rights, 1)  # ("a", 0) at 4 s
    read(lefts, 3)  # ("a", 1) at 5 s: the first left one may still match
    read(rights, 3)  # ("a", -1) at 8 s: the first left one is forgotten
    (found,) = running.written.values()
    assert found == [(("a", 0), ("a", 0)), (("a", 1), ("a", 0)), (("a", 1), ("a", -1))]
    read(lefts, 5.1)  # ("a", 2) at 11 s: meets ("a", -1) only
    read(rights, 5.1)  # ("a", -2) at 16.1 s: alone, until 21.1 s
    assert found[3:] == [(("a", 2), ("a", -1)), (None, ("a", -2))]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(("inner", "left", "full", "semi", "anti")))
def test_without_time_passing_a_join_by_the_clock_pairs_all(how: str) -> None:
    running = by_clock(how)
    running.finish()
    found = [row for rows in running.written.values() for row in rows]
    assert len(found) == {"semi": 4, "anti": 0}.get(how, 16)


def _first(row: Any) -> Any:
    return row[0]


def _same(row: Any) -> Any:
    return row
