"""Exporter of spans and metrics over OTLP/HTTP, for jobs with the option ``telemetry``.

One thread reads the counters each second, and another one sends. The job waits for neither: what the collector does not
take is given up and counted, and the end of the job waits ``CLOSE_S`` at most.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from clonos.core.model.errors import JobError
from clonos.core.wire.trace_messages import TracedStep
from clonos.io.system.wall_clock import wall_ns
from clonos.job.prometheus.collector import JobCollector
from clonos.job.run_history.history_events import Event
from clonos.job.telemetry.otlp_metrics import metrics_data
from clonos.job.telemetry.spans import HistorySpans, Span, span_id, trace_id
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
        self._resource, self._scope = _resource(job, job_id), InstrumentationScope("clonos", version_of("clonos"))
        self._collector = JobCollector(status, checkpoints)
        self._began_ns = wall_ns()
        self._dropped, self._is_failing = 0, False
        self._closing = threading.Event()
        self._traces = None if _is_off("TRACES") else OTLPSpanExporter(base and f"{base}/v1/traces")
        self._metrics = None if _is_off("METRICS") else OTLPMetricExporter(base and f"{base}/v1/metrics")
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
            logger.warning("the last spans and metrics of the job were not sent: the collector did not answer")
        for exporter in (self._traces, self._metrics):
            if exporter is not None:
                exporter.shutdown()  # ends the retries of a thread that is still there

    # ------------------------------------------------------------------ the threads

    def _sample_on(self) -> None:
        while not self._closing.wait(SAMPLE_EVERY_S):
            self._collector.sample()

    def _send_on(self) -> None:
        own = threading.get_ident()
        library = [logging.getLogger(f"{LIBRARY_LOGGER}.{name}") for name in ("trace_exporter", "metric_exporter")]

        def is_of_others(record: logging.LogRecord) -> bool:
            return record.thread != own

        for each in library:  # which report each attempt; this exporter reports the first that fails
            each.addFilter(is_of_others)
        try:
            metrics_due_s = time.monotonic() + self._metrics_every_s
            is_last = False
            while not is_last:
                is_last = self._closing.wait(min(self._spans_every_s, max(0.0, metrics_due_s - time.monotonic())))
                self._send_spans()
                if is_last or time.monotonic() >= metrics_due_s:
                    metrics_due_s = time.monotonic() + self._metrics_every_s
                    self._send_metrics()
        finally:
            for each in library:
                each.removeFilter(is_of_others)

    def _send_spans(self) -> None:
        while self._events:
            for span in self._spans.add(self._events.popleft()):
                self._add(span)
        while self._steps:
            for span in self._spans.traced(self._steps.popleft()):
                self._add(span)
        while self._waiting and self._traces is not None:
            count = min(len(self._waiting), SPANS_A_REQUEST_MAX)
            spans = [self._readable(self._waiting.popleft()) for _ in range(count)]
            is_sent = self._traces.export(spans) is SpanExportResult.SUCCESS
            self._report(is_sent, count)
            if not is_sent:
                return
        self._waiting.clear()

    def _add(self, span: Span) -> None:
        self._dropped += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(span)

    def _send_metrics(self) -> None:
        if self._metrics is None:
            return
        families = self._collector.collect()
        data = metrics_data(families, self._resource, self._scope, self._began_ns, wall_ns())
        self._report(self._metrics.export(data) is MetricExportResult.SUCCESS, 0)

    def _report(self, is_sent: bool, spans: int) -> None:
        """Says once that the collector does not take anything, and once that it does again."""
        if not is_sent:
            self._dropped += spans
            if not self._is_failing:
                logger.warning("the collector of the option telemetry does not take spans and metrics; the job goes on")
        elif self._is_failing:
            logger.warning("the collector takes spans and metrics again; %d spans were dropped", self._dropped)
            self._dropped = 0
        self._is_failing = not is_sent

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
