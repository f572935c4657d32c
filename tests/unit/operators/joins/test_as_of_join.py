"""As-of joins against a dumb twin over the whole input, and lookups in a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.options import Options
from tests.unit.operators import driver
from tests.unit.operators.driver import Outbox, Run
from tests.unit.operators.joins.given_sides import (
    ACTIONS,
    LATE,
    Given,
    key_of,
    odd_or_even,
    on_time,
    played,
    restored,
    script_of,
    scripts,
    steady_and_troubled,
    sunk,
    timed,
)


def version_of(left: Given, rights: list[Given], direction: str, tolerance: int | None) -> int | None:
    """Time of the version that a left record meets."""
    found = [
        right.at
        for right in rights
        if right.key == left.key
        and (direction != "backward" or right.at <= left.at)
        and (direction != "forward" or right.at >= left.at)
        and (tolerance is None or abs(right.at - left.at) <= tolerance)
    ]
    return min(found, key=lambda at: (abs(at - left.at), at), default=None)


def in_order(script: list[Given | None], parallelism: int, disorder: int) -> list[Given]:
    """The records that no watermark of their own split has passed when they come."""
    found: list[Given] = []
    for split in range(parallelism):
        latest = 0
        for row in script[split::parallelism]:
            if row is not None:
                if row.at >= latest - disorder:
                    found.append(row)
                latest = max(latest, row.at)
    return found


ARGUMENTS = st.one_of(
    st.tuples(st.just("backward"), st.one_of(st.none(), st.integers(0, 9))),
    st.tuples(st.sampled_from(("forward", "nearest")), st.integers(0, 9)),
)


@settings(max_examples=50, deadline=None)
@given(scripts(), scripts(), ARGUMENTS, st.sampled_from(("left", "inner")), st.integers(1, 2), st.booleans())
def test_an_as_of_join_gives_what_its_twin_does_from_the_records_that_are_on_time(
    left: list[Any], right: list[Any], arguments: tuple[Any, int | None], how: Any, parallelism: int, idle: bool
) -> None:
    direction, tolerance = arguments
    left, right = odd_or_even(left, False), odd_or_even(right, True)

    def build(graph: JobGraph) -> None:
        lefts, rights = timed(graph, left, 3, idle), timed(graph, right, 3, idle)
        given_tolerance: Any = {} if tolerance is None else {"tolerance": tolerance}
        on: Any = (key_of, key_of)
        sunk(lefts.join_as_of(rights, on=on, how=how, direction=direction, late=LATE, **given_tolerance))

    written = played(build, parallelism, 3, seconds=4)
    late = written.get("late", [])
    assert len(late) == len(set(late))
    rights = on_time(right, late)
    # A version that came late counts for the records that came after it only.
    sure = rights if direction != "backward" else [] if idle else in_order(right, parallelism, 3)
    sure = [each for each in rights if each in sure]
    found = {row: (None if version is None else version.at, at) for (row, version), at in written.get("out", [])}
    assert len(found) == len(written.get("out", []))
    for row in on_time(left, late):
        versions = {
            version_of(row, [*sure, *([each] if each else [])], direction, tolerance) for each in (None, *rights)
        }
        assert row in found or (how == "inner" and None in versions)
        assert row not in found or (found[row][0] in versions and found[row][1] == row.at)
    assert found.keys() <= {*on_time(left, late)}
    assert how == "left" or all(version is not None for version, _ in found.values())


@pytest.mark.parametrize(
    ("versions", "tolerance", "met", "late"),
    [
        (["early"], None, "early", []),
        (["early", "earlier"], None, "early", ["earlier"]),
        (["earlier", "early"], None, "early", []),
        (["early", "same"], None, "same", []),
        (["early"], 10, None, ["early"]),
        (["early"], 15, "early", []),
    ],
)
def test_a_late_version_counts_for_later_records_if_it_is_the_last_of_its_key(
    versions: list[str], tolerance: int | None, met: str | None, late: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    times = {"early": 6, "earlier": 5, "same": 6}
    rights = [Given("other", 20, -1), *(Given("a", times[each], number) for number, each in enumerate(versions))]

    def build(graph: JobGraph) -> None:
        lefts = timed(graph, [Given("other", 20, -2), Given("a", 21, -3)])
        tolerances: Any = {} if tolerance is None else {"tolerance": tolerance}
        sunk(lefts.join_as_of(timed(graph, rights), on=(key_of, key_of), late=LATE, **tolerances))

    written = played(build, 1, 1)
    found = {left.number: version for (left, version), _ in written["out"]}
    assert found[-3] == (None if met is None else Given("a", times[met], versions.index(met)))
    assert [versions[row.number] for row in written.get("late", [])] == late
    warnings = [record.getMessage() for record in caplog.records if "took a version of" in record.getMessage()]
    assert len(warnings) == (0 if met is None else 1)


@settings(max_examples=30, deadline=None)
@given(scripts(waits=False), scripts(waits=False), ARGUMENTS, ACTIONS, st.integers(1, 2), st.integers(1, 4))
def test_an_as_of_join_restored_at_any_barrier_gives_the_same(
    left: list[Any], right: list[Any], arguments: Any, actions: list[str], parallelism: int, records_max: int
) -> None:
    direction, tolerance = arguments

    def build(graph: JobGraph) -> None:
        lefts, rights = timed(graph, left, 3), timed(graph, right, 3)
        on: Any = (key_of, key_of)
        sunk(lefts.join_as_of(rights, on=on, direction=direction, tolerance=tolerance, late=LATE))

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert repr(troubled) == repr(steady)


def test_versions_that_no_record_can_meet_are_forgotten() -> None:
    graph = JobGraph("job")
    lefts = timed(graph, script_of([("a", 100)]))
    rights = timed(graph, script_of([("a", at) for at in range(90)] + [("b", 100)]))
    lefts.join_as_of(rights, on=(key_of, key_of), name="as_of").sink(Outbox())
    running = Run(graph.compile(Options(), parallelism=1))
    while running.read(5):
        running.drain()
    image = running.image.new_mirror(running.plan.vertex_of[len(running.chains) - 1])
    for changes in running.barrier(1)[-1][0]:
        image.apply(changes)
    versions = image.tables["as_of/right"]
    assert sorted((key, row.at) for _, _, row, key in versions.values()) == [("a", 89), ("b", 100)]


def test_of_several_versions_with_one_timestamp_the_last_to_arrive_counts() -> None:
    def build(graph: JobGraph) -> None:
        lefts, rights = timed(graph, script_of([("a", 5)])), timed(graph, script_of([("a", 4), ("a", 4)]))
        sunk(lefts.join_as_of(rights, on=(key_of, key_of), late=LATE))

    (((_, version), _),) = played(build, 1, 3)["out"]
    assert version.number == 1


def test_an_as_of_join_that_would_wait_for_ever_is_refused() -> None:
    graph = JobGraph("job")
    left, right = timed(graph, []), timed(graph, [])
    with pytest.raises(InvalidJob, match="looks nearest, and has no tolerance: it would wait for ever"):
        left.join_as_of(right, on="key", direction="nearest")
    with pytest.raises(InvalidJob, match="gets direction='back'"):
        left.join_as_of(right, on="key", direction="back")  # type: ignore[call-overload]
    with pytest.raises(InvalidJob, match="joins a right stream without timestamps by time"):
        left.join_as_of(graph.source(driver.Given([])), on="key")


# --- lookup


def test_a_lookup_gives_the_last_row_that_came_before() -> None:
    graph = JobGraph("job")
    numbers = graph.source(driver.Given([("a", 1), ("b", 2)]), name="numbers")
    table = graph.source(driver.Given([("a", "x"), ("a", "y")]), name="table")
    found = numbers.lookup(table, on=(_first, _first), select=lambda number, row: (number[1], row and row[1]))
    found.map(_same, name="out").sink(Outbox())
    inner = numbers.lookup(table, on=(_first, _first), how="inner", name="inner")
    inner.map(_same, name="pairs").sink(Outbox())
    running = Run(graph.compile(Options(), parallelism=1))
    table_task, numbers_task = running.plan.sources[1], running.plan.sources[0]
    for task in (table_task, numbers_task):
        running.chains[task].read(*running.chains[task].poll(9))
        running.drain()
        running = restored(running, 1)
    running.finish()
    (out,) = [rows for name, rows in running.written.items() if "pairs" not in name and "inner" not in name]
    (pairs,) = [rows for name, rows in running.written.items() if "pairs" in name or "inner" in name]
    assert sorted(out) == [(1, "y"), (2, None)]
    assert pairs == [(("a", 1), ("a", "y"))]


def _first(row: Any) -> Any:
    return row[0]


def _same(row: Any) -> Any:
    return row
