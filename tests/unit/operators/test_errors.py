"""User code that raises: the step and record that are named, and the record in the error output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import FunctionType
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.keyed_stream import KeyedStream
from clonos.api.stream import Stream
from clonos.api.windowed import WindowedStream
from clonos.api.windows import Tumbling
from clonos.core.model.errors import ReplayDiverged
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values.key_encoding import KeyUnsupported
from clonos.operators.steps.context import Context
from clonos.operators.steps.data_frames import NoFrame
from clonos.operators.user_errors import RoutedError
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.samples import ColumnsGiven, Files, FilesWriter


def odd_only(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"{value} is even, says {object()}")
    return value


def after_some(value: int) -> Iterator[int]:
    yield value
    if value % 2 == 0:
        raise ValueError(f"{value} is even")
    yield -value


class OddOnly:
    def process(self, value: int, context: Context[Any, int]) -> None:
        context.emit(value)
        odd_only(value)
        context.emit(-value)


class Alarm:
    def process(self, value: int, context: Context[Any, int]) -> None:
        context.set_timer(datetime.fromtimestamp(START_NS / 10**9).astimezone() + timedelta(seconds=value))

    def on_timer(self, timestamp: datetime, context: Context[Any, int]) -> None:
        context.emit(context.key)
        odd_only(context.key)


def keyed(numbers: Stream[int]) -> KeyedStream[int, int]:
    return numbers.key_by(lambda value: value)


def windows(numbers: Stream[int]) -> WindowedStream[str, int]:
    return numbers.key_by(lambda value: "one").window(Tumbling("1s"))


STEPS: dict[str, Callable[[Stream[int]], Stream[Any]]] = {
    "map": lambda numbers: numbers.map(odd_only),
    "filter": lambda numbers: numbers.filter(odd_only),
    "flat_map": lambda numbers: numbers.flat_map(after_some),
    "branch": lambda numbers: numbers.branch(odd_only)[0],
    "process": lambda numbers: numbers.process(OddOnly),
    "key_by": lambda numbers: numbers.key_by(odd_only).count(),
    "stateful_map": lambda numbers: keyed(numbers).stateful_map(lambda key, state, value: (state, odd_only(value))),
    "reduce": lambda numbers: numbers.key_by(lambda value: "one").reduce(lambda total, value: total + odd_only(value)),
    "timer": lambda numbers: keyed(numbers).process(Alarm, name="timer"),
    "window_sum": lambda numbers: windows(numbers).sum(odd_only),
    "window_reduce": lambda numbers: windows(numbers).reduce(lambda total, value: total + odd_only(value)),
    "window_aggregate": lambda numbers: windows(numbers).aggregate(int, lambda total, value: total + odd_only(value)),
    "result": lambda numbers: (
        keyed(numbers).window(Tumbling("1s")).aggregate(int, lambda total, value: total + value, odd_only)
    ),
}


EXPECTED: dict[str, tuple[list[int], list[Any]]] = {
    "map": ([2, 4], [1, 3, 5]),
    "filter": ([2, 4], [1, 3, 5]),
    "flat_map": ([2, 4], [1, -1, 3, -3, 5, -5]),
    "branch": ([2, 4], [1, 3, 5]),
    "process": ([2, 4], [1, -1, 3, -3, 5, -5]),
    "key_by": ([2, 4], [(1, 1), (3, 1), (5, 1)]),
    "stateful_map": ([2, 4], [1, 3, 5]),
    "reduce": ([2, 4], [("one", 1), ("one", 4), ("one", 9)]),
    "window_sum": ([2, 4], [9]),
    "window_reduce": ([2, 4], [9]),
    "window_aggregate": ([2, 4], [9]),
    "result": ([2, 4], [1, 3, 5]),
}


def build(step: str, errors: Outbox | None) -> JobGraph:
    graph = JobGraph("job", errors=errors)
    STEPS[step](graph.source(Given([1, 2, 3, 4, 5]))).sink(Outbox(), name="results")
    return graph


@pytest.mark.parametrize("step", EXPECTED)
def test_records_that_raise_go_to_the_error_output_and_the_job_continues(step: str) -> None:
    finished = run(build(step, Outbox()), parallelism=1)
    failed, results = EXPECTED[step]
    routed: list[RoutedError] = finished.written.pop("errors")
    assert [error.record for error in routed] == failed
    assert routed[0].error.startswith("ValueError: 2 is even")
    ((_, got),) = finished.written.items()
    assert [getattr(result, "value", result) for result in got] == results


@pytest.mark.parametrize("step", EXPECTED)
def test_without_an_error_output_the_step_and_the_record_are_named(step: str) -> None:
    image = build(step, None).compile(Options(), parallelism=1)
    job = Run(image)
    with pytest.raises(StepFailed) as raised:
        job.finish()
    job.close()
    assert isinstance(raised.value.__cause__, ValueError)
    assert raised.value.at.record == "2"
    assert raised.value.at.step == {"result": "window_aggregate"}.get(step, step)


def test_a_timer_that_raises_is_sent_to_the_error_output_without_a_record() -> None:
    finished = run(build("timer", Outbox()), parallelism=1)
    assert [(error.step, error.record) for error in finished.written["errors"]] == [("timer", None)] * 2
    assert finished.written["timer"] == [1, 3, 5]


def test_the_description_of_an_error_is_the_same_in_every_incarnation() -> None:
    first, second = (run(build("map", Outbox()), parallelism=1).written["errors"] for _ in range(2))
    assert first == second
    assert "object at 0x..." in first[0].error
    assert first[0].traceback.splitlines()[-1].endswith("in odd_only")


def test_the_traceback_of_an_error_row_has_the_frames_of_user_code_only() -> None:
    def call(function: Callable[[str], object], value: str) -> object:
        return function(value)

    of_library = FunctionType(call.__code__, {"__name__": "clonos_services.http_session"})

    def asks(value: str) -> object:
        return of_library(json.loads, value)

    graph = JobGraph("job", errors=Outbox())
    graph.source(Given(["no json"])).map(asks, name="ask").sink(Outbox())
    (routed,) = run(graph, parallelism=1).written["errors"]
    assert [place.rpartition(" in ")[2] for place in routed.traceback.splitlines()] == ["asks"]


def test_the_position_of_a_record_is_given_only_if_it_is_its_input_position() -> None:
    def failing(build: Any) -> int | None:
        graph = JobGraph("job")
        build(graph.source(Given([1, 3, 4])))
        job = Run(graph.compile(Options()))
        with pytest.raises(StepFailed) as raised:
            job.finish()
        job.close()
        return raised.value.at.index

    assert failing(lambda numbers: numbers.map(lambda value: value).map(odd_only)) == 2
    assert failing(lambda numbers: numbers.map(lambda value: value).key_by(odd_only).count()) == 2
    assert failing(lambda numbers: numbers.filter(lambda value: value > 1).map(odd_only)) is None


@pytest.mark.parametrize("errors", [None, Outbox()])
@pytest.mark.parametrize("step", ["map", "filter", "flat_map", "key_by", "process"])
def test_a_stop_iteration_raised_by_user_code_is_an_ordinary_error(step: str, errors: Outbox | None) -> None:
    def first_word(line: str) -> str:
        return next(iter(line.split()))

    class FirstWord:
        def process(self, line: str, context: Context[Any, str]) -> None:
            context.emit(first_word(line))

    graph = JobGraph("job", errors=errors)
    lines = graph.source(Given(["a b", " ", "c"]))
    streams: dict[str, Callable[[], Stream[Any]]] = {
        "map": lambda: lines.map(first_word),
        "filter": lambda: lines.filter(first_word),
        "flat_map": lambda: lines.flat_map(lambda line: [first_word(line)]),
        "key_by": lambda: lines.key_by(first_word).count(),
        "process": lambda: lines.process(FirstWord),
    }
    streams[step]().sink(Outbox(), name="results")
    if errors is None:
        job = Run(graph.compile(Options()))
        with pytest.raises(StepFailed) as raised:
            job.finish()
        job.close()
        assert (raised.value.at.record, type(raised.value.__cause__)) == ("' '", StopIteration)
    else:
        written = run(graph, 1).written
        assert [error.record for error in written.pop("errors")] == [" "]
        assert [len(rows) for rows in written.values()] == [2]


def test_a_batch_function_that_raises_or_returns_no_batch_is_reported_with_its_step() -> None:
    def failure(function: Callable[[Any], Any]) -> StepFailed:
        graph = JobGraph("job")
        graph.source(ColumnsGiven([{"n": 1}])).map_batches(function).map(lambda row: odd_only(len(row) * 2))
        job = Run(graph.compile(Options()))
        with pytest.raises(StepFailed) as raised:
            job.finish()
        job.close()
        return raised.value

    assert isinstance(failure(lambda batch: batch.to_pylist()).__cause__, NoFrame)
    assert failure(lambda batch: batch.column("m")).at.step == "map_batches"
    assert failure(lambda batch: batch).at.step == "map"


def test_a_sink_that_raises_is_reported_with_its_step() -> None:
    class Picky(FilesWriter):
        def write(self, rows: list[Any]) -> None:
            raise TypeError("not a row of mine")

    class PickyFiles(Files):
        def writer(self) -> FilesWriter:
            return Picky()

    graph = JobGraph("job")
    graph.source(Given([1])).sink(PickyFiles(), name="files")
    job = Run(graph.compile(Options()))
    with pytest.raises(StepFailed) as raised:
        job.finish()
    job.close()
    assert raised.value.at.step == "files"


def test_errors_of_the_library_never_go_to_the_error_output() -> None:
    def diverged(value: int) -> int:
        raise ReplayDiverged("map/0", 7, "CLOCK", "SEED")

    graph = JobGraph("job", errors=Outbox())
    graph.source(Given([1])).map(diverged)
    job = Run(graph.compile(Options()))
    with pytest.raises(StepFailed) as raised:
        job.finish()
    job.close()
    assert isinstance(raised.value.__cause__, ReplayDiverged)


def test_an_invalid_key_is_reported_with_its_record() -> None:
    graph = JobGraph("job")
    graph.source(Given([1, 2])).key_by(lambda value: value / 2).count()
    job = Run(graph.compile(Options()))
    with pytest.raises(StepFailed) as raised:
        job.finish()
    job.close()
    assert isinstance(raised.value.__cause__, KeyUnsupported)
    assert (raised.value.at.step, raised.value.at.record) == ("key_by", "1")


def test_a_record_that_cannot_be_encoded_is_reported_by_its_text() -> None:
    def fails(value: object) -> None:
        raise ValueError(value)

    graph = JobGraph("job", errors=Outbox())
    graph.source(Given([1])).map(lambda value: object()).map(fails)
    errors: list[RoutedError] = run(graph, 1).written["errors"]
    assert [error.record for error in errors] == ["<object object at 0x...>"]
