"""Exporter of spans, metrics and alarms over OTLP/HTTP, for jobs with the option ``telemetry``.

One thread reads the counters each second, and another one sends. The job waits for neither: what the collector does not
take is given up and counted, and the end of the job waits ``CLOSE_S`` at most.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from clonos.core.model.errors import JobError
from clonos.core.wire.trace_messages import TracedStep
from clonos.io.system.wall_clock import wall_ns
from clonos.job.prometheus.collector import JobCollector
from clonos.job.run_history.history_events import Alarmed, Event, RunEnded
from clonos.job.telemetry.otlp_metrics import metrics_data
from clonos.job.telemetry.spans import HistorySpans, Span, run_key, span_id, trace_id
from clonos.status import CheckpointState
from clonos.status import Status as JobStatus
from clonos_standby.launch_spec import version_of

logger = logging.getLogger("clonos.run")

FROM_ENVIRONMENT: Final = "environment"
"""Value of the option for the endpoint that ``OTEL_EXPORTER_OTLP_ENDPOINT`` names."""

SAMPLE_EVERY_S: Final = 1.0
CLOSE_S: Final = 3.0
"""Longest time that the end of a job waits for the last export."""

SPANS_A_REQUEST_MAX: Final = 512
LIBRARY_LOGGER: Final = "opentelemetry.exporter.otlp.proto.http"
LIBRARY_MODULES: Final = ("trace_exporter", "metric_exporter", "_log_exporter")
ALARM: Final = "clonos.alarm"
JOB_FAILED: Final = "clonos.job_failed"
LOG_RECORDS_MAX: Final = 512
"""Alarms that wait for the next export at most; further ones push out the oldest."""
MILLISECONDS_PER_S: Final = 1e3


class OtlpExporter:
    """Exporter of one driver. ``note`` may be called in any thread, and never waits."""

    def __init__(
        self,
        endpoint: str,
        job: str,
        job_id: str,
        status: Callable[[], JobStatus],
        checkpoints: Callable[[], tuple[CheckpointState, ...]],
    ) -> None:
        """Starts the threads. ``endpoint``: URL of the collector, or ``environment``.

        Raises: JobError: it is not a URL, or a variable of OpenTelemetry has no number.
        """
        base = _base(endpoint)
        self._spans_every_s = _milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5_000) / MILLISECONDS_PER_S
        self._metrics_every_s = _milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000) / MILLISECONDS_PER_S
        self._spans = HistorySpans(job)
        self._events: deque[Event] = deque()
        spans_max = _milliseconds("OTEL_BSP_MAX_QUEUE_SIZE", 2_048)
        self._waiting: deque[Span] = deque(maxlen=spans_max)
        self._steps: deque[TracedStep] = deque(maxlen=spans_max)
        self._records: deque[ReadableLogRecord] = deque(maxlen=LOG_RECORDS_MAX)
        self._job = job
        self._resource, self._scope = _resource(job, job_id), InstrumentationScope("clonos", version_of("clonos"))
        self._collector = JobCollector(status, checkpoints)
        self._began_ns = wall_ns()
        self._dropped = Counter[str]()
        self._failing: set[str] = set()  # signals that the collector does not take
        self._closing = threading.Event()
        self._traces = None if _is_off("TRACES") else OTLPSpanExporter(base and f"{base}/v1/traces")
        self._metrics = None if _is_off("METRICS") else OTLPMetricExporter(base and f"{base}/v1/metrics")
        self._logs = None if _is_off("LOGS") else OTLPLogExporter(base and f"{base}/v1/logs")
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._sample_on, "telemetry sampler"), (self._send_on, "telemetry"))
        ]
        for thread in self._threads:
            thread.start()

    def note(self, event: Event) -> None:
        """Takes an event of the history."""
        self._events.append(event)

    def note_steps(self, steps: tuple[TracedStep, ...]) -> None:
        """Takes steps that traced records have passed."""
        self._steps.extend(steps)

    def close(self, limit_s: float = CLOSE_S) -> None:
        """Sends what is left, for at most ``limit_s`` seconds, and ends the threads."""
        deadline_s = time.monotonic() + limit_s
        self._closing.set()
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        if self._threads[-1].is_alive():
            logger.warning("the last spans, metrics and alarms of the job were not sent: the collector did not answer")
        for exporter in (self._traces, self._metrics, self._logs):
            if exporter is not None:
                exporter.shutdown()  # ends the retries of a thread that is still there

    # ------------------------------------------------------------------ the threads

    def _sample_on(self) -> None:
        while not self._closing.wait(SAMPLE_EVERY_S):
            self._collector.sample()

    def _send_on(self) -> None:
        own = threading.get_ident()
        library = [logging.getLogger(f"{LIBRARY_LOGGER}.{name}") for name in LIBRARY_MODULES]

        def is_of_others(record: logging.LogRecord) -> bool:
            return record.thread != own

        for each in library:  # which report each attempt; this exporter reports the first that fails
            each.addFilter(is_of_others)
        try:
            metrics_due_s = time.monotonic() + self._metrics_every_s
            is_last = False
            while not is_last:
                is_last = self._closing.wait(min(self._spans_every_s, max(0.0, metrics_due_s - time.monotonic())))
                self._take_events()
                self._send_spans()
                self._send_logs()
                if is_last or time.monotonic() >= metrics_due_s:
                    metrics_due_s = time.monotonic() + self._metrics_every_s
                    self._send_metrics()
        finally:
            for each in library:
                each.removeFilter(is_of_others)

    def _take_events(self) -> None:
        while self._events:
            event = self._events.popleft()
            for span in self._spans.add(event):
                self._add(span)
            if (record := _log_record(self._job, event)) is not None:
                self._dropped["logs"] += len(self._records) == self._records.maxlen
                self._records.append(ReadableLogRecord(record, self._resource, self._scope))
        while self._steps:
            for span in self._spans.traced(self._steps.popleft()):
                self._add(span)

    def _send_spans(self) -> None:
        while self._waiting and self._traces is not None:
            count = min(len(self._waiting), SPANS_A_REQUEST_MAX)
            spans = [self._readable(self._waiting.popleft()) for _ in range(count)]
            is_sent = self._traces.export(spans) is SpanExportResult.SUCCESS
            self._report("spans", is_sent, count)
            if not is_sent:
                return
        self._waiting.clear()

    def _add(self, span: Span) -> None:
        self._dropped["spans"] += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(span)

    def _send_metrics(self) -> None:
        if self._metrics is None:
            return
        families = self._collector.collect()
        data = metrics_data(families, self._resource, self._scope, self._began_ns, wall_ns())
        self._report("metrics", self._metrics.export(data) is MetricExportResult.SUCCESS, 1)

    def _send_logs(self) -> None:
        if self._logs is not None and self._records:
            is_sent = self._logs.export([*self._records]) is LogRecordExportResult.SUCCESS
            self._report("logs", is_sent, len(self._records))
        self._records.clear()

    def _report(self, signal: str, is_sent: bool, count: int) -> None:
        """Says once that the collector does not take a signal, and once that it does again. ``count``: what is dropped
        if it was not sent."""
        if not is_sent:
            self._dropped[signal] += count
            if signal not in self._failing:
                self._failing.add(signal)
                logger.warning("the collector of the option telemetry does not take %s; the job goes on", signal)
        elif signal in self._failing:
            self._failing.remove(signal)
            dropped = self._dropped.pop(signal, 0)
            logger.warning("the collector takes %s again; %d of them were dropped", signal, dropped)

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=_context(span.trace, span.key),
            parent=_context(span.trace, span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            links=[Link(_context(span.link, span.link))] if span.link else (),
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.began_ns,
            end_time=span.ended_ns,
            instrumentation_scope=self._scope,
        )


def _context(trace: str, key: str) -> SpanContext:
    return SpanContext(trace_id(trace), span_id(key), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _log_record(job: str, event: Event) -> LogRecord | None:
    """Returns the record of an event of the history, in the span of the run; None if it is no alarm."""
    match event:
        case Alarmed():
            name, severity, text = ALARM, SeverityNumber.WARN, event.text
        case RunEnded() if event.error:
            name, severity, text = JOB_FAILED, SeverityNumber.ERROR, event.error
        case _:
            return None
    run = run_key(event)
    return LogRecord(
        timestamp=event.at_ns,
        observed_timestamp=event.at_ns,
        context=set_span_in_context(NonRecordingSpan(_context(run, run))),
        severity_number=severity,
        severity_text=severity.name,
        body=text,
        attributes={"clonos.job": job, "clonos.job_id": event.job_id, "clonos.term": event.term},
        event_name=name,
    )


def _base(endpoint: str) -> str | None:
    """Returns the URL below which the paths of OTLP are; None if OpenTelemetry is to take it from its variables."""
    if endpoint == FROM_ENVIRONMENT:
        return None
    if not endpoint.startswith(("http://", "https://")):
        raise JobError(
            f"telemetry={endpoint!r} is not a URL of a collector of OTLP over HTTP. Set one such as"
            f' "http://localhost:4318", or "{FROM_ENVIRONMENT}" for the variables of OpenTelemetry.'
        )
    return endpoint.rstrip("/")


def _resource(job: str, job_id: str) -> Resource:
    """Returns what the variables of OpenTelemetry say, with the name of the job if they do not name the service."""
    found = Resource.create()
    name = str(found.attributes.get(SERVICE_NAME, ""))
    own = {SERVICE_INSTANCE_ID: job_id} | ({SERVICE_NAME: job} if name.startswith("unknown_service") else {})
    return found.merge(Resource(own))


def _is_off(signal: str) -> bool:
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return is_disabled or os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none"


def _milliseconds(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not int(text):
        raise JobError(f"{variable} is {text!r}, but a whole number above 0 is expected. Correct or unset it.")
    return int(text)
