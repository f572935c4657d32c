"""Endpoint of a driver for Prometheus, on a port of its own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from socketserver import TCPServer
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from clonos.core.model.errors import EnvironmentFault
from clonos.io.net.admitting_threads import AdmittingThreads
from clonos.io.net.connection_admission import AdmissionLimits, Owed
from clonos.job.prometheus.collector import JobCollector
from clonos.status import CheckpointState, Status

logger = logging.getLogger("clonos.run")

SAMPLE_EVERY_S: Final = 1.0
CONNECTIONS_MAX: Final = 32
SILENCE_S: Final = 10.0
"""Seconds for which a client may send nothing."""


class MetricsPortTaken(EnvironmentFault):
    """No endpoint can listen at the address."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"metrics cannot be served at {self.address}: {self.reason}. Name another port with metrics_port."


class MetricsEndpoint:
    """Endpoint at a host and port, which serves when the constructor returns. Between two scrapes it reads the
    counters each second, so that it misses little of what a task counts before it dies."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Callable[[], Status],
        checkpoints: Callable[[], tuple[CheckpointState, ...]],
    ) -> None:
        """Starts to serve; port 0 takes any free one. Raises: MetricsPortTaken."""
        self._collector = JobCollector(status, checkpoints)
        registry = CollectorRegistry()
        registry.register(self._collector)
        try:
            self._server = _Server(host, port, registry)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise MetricsPortTaken(f"{host}:{port}", reason) from None
        self._is_closed = threading.Event()
        self._sampler = threading.Thread(target=self._sample_on, name="metrics sampler", daemon=True)
        self._sampler.start()
        logger.info("metrics for Prometheus: %s", self.url)

    @property
    def url(self) -> str:
        """URL that Prometheus scrapes."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def _sample_on(self) -> None:
        while not self._is_closed.wait(SAMPLE_EVERY_S):
            self._collector.sample()

    def close(self) -> None:
        """Ends the threads and closes the port."""
        self._is_closed.set()
        self._sampler.join()
        self._server.close()


class _Server(AdmittingThreads, WSGIServer):
    """Server of metrics. It serves from its construction until ``close``."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        """Opens the port. Raises: OSError."""
        self.begin(AdmissionLimits(CONNECTIONS_MAX, CONNECTIONS_MAX), "metrics request")
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)
        self.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="metrics", daemon=True)
        self._thread.start()

    def server_bind(self) -> None:
        """Binds without the name lookup of the base class."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "clonos", int(self.server_address[1])
        self.setup_environ()

    def close(self) -> None:
        """Closes the port and all connections."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        self.end_connections()


class _Handler(WSGIRequestHandler):
    """One request."""

    server: _Server
    timeout = SILENCE_S

    def parse_request(self) -> bool:
        """Parses the head of a request."""
        is_right = super().parse_request()
        self.server.owes(self.connection, Owed.NOTHING)
        return is_right

    def log_message(self, format: str, *arguments: Any) -> None:
        """Logs nothing."""
