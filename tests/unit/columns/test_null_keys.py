"""A key that is null, or has a null in it, matches nothing in any join, over rows and over columns alike."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from tests.unit.columns.joined_sides import LATE, LEFT, RIGHT, START, joined, written_by
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Given, Outbox

KEYS = (["a", None, "b", None, "a"], [None, "a", None, "c"])
SIDES: Any = (
    [{"key": key, "at": START + at, "x": at} for at, key in enumerate(KEYS[0])],
    [{"key": key, "at": START, "name": f"n{at}", "x": at} for at, key in enumerate(KEYS[1])],
)
FORMS = pytest.mark.parametrize("make", [Given, ColumnsOf])

LEFT_ALONE = [(1, None), (2, None), (3, None)]
RIGHT_ALONE = [(None, 0), (None, 2), (None, 3)]
PAIRS = [(0, 1), (4, 1)]


def all_written(build: Any, parallelism: int, records_max: int) -> list[Any]:
    """Returns what the sinks of a job have got."""
    return [row for rows in written_by(build, parallelism, records_max).values() for row in rows]


def results_of(sides: Any, make: Any, method: str, **arguments: Any) -> list[Any]:
    """Returns the results by the numbers of their records, which are in ``x``; None for no record."""

    def build(graph: JobGraph) -> None:
        is_timed = "ttl" not in arguments
        joined(graph, sides, lambda left, right: getattr(left, method)(right, **arguments), make, is_timed).sink(
            Outbox()
        )

    found = all_written(build, 2, 3)
    pairs = [each if isinstance(each, tuple) else (each, None) for each in found]
    return sorted((tuple(row and row["x"] for row in pair) for pair in pairs), key=repr)


@FORMS
@pytest.mark.parametrize("rule", [{"between": (-9, 9)}, {"window": Tumbling("1d")}, {"ttl": "1h"}])
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", PAIRS),
        ("left", PAIRS + LEFT_ALONE),
        ("right", PAIRS + RIGHT_ALONE),
        ("full", PAIRS + LEFT_ALONE + RIGHT_ALONE),
        ("semi", [(0, None), (4, None)]),
        ("anti", LEFT_ALONE),
    ],
)
def test_records_with_a_null_key_are_without_a_match_in_a_join(rule: Any, how: str, expected: Any, make: Any) -> None:
    assert results_of(SIDES, make, "join", on="key", how=how, **rule) == sorted(expected, key=repr)


@FORMS
@pytest.mark.parametrize(("how", "expected"), [("inner", PAIRS), ("left", PAIRS + LEFT_ALONE)])
def test_records_with_a_null_key_have_no_version(how: str, expected: Any, make: Any) -> None:
    assert results_of(SIDES, make, "join_as_of", on="key", how=how) == sorted(expected, key=repr)


TWO = [
    {"key": key, "at": START, "x": number, "name": "n"}
    for key, number in [("a", 1), ("a", None), (None, 2), (None, None)]
]


@FORMS
@pytest.mark.parametrize("method", ["join", "join_as_of", "lookup"])
@pytest.mark.parametrize(("on", "matched"), [("key", ["a", "a"]), (["key", "x"], ["a"])])
def test_a_key_matches_itself_only_if_no_part_of_it_is_null(on: Any, matched: Any, method: str, make: Any) -> None:
    rule: Any = {"between": (-9, 9)} if method == "join" else {}
    before = [{**TWO[0], "key": "z"}] * 6  # a lookup of the others finds all rows of the table
    lefts, rights = (
        [{name: row[name] for name in schema.names} for row in rows]
        for rows, schema in ((before + TWO, LEFT), (TWO, RIGHT))
    )

    def build(graph: JobGraph) -> None:
        results: Any = joined(
            graph, (lefts, rights), lambda a, b: getattr(a, method)(b, on=on, how="left", **rule), make
        )
        results.sink(Outbox())

    found = all_written(build, 1, 1)
    assert {left["key"] for left, right in found if right is not None} == {"a"}
    assert [left["key"] for left, right in found if right is None].count(None) == 2
    assert len({left["x"] for left, right in found if right is not None}) == len(matched)


@FORMS
def test_a_late_version_with_a_null_key_goes_to_the_late_records(make: Any) -> None:
    lefts = [{"key": "b", "at": START + at, "x": at} for at in (0, 60, 120)]
    rights = [
        {"key": key, "at": START + at, "name": "n", "x": at} for at, key in [(60, "b"), (120, "b"), (3, None), (4, "a")]
    ]

    def build(graph: JobGraph) -> None:
        results = joined(graph, (lefts, rights), lambda a, b: a.join_as_of(b, on="key", late=LATE), make)
        results.sink(Outbox(), name="out")
        results.side_output(LATE).sink(Outbox(), name="late")

    written = all_written(build, 1, 1)
    assert [row["x"] for row in written if isinstance(row, dict)] == [3]
    assert sum(isinstance(row, tuple) for row in written) == 3
