"""Exporters of a running job: a file with one JSON line per second, an endpoint for Prometheus, spans, metrics and
alarms for OpenTelemetry, and events of OpenLineage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from clonos.api.graph import JobGraph
from clonos.config import JobSettings
from clonos.core.model.errors import EnvironmentFault, JobError, needing_extra
from clonos.core.wire.trace_messages import TracedStep
from clonos.io.system.wall_clock import wall_ns
from clonos.job.run_history.history_events import Event
from clonos.status import CheckpointState, Status, late_by_step

INTERVAL_S = 1.0


class MetricsFile:
    """Writer of the metrics file; writes a last line when it is closed."""

    def __init__(self, path: Path, status: Callable[[], Status]) -> None:
        """Opens the file and starts the thread that writes it. Raises: EnvironmentFault when the file cannot be
        written."""
        self._status = status
        try:
            self._file = open(path, "ab")  # noqa: SIM115 closed with this object
        except OSError as error:
            raise EnvironmentFault(
                f"the metrics file {path} cannot be written: {error.strerror}. Set another file with metrics=."
            ) from None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="metrics", daemon=True)
        self._thread.start()

    def _write_on(self) -> None:
        while not self._over.wait(INTERVAL_S):
            self._write_line()

    def _write_line(self) -> None:
        status = self._status()
        line = {
            "at_ns": wall_ns(),
            "phase": status.phase.value,
            "checkpoint": status.checkpoint,
            "generation": status.generation,
            "slots": len(status.slots),
            "recoveries": len(status.recoveries),
            "totals": status.totals,
            "late_records": late_by_step(status.tasks),
            "tasks": [
                {"task": t.name, "incarnation": t.incarnation, "phase": t.phase, **t.counters} for t in status.tasks
            ],
        }
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Stops the thread, writes the last line and closes the file."""
        self._over.set()
        self._thread.join()
        self._write_line()
        self._file.close()


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """Job as its exporters see it. ``listen``: calls a function with each event of the history. ``trace``: calls a
    function with the steps that traced records have passed, in the coordinator's thread: it must not wait."""

    graph: JobGraph
    job_id: str
    status: Callable[[], Status]
    checkpoints: Callable[[], tuple[CheckpointState, ...]]
    listen: Callable[[Callable[[Event], None]], None]
    trace: Callable[[Callable[[tuple[TracedStep, ...]], None]], None]


class Exporter(Protocol):
    """Exporter of what happens in a running job."""

    def close(self) -> None:
        """Ends it."""


def start_exporters(settings: JobSettings, job: ObservedJob) -> list[Exporter]:
    """Starts what the options ask for.

    Raises: EnvironmentFault when the file cannot be written, the port is taken or a library is missing; JobError when
    an address is not a URL, or records are to be traced for no collector.
    """
    run = settings.run
    if settings.core.trace_every_ms and not run.telemetry:
        raise JobError(
            f"{settings.origins['trace_every']} sets trace_every, which traces records for OpenTelemetry, but there is"
            ' no collector. Set telemetry to the URL of one, such as "http://localhost:4318".'
        )
    exporters: list[Exporter] = []
    try:
        if run.metrics:
            exporters.append(MetricsFile(Path(run.metrics), job.status))
        if run.metrics_port is not None:
            exporters.append(_endpoint(run.metrics_host, run.metrics_port, job))
        if run.telemetry:
            exporters.append(_telemetry(run.telemetry, job))
        if run.lineage:
            exporters.append(_lineage(run.lineage, job))
    except BaseException:
        for exporter in exporters:
            exporter.close()
        raise
    return exporters


def _endpoint(host: str, port: int, job: ObservedJob) -> Exporter:
    with needing_extra("metrics_port", "server"):
        from clonos.job.prometheus.endpoint import MetricsEndpoint
    return MetricsEndpoint(host, port, job.status, job.checkpoints)


def _telemetry(endpoint: str, job: ObservedJob) -> Exporter:
    with needing_extra("telemetry", "otel"):
        from clonos.job.telemetry.otlp_exporter import OtlpExporter
    exporter = OtlpExporter(endpoint, job.graph.name, job.job_id, job.status, job.checkpoints)
    job.listen(exporter.note)
    job.trace(exporter.note_steps)
    return exporter


def _lineage(target: str, job: ObservedJob) -> Exporter:
    from clonos.job.lineage.lineage_writer import LineageWriter  # late: few jobs need its client

    writer = LineageWriter(target, job.graph)
    job.listen(writer.note)
    return writer
