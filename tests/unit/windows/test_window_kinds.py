"""Kinds of windows by example: time zones, offsets, processing time, windows without keys; and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.stream import Stream
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.core.model.options import Options
from clonos.core.wire.control_messages import ONCE_PER_STEP
from clonos.operators.event_time.durations import InvalidDuration
from clonos.operators.event_time.timestamps import to_timestamp_ns
from clonos.operators.tags import Tag
from clonos.operators.windows.window_results import Window, WindowResult
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.samples import ColumnsGiven
from tests.unit.windows.stepping import NEVER, stepping

SECOND = 1_000_000_000
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> int:
    """Nanoseconds of a time in Berlin; after the clocks were set back with "fold" after it."""
    wall = datetime.fromisoformat(text.removesuffix(" fold"))
    return to_timestamp_ns(wall.replace(tzinfo=BERLIN, fold=int(text.endswith("fold"))).astimezone(UTC))


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-03-28", 24), ("2026-10-26", 24)]
)
@pytest.mark.parametrize("offset_h", [0, 2, 6])
def test_days_of_a_time_zone_have_23_or_25_hours_when_its_clocks_change(day: str, hours: int, offset_h: int) -> None:
    step = stepping(
        lambda keyed: keyed.window(
            Tumbling("1d", timezone="Europe/Berlin", offset=f"{offset_h}h" if offset_h else None)
        ).count()
    )
    noon = at(f"{day}T12:00")
    step.rows([(("a", number), noon - 14 * 3600 * SECOND + number * 600 * SECOND) for number in range(6 * 30)])
    step.watermark(NEVER)
    ends = [result.end for result, _ in step.results]
    assert [result.start for result, _ in step.results][1:] == ends[:-1]
    lengths = {
        result.start.astimezone(BERLIN).date().isoformat(): result.end - result.start for result, _ in step.results
    }
    if offset_h == 0:
        assert lengths[day] == timedelta(hours=hours)
        whole = next(result for result, _ in step.results if result.start.astimezone(BERLIN).date().isoformat() == day)
        assert whole.value == hours * 6
    assert all(result.start.astimezone(BERLIN).hour in (offset_h, offset_h + 1) for result, _ in step.results)
    assert sum(result.value for result, _ in step.results) == 6 * 30


def test_weeks_of_a_time_zone_begin_on_thursday_or_where_the_offset_moves_them() -> None:
    step = stepping(lambda keyed: keyed.window(Tumbling("7d", timezone="Europe/Berlin", offset="4d")).count())
    step.rows([(("a", 1), at("2026-03-29T12:00")), (("a", 2), at("2026-03-30T00:00"))])
    step.watermark(NEVER)
    starts = [result.start.astimezone(BERLIN).isoformat() for result, _ in step.results]
    assert starts == ["2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"]


def test_sliding_days_of_a_time_zone_consist_of_its_days() -> None:
    step = stepping(lambda keyed: keyed.window(Sliding("2d", every="1d", timezone="Europe/Berlin")).count())
    step.rows([(("a", 1), at("2026-03-29T12:00"))])
    step.watermark(NEVER)
    assert [result.end - result.start for result, _ in step.results] == [timedelta(hours=47), timedelta(hours=47)]


def test_an_offset_moves_windows() -> None:
    step = stepping(lambda keyed: keyed.window(Tumbling("1h", offset="15min")).count())
    step.rows([(("a", 1), 0), (("a", 2), 15 * 60 * SECOND)])
    step.watermark(NEVER)
    assert [result.start.minute for result, _ in step.results] == [15, 15]


def test_windows_in_processing_time_follow_the_clock_though_the_stream_has_timestamps() -> None:
    step = stepping(lambda keyed: keyed.window(Tumbling("5s", time="processing")).count())
    step.rows([(("a", 1), 0), (("a", 2), 99 * SECOND)])
    step.watermark(NEVER)
    assert step.results == []
    step.pass_time(START_NS + 5 * SECOND)
    assert [(result.value, time_ns) for result, time_ns in step.results] == [(2, None)]


@pytest.mark.parametrize("restores", [False, True])
def test_sliding_windows_in_processing_time_have_each_record_as_often_as_they_overlap(restores: bool) -> None:
    step = stepping(lambda keyed: keyed.window(Sliding("4s", every="2s")).aggregate(list, list.append), has_times=False)
    for number in range(5):
        step.rows([("a", number)])
        step.pass_time(START_NS + (number + 1) * SECOND)
        if restores:
            step.restore()
    step.end()
    assert [result.value for result, _ in step.results] == [[0, 1], [0, 1, 2, 3], [2, 3, 4], [4]]


def test_windows_of_a_stream_without_keys_have_all_records() -> None:
    graph = JobGraph("job")
    rows = graph.source(Given(range(10)), timestamps=lambda row: START_NS / 1e9 + row)
    rows.window(Tumbling("5s", offset="0.001s")).count(name="count").sink(Outbox())
    job = graph.compile(Options(), parallelism=2)
    assert [vertex.parallelism for vertex in job.plan.vertices if vertex.name.startswith("count")] == [1]
    found = [row for rows in run(graph, 2).written.values() for row in rows]
    assert [result.key for result in found] == [None] * len(found)
    assert sum(result.value for result in found) == 10


def test_a_fold_begins_with_a_copy_of_the_initial_value() -> None:
    initial: list[int] = [0]
    for kind in (Tumbling("5s"), Sliding("6s", every="3s")):
        step = stepping(lambda keyed: keyed.window(kind).fold(initial, list.append))  # noqa: B023
        step.rows([(("a", 1), 0), (("a", 2), 1), (("b", 3), 2)])
        step.watermark(NEVER)
        assert [result.value for result, _ in step.results][:2] == [[0, 1, 2], [0, 3]]
    assert initial == [0]


def test_apply_gets_key_window_and_values_and_gives_any_number_of_records() -> None:
    def pairs(key: Any, window: Window, values: list[int]) -> list[Any]:
        return [(key, (window.end - window.start).total_seconds(), value) for value in values if value > 1]

    step = stepping(lambda keyed: keyed.window(Tumbling("5s")).apply(pairs))
    step.rows([(("a", 1), 0), (("a", 2), 1), (("b", 3), 2), (("b", 4), 6 * SECOND)])
    step.watermark(NEVER)
    assert step.results == [
        (("a", 5.0, 2), 5 * SECOND - 1),
        (("b", 5.0, 3), 5 * SECOND - 1),
        (("b", 5.0, 4), 10 * SECOND - 1),
    ]


def test_windows_can_follow_windows_since_results_have_the_end_of_theirs_as_their_timestamp() -> None:
    graph = JobGraph("job")
    start = START_NS // SECOND
    rows = graph.source(Given([(key, start + n) for n in range(20) for key in "ab"]), timestamps=lambda row: row[1])
    small = rows.key_by(lambda row: row[0]).window(Tumbling("5s")).count()
    small.key_by(lambda result: None).window(Tumbling("10s")).sum(lambda result: result.value).sink(
        Outbox(), name="sums"
    )
    (found,) = run(graph, 1).written.values()
    assert [(result.start.timestamp() - start, result.value) for result in found] == [(0, 20), (10, 20)]


@pytest.mark.parametrize("lateness", [None, "1s"])
def test_event_time_windows_of_columns_equal_those_of_rows(lateness: str | None) -> None:
    start = START_NS // SECOND
    values = [{"key": "ab"[n % 2], "at": start + n * 3 % 17, "n": n} for n in range(30)]
    written = []
    for of_columns in (False, True):
        graph = JobGraph("job")
        stamps = Timestamps("at", unit="s", out_of_order="20s")
        source: Any = ColumnsGiven(values) if of_columns else Given(values)
        keyed = graph.source(source, timestamps=stamps).key_by("key")
        keyed.window(Sliding("6s", every="2s"), lateness=lateness).sum("n").sink(Outbox())
        (found,) = run(graph, 1).written.values()
        written.append(sorted(found))
    assert written[0] == written[1]
    assert written[0]


def test_late_records_that_no_side_output_reads_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    graph = JobGraph("job")
    start = START_NS // SECOND
    rows = graph.source(Given([start + 60, *range(start, start + 9)]), timestamps=lambda row: row, parallelism=1)
    counted = rows.key_by(lambda row: 0).window(Tumbling("5s")).count(name="counted")
    counted.sink(Outbox())
    with caplog.at_level(logging.WARNING):
        job = Run(graph.compile(Options(), parallelism=1))
        job.finish(1)
        job.close()
    (warning,) = [record for record in caplog.records if record.name == f"{ONCE_PER_STEP}counted"]
    assert warning.getMessage().startswith(
        "the step counted leaves out records that are too late: the first has the timestamp"
    )
    assert 'Give the window late=Tag("late")' in warning.getMessage()


@pytest.mark.parametrize(
    ("seconds", "lateness", "warns"),
    [
        ([60, 112, 64], None, True),  # the session of 60 is gone, and 64 belongs to that of 112
        ([60, 115, 66], None, True),  # 66 has a session of its own
        ([60, 112, 64], "60s", False),  # the session of 60 is there still
        ([60, 112, 64], "20s", False),
        ([60, 160, 121], "40s", False),
        ([60, 112, 112, 113], None, False),
        ([60, 62, 61], None, False),
    ],
)
def test_a_session_that_begins_behind_the_watermark_is_warned_of(
    seconds: list[int], lateness: str | None, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    graph = JobGraph("job")
    times = [START_NS // SECOND + each for each in seconds]
    rows = graph.source(Given(times), timestamps=lambda row: row, parallelism=1)
    rows.key_by(lambda row: 0).window(Session("50s"), lateness=lateness).count(name="counted").sink(Outbox())
    with caplog.at_level(logging.WARNING):
        job = Run(graph.compile(Options(), parallelism=1))
        job.finish(1)
        job.close()
    found = [record.getMessage() for record in caplog.records if record.name == f"{ONCE_PER_STEP}counted"]
    assert [text.startswith("the step counted began a session at ") for text in found] == [True] * warns


def test_late_records_go_to_the_side_output_without_their_keys_and_with_their_timestamps() -> None:
    late = Tag[int]("late")
    graph = JobGraph("job")
    start = START_NS // SECOND
    rows = graph.source(Given([start + 60, start, start + 1]), timestamps=lambda row: row, parallelism=1)
    counted = rows.key_by(lambda row: 0).window(Tumbling("5s"), late=late).count(name="counted")
    counted.sink(Outbox())
    counted.side_output(late).key_by(lambda row: 1).window(Tumbling("5s", offset="1s"), lateness="1d").sum(
        name="sums"
    ).sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish(1)
    (sums,) = [rows for name, rows in job.written.items() if name.startswith("sums")]
    assert [result.value for result in sums] == [start, start + 1]
    job.close()


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "event time without timestamps": (
        lambda: untimed().key_by(str).window(Tumbling("5s", time="event")),
        InvalidJob,
        "the step window has windows in event time on a stream without timestamps. Give the records timestamps: "
        "job.source(..., timestamps=...) or stream.with_timestamps(...).",
    ),
    "late records in processing time": (
        lambda: untimed().key_by(str).window(Tumbling("5s"), lateness="1s"),
        InvalidJob,
        "the step window has late records in processing time. Leave late= and lateness= out: by the clock of the task"
        " no record is late.",
    ),
    "a size": (lambda: untimed().key_by(str).window("5s"), InvalidJob, "the step window gets '5s'. Give it a kind"),
    "a slide longer than the size": (
        lambda: Sliding("5s", every="7s"),
        InvalidJob,
        "the step window gets Sliding('5s', every='7s'), which leaves records out. Let every= be at most the size.",
    ),
    "lengths with a small divisor": (
        lambda: Sliding("1h", every="59.999s"),
        InvalidJob,
        "the step window gets Sliding('1h', every='59999ms'), whose greatest common divisor is only 1ms. Let the size",
    ),
    "no slide": (lambda: Sliding("5s", every=0), InvalidDuration, "0 is not a length of time"),
    "an unknown time": (
        lambda: Tumbling("5s", time=wall),
        InvalidJob,
        'gets time=\'wall\'. Give "event" or "processing".',
    ),
    "an unknown zone": (
        lambda: Tumbling("1d", timezone="Mars/Base"),
        InvalidJob,
        "gets timezone='Mars/Base', which is unknown. Give a name such as \"Europe/Berlin\".",
    ),
    "hours of a zone": (
        lambda: Tumbling("1h", timezone="Europe/Berlin"),
        InvalidJob,
        "gets timezone='Europe/Berlin' for parts of days. Give whole days, or offset= instead.",
    ),
    "an offset as long as the size": (
        lambda: Tumbling("1h", offset="1h"),
        InvalidJob,
        "gets offset='1h', which is not less than the distance of its windows. Give less than '1h'.",
    ),
    "a text for the late records": (
        lambda: timed().key_by(str).window(Tumbling("5s"), late="late"),
        InvalidJob,
        "the step window gets late='late'. Give it a tag: late=Tag(\"late\").",
    ),
    "a join in days of a time zone": (
        lambda: joined(window=Tumbling("1d", timezone="Europe/Berlin")),
        InvalidJob,
        "joins in windows of a time zone or of processing time. Give size and offset",
    ),
    "several tasks without a key": (
        lambda: timed().window(Tumbling("5s")).count(parallelism=2),
        InvalidJob,
        "the step window_count has the parallelism 2, but windows without a key have one task. Leave parallelism= out,",
    ),
}


wall: Any = "wall"


def joined(window: Tumbling) -> Any:
    graph = JobGraph("job")
    left, right = (graph.source(Given([1]), timestamps=lambda row: row) for _ in range(2))
    return left.join(right, on=(str, str), window=window)


def untimed() -> Any:
    return JobGraph("job").source(Given([1]))


def timed() -> Any:
    return JobGraph("job").source(Given([1]), timestamps=lambda row: row)


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_window_is_refused_with_one_sentence(name: str) -> None:
    make, kind, sentence = REFUSED[name]
    with pytest.raises(kind) as caught:
        make()
    assert sentence in str(caught.value)


def test_a_window_is_described_by_its_kind_for_a_resume() -> None:
    assert str(Tumbling("1d", timezone="Europe/Berlin", offset="6h")) == "Tumbling 1d offset 6h in Europe/Berlin"
    assert str(Sliding("10min", every="90s")) == "Sliding 10min every 90s"
    graph = JobGraph("job")
    records: Stream[Any] = graph.source(Given([1]), timestamps=lambda row: row)
    records.key_by(str).window(Tumbling("5s")).count()
    assert graph.steps[-1].state == (
        ("window", "Tumbling 5s"),
        ("time", "event"),
        ("windows", "in panes"),
        ("accumulators", "of the aggregate"),
    )
    assert WindowResult._fields == ("key", "start", "end", "value")
