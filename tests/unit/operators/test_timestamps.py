"""Timestamps of records: where they come from, which steps keep them, and what happens to wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.stream import Stream
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.event_time.timestamps import TimestampError, Unit, event_time_ns, from_timestamp_ns
from clonos.operators.event_time.watermark_strategies import PunctuatedWatermarks
from clonos.operators.steps.context import Context, NoEventTime
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.samples import ColumnsGiven

SECOND_NS = 1_000_000_000


def at(seconds: float) -> datetime:
    """A time some seconds after the start of the clock."""
    return from_timestamp_ns(START_NS) + timedelta(seconds=seconds)


class Stamped:
    """Process function that emits each record with its timestamp in seconds since the start."""

    def process(self, value: Any, context: Context[Any, Any]) -> None:
        timestamp_ns = context.timestamp_ns
        context.emit((value, None if timestamp_ns is None else (timestamp_ns - START_NS) // SECOND_NS))


def stamped(steps: Callable[[Stream[Any]], Stream[Any]], records: Iterable[Any], timestamps: Any = "at") -> list[Any]:
    """What reaches the sink: records of ``steps`` with their timestamps."""
    graph = JobGraph("job")
    stream = graph.source(Given([{"n": n, "at": at(n)} for n in records]), timestamps=timestamps)
    steps(stream).process(Stamped, name="stamped").sink(Outbox())
    written = run(graph).written
    return sorted((row for rows in written.values() for row in rows), key=repr)


@pytest.mark.parametrize(
    "steps",
    [
        lambda stream: stream.map(lambda row: row["n"]),
        lambda stream: stream.map(lambda row: row["n"]).filter(lambda _: True),
        lambda stream: stream.flat_map(lambda row: [row["n"]]),
        lambda stream: stream.rebalance().map(lambda row: row["n"]),
        lambda stream: stream.map(lambda row: row["n"]).union(),
        lambda stream: stream.key_by("n").stateful_map(lambda key, state, row: (state, row["n"])),
        lambda stream: stream.map(lambda row: row["n"]).key_by(lambda n: n).count().map(lambda pair: pair[0]),
        lambda stream: stream.key_by("n").reduce(lambda a, b: b).map(lambda pair: pair[0]),
    ],
    ids=("map", "filter", "flat_map", "rebalance", "union", "stateful_map", "count", "reduce"),
)
def test_steps_keep_the_timestamps_of_their_records(steps: Callable[[Stream[Any]], Stream[Any]]) -> None:
    assert stamped(steps, range(20)) == sorted([(n, n) for n in range(20)], key=repr)


@given(st.lists(st.integers(0, 3), max_size=30))
def test_each_result_of_a_flat_map_and_a_filter_has_the_timestamp_of_its_record(counts: list[int]) -> None:
    found = stamped(
        lambda stream: stream.flat_map(lambda row: [row["n"]] * counts[row["n"]]).filter(lambda n: n % 3 != 1),
        range(len(counts)),
    )
    assert found == sorted([(n, n) for n, count in enumerate(counts) for _ in range(count) if n % 3 != 1], key=repr)


def test_a_record_that_raises_takes_its_timestamp_along() -> None:
    graph = JobGraph("job", errors=Outbox())

    def odd(row: Any) -> list[int]:
        if row["n"] % 2 == 0:
            raise ValueError("even")
        return [row["n"]]

    stream = graph.source(Given([{"n": n, "at": at(n)} for n in range(9)]), timestamps="at")
    stream.flat_map(odd).process(Stamped, name="stamped").sink(Outbox())
    written = run(graph).written
    assert sorted(written["stamped"]) == [(n, n) for n in (1, 3, 5, 7)]
    assert len(written["errors"]) == 5


def test_with_timestamps_replaces_those_of_the_source() -> None:
    found = stamped(lambda stream: stream.with_timestamps(lambda row: at(2 * row["n"])).map(lambda row: row["n"]), [3])
    assert found == [(3, 6)]


def test_a_stream_without_timestamps_has_none() -> None:
    assert stamped(lambda stream: stream.map(lambda row: row["n"]), [3], timestamps=None) == [(3, None)]


def test_columns_have_their_timestamps_in_a_column() -> None:
    graph = JobGraph("job")
    rows = [{"n": n, "at": START_NS // SECOND_NS + n} for n in range(9)]
    stream = graph.source(ColumnsGiven(rows), timestamps="at")
    stream.map(lambda row: row["n"]).process(Stamped, name="stamped").sink(Outbox())
    ((_, written),) = run(graph).written.items()
    assert sorted(written) == [(n, n) for n in range(9)]


def test_timestamps_of_columns_are_the_name_of_a_column() -> None:
    with pytest.raises(InvalidJob, match="Give the name of the column of the timestamps"):
        JobGraph("job").source(ColumnsGiven([{"at": 1}]), timestamps=lambda row: row["at"])


def test_streams_with_and_without_timestamps_cannot_be_joined() -> None:
    graph = JobGraph("job")
    timed, other = graph.source(Given([1]), timestamps=lambda _: at(0)), graph.source(Given([1]))
    with pytest.raises(InvalidJob, match="Give each of them timestamps by with_timestamps before union"):
        timed.union(other).map(str)


# --- what a timestamp may be


@pytest.mark.parametrize(
    ("given_value", "unit", "found_ns"),
    [
        (1_700_000_000, "s", 1_700_000_000 * SECOND_NS),
        (1_700_000_000.25, "s", 1_700_000_000 * SECOND_NS + SECOND_NS // 4),
        (1_700_000_000_123, "ms", 1_700_000_000_123_000_000),
        (1_700_000_000_123_456, "us", 1_700_000_000_123_456_000),
        (1_700_000_000_123_456_789, "ns", 1_700_000_000_123_456_789),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "s", -SECOND_NS),
        ("2023-11-14T23:13:20+01:00", "s", 1_700_000_000 * SECOND_NS),
        (-5, "s", -5 * SECOND_NS),
        (7, "ms", 7_000_000),
    ],
)
def test_a_timestamp_is_a_time_a_text_or_a_number(given_value: Any, unit: str, found_ns: int) -> None:
    assert event_time_ns(given_value, Unit(unit)) == found_ns


@pytest.mark.parametrize(
    ("given_value", "unit", "text"),
    [
        (1_700_000_000_000, "s", r'the year 55841 in seconds: give unit="ms" if it is a number of milliseconds'),
        (1_700_000_000, "ms", r'the year 1970 in milliseconds: give unit="s" if it is a number of seconds'),
        (datetime(2024, 1, 1), "s", r"has no time zone: for local times say which by"),
        ("2024-01-01", "s", r"has no time zone"),
        ("yesterday", "s", r"'yesterday' is not a text in ISO 8601"),
        (None, "s", r"the record has no timestamp: it is None"),
        (True, "s", r"True is a bool"),
        (float("nan"), "s", r"nan is not a point in time"),
        (10**12, "s", r"the year 33659 in seconds"),
        (datetime(3000, 1, 1, tzinfo=UTC), "s", r"outside the years 1678 to 2261"),
        (datetime(2262, 1, 1, tzinfo=UTC), "s", r"outside the years 1678 to 2261"),
        (9_214_646_400_000, "ms", r"outside the years 1678 to 2261"),
    ],
)
def test_a_wrong_timestamp_is_named_with_the_reason(given_value: Any, unit: str, text: str) -> None:
    with pytest.raises(TimestampError, match=text):
        event_time_ns(given_value, Unit(unit))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"n": 1}, "the record has no field 'at' for its timestamp; it has n, in split 0 of source"),
        ({"at": None}, "the record has no timestamp: it is None, in split 0 of source"),
        ({"at": at(3 * 86_400)}, "is 3 days ahead of the clock, and future_max allows 1 day, in split 0"),
    ],
)
def test_a_record_with_a_wrong_timestamp_names_its_split_and_goes_to_the_error_output(record: Any, text: str) -> None:
    graph = JobGraph("job")
    graph.source(Given([record]), timestamps="at").sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        run(graph, parallelism=1)
    assert text in str(raised.value.__cause__)

    graph = JobGraph("job", errors=Outbox())
    graph.source(Given([record, {"at": at(0)}]), timestamps="at").sink(Outbox())
    written = run(graph, parallelism=1).written
    assert written["source-sink"] == [{"at": at(0)}]
    assert text in written["errors"][0].error


# --- watermarks and timers in event time


class Remind:
    """Sets a timer 5 s after each record; shows when it fires."""

    def process(self, value: Any, context: Context[Any, Any]) -> None:
        assert context.timestamp is not None
        context.set_event_timer(context.timestamp + timedelta(seconds=5))

    def on_event_timer(self, timestamp: datetime, context: Context[Any, Any]) -> None:
        assert context.timestamp == timestamp
        context.emit((context.key, (timestamp - at(0)).total_seconds()))


def reminders(timestamps: Timestamps, seconds: list[float], steps: int = 99) -> list[Any]:
    graph = JobGraph("job")
    stream = graph.source(Given([{"at": at(each)} for each in seconds]), timestamps=timestamps)
    stream.key_by(lambda _: "a").process(Remind, name="remind").sink(Outbox())
    running = Run(graph.compile(Options(), parallelism=1))
    for _ in range(steps):
        if not running.read(1):
            break
        running.drain()
    return running.written.get("remind", [])


def test_an_event_timer_fires_when_the_watermark_has_reached_it() -> None:
    exact = Timestamps("at", watermark_every="1ms")
    assert reminders(exact, [0, 4]) == []
    assert reminders(exact, [0, 5]) == [("a", 5.0)]
    late = Timestamps("at", out_of_order="3s", watermark_every="1ms")
    assert reminders(late, [0, 7]) == []
    assert reminders(late, [0, 8]) == [("a", 5.0)]


def test_a_punctuated_watermark_comes_from_some_records() -> None:
    def marked(row: Any, timestamp: datetime) -> datetime | None:
        return timestamp if row["at"] == at(9) else None

    punctuated = Timestamps("at", watermarks=PunctuatedWatermarks(marked), watermark_every="1ms")
    assert reminders(punctuated, [0, 8]) == []
    assert reminders(punctuated, [0, 9]) == [("a", 5.0)]


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_a_watermark_ages_ahead_is_an_error_that_names_the_step(in_the_middle: bool) -> None:
    def marked(row: Any, timestamp: datetime) -> datetime | None:
        return timestamp + timedelta(days=40)

    times = Timestamps("at", watermarks=PunctuatedWatermarks(marked))
    graph = JobGraph("job")
    rows = Given([{"key": "a", "at": at(1)}])
    stream = graph.source(rows).with_timestamps(times) if in_the_middle else graph.source(rows, timestamps=times)
    stream.sink(Outbox())
    with pytest.raises(StepFailed) as failed:
        run(graph)
    where = "" if in_the_middle else ", in split 0 of source"
    cause = str(failed.value.__cause__)
    assert "the watermark 2" in cause
    assert cause.endswith(f"ahead of the clock, and future_max allows 1 day{where}")


def test_an_event_timer_sees_a_watermark_that_has_reached_it() -> None:
    class Seen:
        def process(self, row: Any, context: Context[str, Any]) -> None:
            context.set_event_timer(at(5))
            context.set_event_timer(at(6))

        def on_event_timer(self, timestamp: datetime, context: Context[str, Any]) -> None:
            assert context.watermark is not None
            context.emit([(each - at(0)).total_seconds() for each in (timestamp, context.watermark)])

    graph = JobGraph("job")
    rows = [{"key": "a", "at": at(second)} for second in (0, 9)]
    source = graph.source(Given(rows), parallelism=1, timestamps=Timestamps("at", watermark_every="1ms"))
    source.key_by("key").process(Seen).sink(Outbox())
    assert [row for output in run(graph, 1).written.values() for row in output] == [[5.0, 5.0], [6.0, 6.0]]


def test_an_event_timer_on_a_stream_without_timestamps_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"sets event-time timers on a stream without event time\. Give the records"):
        JobGraph("job").source(Given([1])).process(Remind)


def test_an_event_timer_on_a_stream_without_timestamps_is_refused_at_the_first_record_if_the_code_hides_it() -> None:
    class Hidden:
        def process(self, value: Any, context: Context[Any, Any]) -> None:
            getattr(context, "set_event" + "_timer")(at(5))

        on_event_timer = Remind.on_event_timer

    graph = JobGraph("job")
    graph.source(Given([1])).process(Hidden).sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        run(graph, parallelism=1)
    assert isinstance(raised.value.__cause__, NoEventTime)
    assert "Give the records timestamps" in str(raised.value.__cause__)


def test_an_event_timer_without_a_method_for_it_is_refused() -> None:
    class Silent:
        def process(self, value: Any, context: Context[Any, Any]) -> None:
            context.set_event_timer(at(5))

    stream = JobGraph("job").source(Given([1]), timestamps=lambda _: at(0))
    with pytest.raises(InvalidJob, match=r"has no method on_event_timer\(timestamp, context\)"):
        stream.process(Silent)
