"""Looks at the rows that a step emits: the next batch, once, without a change of what the job does."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.values import decode_rows
from clonos.operators.tap import ROWS_BYTES_MAX, encoded
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.operators.samples import ColumnsGiven


def started(graph: JobGraph) -> Run:
    return Run(graph.compile(Options(), parallelism=1))


def doubled(records: list[Any]) -> JobGraph:
    graph = JobGraph("job")
    numbers = graph.source(Given(records), name="numbers").map(lambda number: number * 2, name="double")
    numbers.key_by(lambda number: number).count(name="count").sink(Outbox(), name="out")
    return graph


def test_a_look_shows_the_last_rows_of_the_next_batch_once() -> None:
    run, shown = started(doubled(list(range(20)))), list[bytes]()
    run.read(5)
    run.chains[0].peek("double", 3, shown.append)
    assert shown == []
    run.read(7)
    run.read(7)
    assert [list(decode_rows(rows)) for rows in shown] == [[6, 8, 10]]  # the batch of records 3 to 5
    run.finish()
    run.close()
    assert run.written["count"] == [(number * 2, 1) for number in range(20)]


def test_a_later_look_replaces_an_earlier_one() -> None:
    run, first, second = started(doubled([1, 2, 3])), list[bytes](), list[bytes]()
    run.chains[0].peek("double", 3, first.append)
    run.chains[0].peek("double", 1, second.append)
    run.finish()
    run.close()
    assert (first, [list(decode_rows(rows)) for rows in second]) == ([], [[6]])


@pytest.mark.parametrize("step", ["out", "unknown"])
def test_a_step_that_emits_nothing_shows_nothing(step: str) -> None:
    run, shown = started(doubled([1, 2, 3])), list[bytes]()
    for chain in run.chains:
        chain.peek(step, 3, shown.append)
    run.finish()
    run.close()
    assert shown == []


def test_a_look_at_columns_shows_rows_and_leaves_them_columns() -> None:
    graph = JobGraph("job")
    read = graph.source(ColumnsGiven([{"word": word} for word in "abab"]), name="read")
    seen: list[type] = []

    def note(batch: Any) -> Any:
        seen.append(type(batch))  # clonos: ok the test runs in one thread
        return batch

    read.map_batches(note, name="note").sink(Outbox())
    run, shown = started(graph), list[bytes]()
    for step in ("read", "note"):
        run.chains[0].peek(step, 2, shown.append)
    run.finish()
    run.close()
    of_first_batch = [{"word": "b"}, {"word": "a"}]  # it has three rows
    assert [list(decode_rows(rows)) for rows in shown] == [of_first_batch] * 2
    assert all(issubclass(kind, pyarrow.RecordBatch) for kind in seen)


def test_a_count_of_columns_gives_columns_after_a_look_too() -> None:
    def written(peeks: bool) -> Any:
        graph = JobGraph("job")
        read = graph.source(ColumnsGiven([{"word": word} for word in "abab"]), name="read")
        read.key_by("word").count(name="count").sink(Outbox(), name="out")
        run = started(graph)
        if peeks:
            for chain in run.chains:
                chain.peek("count", 1, lambda rows: None)
        run.finish()
        run.close()
        return run.written

    assert written(True) == written(False)


def test_rows_without_an_encoding_and_large_ones_are_shown_as_texts() -> None:
    assert list(decode_rows(encoded([object]))) == ["<class 'object'>"]
    (text,) = decode_rows(encoded(["x" * (ROWS_BYTES_MAX + 1)]))
    assert len(text) < 1_000
