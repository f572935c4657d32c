"""Spans of a history, and the exporter that sends them with the metrics: to a collector, and to none."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from clonos.api.graph import JobGraph
from clonos.config import resolve_keywords
from clonos.core.model.errors import JobError
from clonos.core.model.ids import Incarnation
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.trace_messages import TracedStep
from clonos.job.metrics_export import ObservedJob, start_exporters
from clonos.job.run_history.history_events import (
    Alarmed,
    CheckpointDone,
    DriverStarted,
    Event,
    RolledBack,
    RunEnded,
    TaskCaughtUp,
    TaskFailure,
    TaskMoved,
    TaskRecovered,
    WidthsChanged,
)
from clonos.job.telemetry.spans import HistorySpans, Span
from clonos.status import CheckpointState, Phase, Status, TaskState
from tests.speed import scaled
from tests.waiting import await_condition

pytest.importorskip("opentelemetry.sdk")

from clonos.job.telemetry.otlp_exporter import LOG_RECORDS_MAX, OtlpExporter
from tests.harnesses.otlp_collector import OtlpCollector, attributes

wait_until = partial(await_condition, scaled(20.0))
MS = 1_000_000
STARTED = DriverStarted(
    at_ns=0,
    job_id="sums-1",
    term=2,
    how="afresh",
    checkpoint=0,
    pid=1,
    host="here",
    version="1",
    tasks={"a": 2},
    shape=b"",
)
PHASES = {"view": 10.0, "gathered": 5.0, "replayed": 25.0}


def _recovered(task: str, at_ms: int, incarnation: int = 9) -> TaskRecovered:
    return TaskRecovered(
        at_ns=at_ms * MS,
        job_id="sums-1",
        term=2,
        task=task,
        incarnation=incarnation,
        cause="killed",
        duration_ms=40.0,
        phases_ms=PHASES,
        replayed_records=7,
    )


def _spans(*events: Event) -> list[Span]:
    spans = HistorySpans("sums")
    return [span for event in events for span in spans.add(event)]


def _times(span: Span) -> tuple[float, float]:
    return span.began_ns / MS, span.ended_ns / MS


def test_a_recovery_is_a_span_whose_phases_follow_each_other_in_it() -> None:
    caught_up = TaskCaughtUp(at_ns=190 * MS, job_id="sums-1", term=2, task="a/0", incarnation=9, after_ms=50.0)
    _, whole, *phases = _spans(STARTED, _recovered("a/0", 140), caught_up)
    assert (whole.name, *_times(whole)) == ("recovery", 100, 140)
    assert whole.attributes["clonos.cause"] == "killed"
    assert whole.attributes["clonos.replayed_records"] == 7
    assert [(each.name, *_times(each)) for each in phases] == [
        ("view", 100, 110),
        ("gathered", 110, 115),
        ("replayed", 115, 140),
        ("caught_up", 140, 190),
    ]
    assert {(each.trace, each.parent) for each in phases} == {(whole.trace, whole.key)}
    assert len({each.key for each in phases}) == 4


def test_a_rollback_is_a_span_around_the_recoveries_of_all_tasks() -> None:
    back = RolledBack(at_ns=90 * MS, job_id="sums-1", term=2, checkpoint=3, cause="a lost log", incarnation=9)
    spans = _spans(STARTED, back, _recovered("a/0", 140), _recovered("a/1", 170), _recovered("a/1", 900, 12))
    (rollback,) = (each for each in spans if each.name == "rollback")
    assert _times(rollback) == (90, 170)
    first, second, later = (each for each in spans if each.name == "recovery")
    assert first.parent == second.parent == rollback.key
    assert later.parent == ""
    assert len({each.key for each in spans}) == len(spans)


def test_a_rollback_that_another_one_ends_has_its_span_too() -> None:
    back = RolledBack(at_ns=90 * MS, job_id="sums-1", term=2, checkpoint=3, cause="a lost log", incarnation=9)
    again = RolledBack(at_ns=95 * MS, job_id="sums-1", term=2, checkpoint=3, cause="another", incarnation=11)
    end = RunEnded(at_ns=99 * MS, job_id="sums-1", term=2, how="failed", checkpoint=3, error="no")
    found = [(each.attributes["clonos.cause"], *_times(each)) for each in _spans(STARTED, back, again, end)[1:-1]]
    assert found == [("a lost log", 90, 90), ("another", 95, 95)]


def test_a_run_its_checkpoints_moves_and_changes_of_widths_are_spans_that_belong_to_it() -> None:
    common = {"job_id": "sums-1", "term": 2}
    events: list[Event] = [
        STARTED,
        CheckpointDone(at_ns=50 * MS, **common, number=3, duration_ms=20.0, size_bytes=100),  # type: ignore[arg-type]
        TaskFailure(at_ns=51 * MS, **common, task="a/0", incarnation=1, cause="killed"),  # type: ignore[arg-type]
        WidthsChanged(at_ns=60 * MS, **common, phase="requested", tasks={"a": 2}),  # type: ignore[arg-type]
        WidthsChanged(at_ns=80 * MS, **common, phase="refused", tasks={"a": 2}, text="no slot"),  # type: ignore[arg-type]
        TaskMoved(at_ns=90 * MS, **common, task="a/0", incarnation=4, duration_ms=2.0, phases_ms={"view": 2.0}),  # type: ignore[arg-type]
        RunEnded(at_ns=99 * MS, **common, how="failed", checkpoint=3, error="KeyError"),  # type: ignore[arg-type]
    ]
    start, checkpoint, rescale, move, view, run = _spans(*events)
    assert (start.name, start.parent, start.trace) == ("job start", run.key, run.trace)
    assert (checkpoint.name, *_times(checkpoint)) == ("checkpoint", 30, 50)
    assert (rescale.name, *_times(rescale), rescale.error) == ("rescale", 60, 80, "no slot")
    assert (move.name, view.name, view.parent) == ("move", "view", move.key)
    assert (run.name, *_times(run), run.error) == ("job sums", 0, 99, "KeyError")
    assert [each.link for each in (start, run)] == ["", ""]
    assert {each.link for each in (checkpoint, rescale, move)} == {run.key}


def _traced(task: str, sender: str, *times_ms: int, call_ms: int = 0) -> TracedStep:
    """Returns the passage of a record that was read at 100 ms."""
    sent_ns, taken_ns, ended_ns = (each * MS for each in times_ms)
    return TracedStep(task, Incarnation(9), 3, 100 * MS, sender, sent_ns, taken_ns, ended_ns, call_ms * MS, 20)


WAY = (
    _traced("read/0", "", 100, 100, 104),
    _traced("ask/1", "read/0", 104, 110, 160, call_ms=45),
    _traced("count/0", "ask/1", 160, 165, 166),
)


def test_the_way_of_a_traced_record_is_a_trace_with_a_span_of_each_step_in_that_of_the_step_before() -> None:
    spans = HistorySpans("sums")
    assert list(spans.traced(WAY[0])) == []  # it is not known of which run it is
    start, read = spans.add(STARTED)
    ask, count = (span for step in WAY[1:] for span in spans.traced(step))
    assert [(each.name, *_times(each)) for each in (read, ask, count)] == [
        ("read", 100, 104),
        ("ask", 110, 160),
        ("count", 165, 166),
    ]
    assert [each.parent for each in (read, ask, count)] == ["", read.key, ask.key]
    assert read.trace == ask.trace == count.trace != start.trace
    shown = {name: ask.attributes[f"clonos.{name}"] for name in ("task", "queued_ms", "call_ms", "processed_ms")}
    assert shown == {"task": "ask/1", "queued_ms": 6.0, "call_ms": 45.0, "processed_ms": 5.0}
    (another,) = spans.traced(msgspec.structs.replace(WAY[0], read_ns=101 * MS))
    assert another.trace != read.trace
    assert read.link == another.link != ""


# ------------------------------------------------------------------ the exporter


def _listen(_: Callable[..., None]) -> None:
    """Never calls a listener."""


def test_traces_without_a_collector_are_refused() -> None:
    settings = resolve_keywords({"trace_every": "1s"})
    job = ObservedJob(JobGraph("sums"), "sums-1", lambda: Status("sums", Phase.RUNNING), tuple, _listen, _listen)
    with pytest.raises(JobError, match=r"the keyword sets trace_every, .* no collector"):
        start_exporters(settings, job)


def _exporting(endpoint: str) -> OtlpExporter:
    """Starts the exporter of a job with one task."""
    task = TaskState("count/0", 1, 1, 4711, "process-1", TaskPhase.LIVE, {"records_in": 100, "state_bytes": 7}, 1, 1)
    status = Status("sums", Phase.RUNNING, "sums-1", generation=1, tasks=(task,))
    checkpoints = tuple(CheckpointState(number, 0, number * 250 * MS, is_pending=False) for number in (1, 2))
    listeners: list[Callable[[Event], None]] = []
    tracers: list[Callable[[tuple[TracedStep, ...]], None]] = []
    listen = listeners.append, tracers.append
    job = ObservedJob(JobGraph("sums"), "sums-1", lambda: status, lambda: checkpoints, *listen)
    (exporter,) = start_exporters(resolve_keywords({"telemetry": endpoint}), job)
    assert isinstance(exporter, OtlpExporter)
    assert listeners == [exporter.note]
    assert tracers == [exporter.note_steps]
    return exporter


def test_spans_and_the_metrics_of_the_endpoint_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with OtlpCollector() as collector:
        exporter = _exporting(collector.url)
        exporter.note_steps(WAY)  # before it is known which run they are of
        exporter.note(STARTED)
        wait_until(lambda: len(collector.spans) == 4)  # before the end
        (read,), (ask,) = collector.named("read"), collector.named("ask")
        assert (read.parent_span_id, ask.parent_span_id, ask.trace_id) == (b"", read.span_id, read.trace_id)
        assert attributes(ask.attributes)["clonos.queued_ms"] == 6.0
        exporter.note(_recovered("a/0", 140))
        exporter.close()
        (whole,), (view,) = collector.named("recovery"), collector.named("view")
        assert (view.trace_id, view.parent_span_id) == (whole.trace_id, whole.span_id)
        assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (100 * MS, 140 * MS)
        assert attributes(whole.attributes)["clonos.task"] == "a/0"
        assert collector.resource["service.name"] == "sums"
        assert collector.headers[0]["api-key"] == "secret"
        records = collector.metrics["clonos_records_processed"].sum
        assert records.is_monotonic
        assert [point.as_double for point in records.data_points] == [100]
        assert attributes(records.data_points[0].attributes)["task"] == "count/0"
        (state,) = collector.metrics["clonos_state_size_bytes"].gauge.data_points
        assert state.as_double == 7
        assert collector.metrics["clonos_checkpoint_duration_seconds"].unit == "s"
        (durations,) = collector.metrics["clonos_checkpoint_duration_seconds"].histogram.data_points
        assert (durations.count, durations.sum) == (2, 0.75)
        upper = [*durations.explicit_bounds, None]
        assert [bound for bound, count in zip(upper, durations.bucket_counts, strict=True) if count] == [0.25, 0.5]


def test_alarms_and_the_error_of_a_job_are_log_records_in_the_span_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with OtlpCollector() as collector:
        exporter = _exporting(collector.url)
        exporter.note(STARTED)
        exporter.note(Alarmed(at_ns=7 * MS, job_id="sums-1", term=2, text="the store is away; trying again"))
        exporter.note(RunEnded(at_ns=9 * MS, job_id="sums-1", term=2, how="failed", checkpoint=3, error="KeyError"))
        exporter.note(RunEnded(at_ns=9 * MS, job_id="sums-1", term=3, how="finished", checkpoint=3))
        exporter.close()
        alarm, end = collector.logs
        assert (alarm.time_unix_nano, alarm.severity_text, alarm.event_name) == (7 * MS, "WARN", "clonos.alarm")
        assert alarm.body.string_value == "the store is away; trying again"
        assert attributes(alarm.attributes) == {"clonos.job": "sums", "clonos.job_id": "sums-1", "clonos.term": 2}
        assert (end.severity_text, end.event_name, end.body.string_value) == ("ERROR", "clonos.job_failed", "KeyError")
        runs = {each.span_id for each in collector.named("job sums") if each.status.code == 2}
        assert {alarm.span_id, end.span_id} == runs


def test_a_collector_that_takes_no_logs_is_reported_for_these_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with OtlpCollector() as collector, caplog.at_level(logging.WARNING):
        collector.refused.add("/v1/logs")
        exporter = _exporting(collector.url)
        exporter.note(STARTED)
        for requests in (1, 2):
            exporter.note(Alarmed(at_ns=7 * MS, job_id="sums-1", term=2, text="lost"))
            wait_until(lambda: collector.refusals == requests)  # noqa: B023 called in the same turn
        exporter.note(_recovered("a/0", 140))
        wait_until(lambda: bool(collector.named("recovery")))
        collector.refused.clear()
        exporter.note(Alarmed(at_ns=8 * MS, job_id="sums-1", term=2, text="taken"))
        exporter.close()
        assert [each.body.string_value for each in collector.logs] == ["taken"]
    refusal, again = (each.message for each in caplog.records)
    assert "does not take logs" in refusal
    assert "takes logs again; 2 of them were dropped" in again


def test_alarms_that_later_ones_push_out_are_counted_as_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    alarms = LOG_RECORDS_MAX + 2
    with OtlpCollector() as collector, caplog.at_level(logging.WARNING):
        collector.refused.add("/v1/logs")
        exporter = _exporting(collector.url)
        exporter.note(STARTED)
        for _ in range(alarms):
            exporter.note(Alarmed(at_ns=7 * MS, job_id="sums-1", term=2, text="lost"))
        for sent in (1, 2):  # the logs of a turn are sent before the spans of the next one
            exporter.note(_recovered("a/0", 140))
            wait_until(lambda: len(collector.named("recovery")) == sent)  # noqa: B023 called in the same turn
        collector.refused.clear()
        exporter.note(Alarmed(at_ns=8 * MS, job_id="sums-1", term=2, text="taken"))
        exporter.close()
    assert f"takes logs again; {alarms} of them were dropped" in caplog.records[-1].message


def test_the_variables_of_opentelemetry_name_the_collector_the_service_and_what_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with OtlpCollector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "billing")
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        exporter = _exporting("environment")
        exporter.note(STARTED)
        exporter.close()
        assert collector.resource["service.name"] == "billing"
        assert collector.metrics == {}


def test_a_collector_that_is_down_is_reported_once_and_the_job_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.05")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    exporter = _exporting(f"http://127.0.0.1:{port}")
    with caplog.at_level(logging.WARNING):
        exporter.note(STARTED)
        wait_until(lambda: "does not take" in caplog.text)
        exporter.note(_recovered("a/0", 140))
        exporter.close()
    assert sorted(each.message.split(";")[0].split()[-1] for each in caplog.records) == ["metrics", "spans"]


def test_a_collector_that_does_not_answer_holds_up_the_end_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with OtlpCollector() as collector:
        collector.answers.clear()
        exporter = _exporting(collector.url)
        exporter.note(STARTED)
        assert collector.has_request.wait(scaled(20.0))
        for _ in range(1_000):
            exporter.note(STARTED)
        began_s = time.monotonic()
        exporter.close(0.2)
        assert time.monotonic() - began_s < 5.0  # the exporter itself would wait 10 seconds for an answer
    assert "were not sent" in caplog.text


@pytest.mark.parametrize(
    ("endpoint", "variable", "named"),
    [("localhost:4318", "", "localhost:4318"), ("http://x", "soon", "OTEL_BSP_SCHEDULE_DELAY")],
)
def test_a_wrong_address_and_a_wrong_variable_are_named(
    endpoint: str, variable: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", variable)
    with pytest.raises(JobError, match=named):
        _exporting(endpoint)
