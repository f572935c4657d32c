"""Large reads: their rows pass the chain in parts, which changes neither results nor the record that an error names."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import ROWS_AT_ONCE, FailedAt, StepFailed
from clonos.operators.operator import pass_in_parts
from tests.unit.operators.driver import Given, GivenReader, Outbox, Run, run

COUNT = 3 * ROWS_AT_ONCE + 7


@pytest.mark.parametrize("times", [None, range(COUNT), array("q", range(COUNT))])
def test_parts_have_all_rows_with_their_times(times: Sequence[int] | None) -> None:
    got: list[tuple[list[Any], Any]] = []
    rows = list(range(COUNT))
    pass_in_parts(lambda *part: got.append(part), rows, times)
    assert len(rows) == COUNT
    assert [row for part, _ in got for row in part] == rows
    assert [len(part) for part, _ in got] == [ROWS_AT_ONCE] * 3 + [7]
    if times is None:
        assert {part for _, part in got} == {None}
    else:
        assert [time for _, part in got for time in part] == rows


def test_a_small_batch_is_passed_as_it_is() -> None:
    rows = list(range(ROWS_AT_ONCE))
    got: list[Any] = []
    pass_in_parts(lambda part, times: got.append(part), rows)
    assert got[0] is rows


def refuse_last(value: int) -> int:
    if value == COUNT - 1:
        raise ValueError(value)
    return value


class AllAtOnce(Given):
    """A source whose reader gives as many records as it is asked for."""

    def reader(self) -> GivenReader:
        reader = GivenReader(self.records)
        reader.at_once = COUNT
        return reader


def test_an_error_names_the_place_of_its_record_among_those_that_a_source_read() -> None:
    graph = JobGraph("job")
    graph.source(AllAtOnce(range(COUNT))).map(refuse_last, name="check").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    with pytest.raises(StepFailed) as raised:
        job.finish(records_max=COUNT)
    job.close()
    assert raised.value.at == FailedAt("check", COUNT - 1, str(COUNT - 1))


def test_an_error_without_a_place_stays_so() -> None:
    def fail(rows: list[Any], times: object) -> None:
        raise StepFailed(FailedAt("step", None, ""))

    with pytest.raises(StepFailed) as raised:
        pass_in_parts(fail, [None] * COUNT)
    assert raised.value.at.index is None


def test_a_large_step_gives_the_same_as_small_ones() -> None:
    graph = JobGraph("job")
    numbers = graph.source(AllAtOnce(range(COUNT))).flat_map(lambda value: [value, -value])
    numbers.key_by(lambda value: value % 5).stateful_map(
        lambda key, state, value: ((state or 0) + value, (key, (state or 0) + value)), name="sums"
    ).sink(Outbox())
    (large,), (small,) = (run(graph, parallelism=1, records_max=size).written.values() for size in (COUNT, 7))
    assert large == small
    assert len(large) == 2 * COUNT
