"""A collector of OTLP over HTTP that decodes what it gets with the messages of the protocol."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpCollector:
    """A collector while it is entered. ``answers``: until it is cleared; then requests wait for ``close``."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: dict[str, Metric] = {}
        self.logs: list[LogRecord] = []
        self.resource: dict[str, str] = {}
        self.headers: list[dict[str, str]] = []
        self.answers, self.has_request = threading.Event(), threading.Event()
        self.answers.set()
        self.refused: set[str] = set()  # paths with the status 404
        self.refusals = 0
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def attributes_of(self, span: Span) -> dict[str, Any]:
        return attributes(span.attributes)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Takes a request; returns the status of the answer."""
        self.has_request.set()
        self.headers.append(headers)
        if not self.answers.is_set():
            self.answers.wait()
        elif path in self.refused:
            self.refusals += 1
            return 404
        elif path == "/v1/traces":
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource |= attributes(traced.resource.attributes)
                self.spans += [span for scope in traced.scope_spans for span in scope.spans]
        elif path == "/v1/logs":
            for logged in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.logs += [record for scope in logged.scope_logs for record in scope.log_records]
        elif path == "/v1/metrics":
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {metric.name: metric for scope in measured.scope_metrics for metric in scope.metrics}
        return 200

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.answers.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def attributes(pairs: Any) -> dict[str, Any]:
    """Returns attributes of OTLP as a dict."""
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in pairs}


class _Server(ThreadingHTTPServer):
    def __init__(self, collector: OtlpCollector) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.collector = collector


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.collector.take(self.path, dict(self.headers), body))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass
