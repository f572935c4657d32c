"""Endpoint of a driver for Prometheus, on a port of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import start_http_server

from clonos.core.model.errors import EnvironmentFault
from clonos.job.prometheus.collector import JobCollector
from clonos.status import CheckpointState, Status

logger = logging.getLogger("clonos.run")

SAMPLE_EVERY_S: Final = 1.0


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
            self._server, self._thread = start_http_server(port, host, registry)
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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
