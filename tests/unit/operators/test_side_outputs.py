"""Side outputs of a step, and steps with two inputs."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.joining.joins import two_input_step
from clonos.api.steps import GraphBuilder
from clonos.api.stream import Stream
from clonos.core.model.watermark import Watermark
from clonos.operators.facts import plain
from clonos.operators.operator import Times, TwoInputOperator
from clonos.operators.steps.context import Context
from clonos.operators.tags import InvalidTag, Tag
from tests.unit.operators.driver import START_NS, Given, Outbox, run

EVEN = Tag[int]("even")


class Odd:
    """Process function that emits odd numbers; even ones go to a side output, also by a timer."""

    def process(self, value: int, context: Context[Any, int]) -> None:
        if value < 0:
            context.output(EVEN, value)
            raise ValueError("negative")
        if value % 2:
            context.emit(value)
        else:
            context.output(EVEN, value)


def written(graph: JobGraph, parallelism: int = 2) -> dict[str, list[Any]]:
    return run(graph, parallelism).written


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("is_far", [False, True])
def test_a_side_output_has_what_the_function_passes_to_it(is_timed: bool, is_far: bool) -> None:
    graph = JobGraph("job")
    numbers = graph.source(Given(range(20)), timestamps=(lambda _: START_NS / 1e9) if is_timed else None)
    odd = numbers.process(Odd, name="odd")
    even = odd.side_output(EVEN)
    odd.map(str, name="texts").sink(Outbox())
    (even.rebalance() if is_far else even).map(float, name="floats", parallelism=1).sink(Outbox())
    found = [row for rows in written(graph).values() for row in rows]
    assert sorted(each for each in found if isinstance(each, str)) == sorted(map(str, range(1, 20, 2)))
    assert sorted(each for each in found if isinstance(each, float)) == list(map(float, range(0, 20, 2)))


def test_a_side_output_can_be_keyed_and_counted() -> None:
    graph = JobGraph("job")
    odd = graph.source(Given(range(9))).process(Odd)
    odd.side_output(EVEN).key_by(lambda number: number % 4).count(name="counted").sink(Outbox())
    assert sorted(written(graph)["counted"]) == [(0, 1), (0, 2), (0, 3), (2, 1), (2, 2)]


def test_a_side_output_that_no_step_reads_is_dropped() -> None:
    graph = JobGraph("job")
    graph.source(Given(range(5))).process(Odd, name="odd").sink(Outbox())
    assert sorted(row for rows in written(graph).values() for row in rows) == [1, 3]


def test_a_record_that_raises_passes_nothing_to_a_side_output() -> None:
    graph = JobGraph("job", errors=Outbox())
    odd = graph.source(Given([1, -2, 4])).process(Odd, name="odd")
    odd.sink(Outbox())
    odd.side_output(EVEN).map(float, name="floats", parallelism=1).sink(Outbox())
    found = written(graph)
    assert found["floats"] == [4.0]
    assert [each.record for each in found["errors"]] == [-2]


def test_a_step_without_side_outputs_refuses_a_tag() -> None:
    stream = JobGraph("job").source(Given([1])).map(str)
    with pytest.raises(InvalidJob, match="the step map has no side outputs"):
        stream.side_output(EVEN)


def test_a_malformed_tag_is_refused() -> None:
    with pytest.raises(InvalidTag, match="'a b' cannot be the name of a tag"):
        Tag("a b")


def shown(side: str, rows: list[Any], times: Times) -> list[Any]:
    """Each row with its side and timestamp."""
    return [(side, row, None if times is None else times[index]) for index, row in enumerate(rows)]


class Sides(TwoInputOperator):
    """Shows on which side each record came, with its timestamp, and each watermark."""

    def first(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows(shown("first", rows, times))

    def second(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows(shown("second", rows, times))

    def on_watermark(self, watermark: Watermark) -> None:
        self.out.rows([("watermark", watermark, None)])
        super().on_watermark(watermark)


def two_sides(graph: JobGraph, first: GraphBuilder, second: GraphBuilder) -> Stream[Any]:
    step = two_input_step(first, second, "sides", plain(Sides), {"parallelism": 1})
    return Stream(graph, step)


def test_a_step_of_two_inputs_knows_from_which_each_record_comes() -> None:
    graph = JobGraph("job")
    letters, digits = graph.source(Given("ab")), graph.source(Given("12"))
    two_sides(graph, letters.union(graph.source(Given("c"))), digits.key_by(lambda digit: digit)).sink(Outbox())
    (found,) = written(graph).values()
    assert sorted(found) == [
        ("first", "a", None),
        ("first", "b", None),
        ("first", "c", None),
        ("second", ("1", "1"), None),
        ("second", ("2", "2"), None),
    ]


def test_a_step_of_two_inputs_gets_each_watermark_once_and_the_minimum_of_both() -> None:
    graph = JobGraph("job")
    start = START_NS // 1_000_000_000
    first = graph.source(Given([start, start + 30]), timestamps=lambda row: row, parallelism=1)
    second = graph.source(Given([start + 10, start + 20]), timestamps=lambda row: row, parallelism=1)
    two_sides(graph, first, second.key_by(lambda row: row)).sink(Outbox())
    (found,) = written(graph).values()
    watermarks = [row[1] for row in found if row[0] == "watermark"]
    assert watermarks == sorted(set(watermarks))
    assert watermarks[-1] == (start + 20) * 1_000_000_000
    assert ("second", (start + 20, start + 20), (start + 20) * 1_000_000_000) in found
