"""Routes about the server as a whole: its machine, its slots, and its metrics."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from pydantic import BaseModel

import clonos
from clonos.io.system.wall_clock import time_text
from clonos.job.job_status import JobStatus
from clonos.job.prometheus.exposition import CONTENT_TYPE, merged
from clonos.server.app.forwarding import forward, metrics_of
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.job_api.documents import SlotDocument, StatusDocument
from clonos.server.register.job_record import JobRecord
from clonos.server.supervision.driver_link import DriverSilent

NAMESPACE: Final = "clonos_server"


class ClusterDocument(BaseModel):
    """The server and its machine. ``jobs``: their number by status."""

    version: str
    host: str
    pid: int
    started_at: str
    cores: int
    submission_allowed: bool
    jobs: dict[str, int]
    drivers: int


class ClusterMetrics(BaseModel):
    """Numbers of the server now.

    ``restarts``: of drivers, of all jobs that the register has. ``slots``: living slots of all drivers that answer,
    ``slots_with_tasks``: those of them that host a task. ``busy_ratio``, ``backpressure_ratio``: means over all tasks,
    from 0 to 1; null if there are none. ``cores``: of the server's machine, whose load is ``load_1_min``.
    """

    jobs: dict[str, int]
    drivers: int
    restarts: int
    slots: int
    slots_with_tasks: int
    slot_memory_bytes: int
    tasks: int
    busy_ratio: float | None
    backpressure_ratio: float | None
    cores: int
    load_1_min: float


class JobSlot(SlotDocument):
    """One living slot, and its job."""

    job: str


class SlotList(BaseModel):
    """Slots of all living drivers."""

    slots: list[JobSlot]


def add_cluster(app: FastAPI, known: KnownJobs, started_ns: int, submission_allowed: bool) -> None:
    """Adds the routes. ``started_ns``: start of the server."""

    @app.get("/api/v1/cluster")
    async def cluster() -> ClusterDocument:
        """Returns the server, its machine and the number of its jobs."""
        records = await asyncio.to_thread(known.register.jobs)
        return ClusterDocument(
            version=clonos.__version__,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=time_text(started_ns),
            cores=os.cpu_count() or 1,
            submission_allowed=submission_allowed,
            jobs=_by_status(records),
            drivers=_drivers(known, records),
        )

    @app.get("/api/v1/cluster/metrics")
    async def cluster_metrics() -> ClusterMetrics:
        """Returns the numbers of the server now."""
        records = await asyncio.to_thread(known.register.jobs)
        return cluster_numbers(known, records, await _statuses(known, records))

    @app.get("/api/v1/slots")
    async def slots() -> SlotList:
        """Lists the slots of all living drivers."""
        records = await asyncio.to_thread(known.register.jobs)
        statuses = await _statuses(known, records)
        return SlotList(
            slots=[JobSlot(**slot.model_dump(), job=job) for job, status in statuses.items() for slot in status.slots]
        )

    @app.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        """Returns the numbers of the server and of all jobs with a living driver in the text format of Prometheus."""
        records = await asyncio.to_thread(known.register.jobs)
        own = _exposition(known, records).decode()
        living = [record.id for record in records if known.driver_job(record.id) is not None]
        texts = await asyncio.gather(*(metrics_of(known.supervisor.folder_of(job)) for job in living))
        return Response(
            await asyncio.to_thread(merged, own, dict(zip(living, texts, strict=True))), media_type=CONTENT_TYPE
        )


def cluster_numbers(
    known: KnownJobs, records: Sequence[JobRecord], statuses: Mapping[str, StatusDocument]
) -> ClusterMetrics:
    """Returns the numbers of a server. ``statuses``: of the jobs whose drivers answer, by job."""
    slots = [slot for status in statuses.values() for slot in status.slots]
    tasks = [task for status in statuses.values() for task in status.tasks]
    return ClusterMetrics(
        jobs=_by_status(records),
        drivers=_drivers(known, records),
        restarts=sum(record.restarts for record in records),
        slots=len(slots),
        slots_with_tasks=sum(len({task.slot for task in status.tasks} - {""}) for status in statuses.values()),
        slot_memory_bytes=sum(slot.memory_bytes for slot in slots),
        tasks=len(tasks),
        busy_ratio=_mean([task.rates.busy_ratio for task in tasks]),
        backpressure_ratio=_mean([task.rates.backpressure_ratio or 0.0 for task in tasks]),
        cores=os.cpu_count() or 1,
        load_1_min=os.getloadavg()[0],
    )


def _by_status(records: Sequence[JobRecord]) -> dict[str, int]:
    counts = Counter(record.status.value for record in records)
    return {status.value: counts[status.value] for status in JobStatus}


def _drivers(known: KnownJobs, records: Sequence[JobRecord]) -> int:
    return sum(known.driver_job(record.id) is not None for record in records)


def _mean(ratios: Sequence[float]) -> float | None:
    return fmean(ratios) if ratios else None


async def _statuses(known: KnownJobs, records: Sequence[JobRecord]) -> dict[str, StatusDocument]:
    """Returns the statuses of the jobs whose drivers answer, by job."""
    found = await asyncio.gather(*(_status(known, record.id) for record in records))
    return {record.id: status for record, status in zip(records, found, strict=True) if status is not None}


async def _status(known: KnownJobs, job_id: str) -> StatusDocument | None:
    driver_job = known.driver_job(job_id)
    if driver_job is None:
        return None
    try:
        code, body = await forward(known.supervisor.folder_of(job_id), "GET", f"/jobs/{driver_job}/status")
    except DriverSilent:
        return None
    return StatusDocument.model_validate_json(body) if code == 200 else None


def _exposition(known: KnownJobs, records: Sequence[JobRecord]) -> bytes:
    registry = CollectorRegistry()
    jobs = Gauge("jobs", "Jobs by status", ["status"], namespace=NAMESPACE, registry=registry)
    for status, count in _by_status(records).items():
        jobs.labels(status).set(count)
    Gauge("drivers", "Drivers that answer", namespace=NAMESPACE, registry=registry).set(_drivers(known, records))
    restarts = sum(record.restarts for record in records)
    Gauge("driver_restarts", "Restarts of drivers", namespace=NAMESPACE, registry=registry).set(restarts)
    return generate_latest(registry)
