"""Timestamps that are missing or wrong, and steps of event time on streams without it: the sentence for each."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from clonos import Timestamps
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from tests.harnesses.mistakes import check, describe, run_file
from tests.unit.operators.driver import START_NS, Given, Outbox, Run

NOW = START_NS // 1_000_000_000
GIVE = "Give the records timestamps: job.source(..., timestamps=...) or stream.with_timestamps(...)."

BAD: dict[str, tuple[Any, Any, str]] = {
    "null": ({"at": None}, "at", "the record has no timestamp: it is None, in split 0 of readings"),
    "missing": ({"ta": 1}, "at", "the record has no field 'at' for its timestamp; it has ta, in split 0 of readings"),
    "no fields": (7, "at", "the record has no field 'at' for its timestamp: it is of type int, in split 0"),
    "of a function": ({"ta": 1}, lambda row: row.get("at"), "the record has no timestamp: it is None, in split 0"),
    "milliseconds as seconds": (
        {"at": NOW * 1_000},
        "at",
        'is the year 55841 in seconds: give unit="ms" if it is a number of milliseconds, in split 0 of readings',
    ),
    "seconds as milliseconds": (
        {"at": NOW},
        Timestamps("at", unit="ms"),
        'is the year 1970 in milliseconds: give unit="s" if it is a number of seconds, in split 0 of readings',
    ),
    "ages ahead": (
        {"at": NOW + 40 * 86_400},
        "at",
        "is 40 days ahead of the clock, and future_max allows 1 day, in split 0 of readings",
    ),
    "an hour too far": (
        {"at": NOW + 2 * 3_600},
        Timestamps("at", future_max="1h"),
        "is 2:00:00 ahead of the clock, and future_max allows 1:00:00, in split 0 of readings",
    ),
    "no zone": ({"at": "2026-01-01T12:00:00"}, "at", "has no time zone: for local times say which by Timestamps("),
    "no time": (
        {"at": "yesterday"},
        "at",
        "the timestamp 'yesterday' is not a text in ISO 8601: read it by a function",
    ),
    "a number as text": (
        {"at": "1700000000"},
        "at",
        "is not a text in ISO 8601: it is a number as text. Convert it, as in"
        " timestamps=lambda record: int(record['at']), in split 0 of readings",
    ),
    "another type": ({"at": [1]}, "at", "the timestamp [1] is a list: give an aware datetime, an ISO 8601 text"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("in_the_middle", [False, True])
def test_a_record_with_a_bad_timestamp_is_an_error_that_names_it_and_its_split(name: str, in_the_middle: bool) -> None:
    record, timestamps, sentence = BAD[name]
    for has_error_output in (False, True):
        graph = JobGraph("job", errors=Outbox() if has_error_output else None)
        good = {"at": "2023-11-14T12:00:00Z"}
        source = graph.source(
            Given([good, record]), name="readings", timestamps=None if in_the_middle else timestamps, parallelism=1
        )
        (source.with_timestamps(timestamps) if in_the_middle else source).sink(Outbox(), name="out")
        job = Run(graph.compile(Options(), parallelism=1))
        expected = sentence.partition(", in split 0")[0] if in_the_middle else sentence
        if has_error_output:
            job.finish()
            (error,) = job.written["errors"]
            check(error.error, expected)
            assert error.record == (repr(record) if isinstance(error.record, str) else record)
        else:
            with pytest.raises(StepFailed) as raised:
                job.finish()
            check(str(raised.value.__cause__), expected)
            assert raised.value.at.record == repr(record)


def test_a_timestamp_ages_ahead_does_not_move_the_watermark() -> None:
    graph = JobGraph("job", errors=Outbox())
    rows = [{"at": NOW}, {"at": NOW + 10**8}, {"at": NOW + 1}]
    stream = graph.source(Given(rows), name="readings", timestamps="at", parallelism=1)
    stream.filter(lambda row: True, name="seen").rebalance().map(str).sink(Outbox(), name="out")
    job = Run(graph.compile(Options(), parallelism=1))
    while job.read(1):
        job.drain()
    assert len(job.written["errors"]) == 1
    reached = [job.watermarks[task].own_ns for task in job.plan.tasks]
    assert max(each for each in reached if each is not None) <= (NOW + 1) * 1_000_000_000


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (
            'a.key_by("id").window(Tumbling("5s", time="event")).count()',
            "the step window has windows in event time on a stream without timestamps. ",
        ),
        ('a.join(b, on="id", between=("-1h", "1h"))', "the step join joins streams without timestamps by time. "),
        ('a.join_as_of(b, on="id")', "the step join_as_of joins streams without timestamps by time. "),
        ("a.merge_ordered(b)", "the step merge_ordered merges a stream without timestamps by time. "),
        (
            'a.with_timestamps("at").merge_ordered(b)',
            "the step merge_ordered merges a stream without timestamps by time. ",
        ),
        ("a.process(Silence)", "the step process sets event-time timers on a stream without event time. "),
    ],
)
def test_a_step_of_event_time_on_a_stream_without_timestamps_is_refused(steps: str, sentence: str) -> None:
    code = f"""
        class Silence:
            def process(self, record, context):
                context.set_event_timer(record["at"])

            def on_event_timer(self, timestamp, context):
                pass

        job = Job("readings")
        a = job.source(values([{{"id": 1}}]), name="a")
        b = job.source(values([{{"id": 1}}]), name="b")
        {steps}.sink(stdout())
    """
    check(describe(code), f"{sentence}{GIVE}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ('"at", unit="sec"', "gets the unit 'sec'. Give one of s, ms, us, ns."),
        (
            '"at", out_of_order=-5',
            "-5 is not a length of time: it must be a whole number of milliseconds, at least one",
        ),
        ('"at", idle_after="1 minute"', "'1 minute' is not a length of time"),
        ("5", "gets of=5. Give the name of a field or a function."),
        (
            '"at", watermarks="5s"',
            "gets watermarks='5s'. Give a WatermarkStrategy, or a length of time as out_of_order=\"5s\".",
        ),
    ],
)
def test_arguments_of_timestamps_that_cannot_be_used_are_refused(arguments: str, sentence: str) -> None:
    check(describe(f"Timestamps({arguments})"), sentence)


def test_keys_of_different_types_in_a_join_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    graph = JobGraph("job")
    orders = graph.source(Given([{"id": 1, "at": NOW}]), name="orders", timestamps="at", parallelism=1)
    shipped = graph.source(Given([{"id": "1", "at": NOW}]), name="shipped", timestamps="at", parallelism=1)
    orders.join(shipped, on="id", between=("-1h", "1h"), name="join").sink(Outbox())
    with caplog.at_level(logging.WARNING):
        Run(graph.compile(Options(), parallelism=1)).finish()
    (text,) = [record.getMessage() for record in caplog.records]
    check(text, "the step join joins the key 1 (int) of the left stream with '1' (str) of the right one", "Convert one")


@pytest.mark.slow
@pytest.mark.processes
def test_a_bad_timestamp_fails_a_job_with_one_sentence(tmp_path: Path) -> None:
    code = """
        from clonos import Job, Tumbling, stdout, values

        job = Job("readings")
        readings = job.source(values([{"id": 1, "at": 1767268800000}]), name="readings", timestamps="at")
        readings.key_by("id").window(Tumbling("5s")).count(name="counted").sink(stdout())
    """
    printed = run_file(tmp_path, code)
    check(
        printed,
        "step readings, at the record {'id': 1, 'at': 1767268800000}, raised TimestampError: the timestamp",
        'give unit="ms" if it is a number of milliseconds, in split 0 of readings',
        "give the job an error output: Job(..., errors=sink)",
        code=1,
    )
