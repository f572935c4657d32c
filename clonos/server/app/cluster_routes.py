"""Routes about the server as a whole: its machine, its slots, and its metrics."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from typing import Final

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from pydantic import BaseModel

import clonos
from clonos.job.prometheus.exposition import CONTENT_TYPE, merged
from clonos.server.app.forwarding import forward, metrics_of
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.job_api.documents import SlotDocument, StatusDocument, time_text
from clonos.server.job_status import JobStatus
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
    """Numbers of the server now. ``restarts``: of drivers, of all jobs that the register has."""

    jobs: dict[str, int]
    drivers: int
    restarts: int
    load_1_min: float


class JobSlot(SlotDocument):
    """One living slot, and its job."""

    job: str


class SlotList(BaseModel):
    """Slots of all living drivers."""

    slots: list[JobSlot]


def add_cluster(app: FastAPI, known: KnownJobs, started_ns: int, submission_allowed: bool) -> None:
    """Adds the routes. ``started_ns``: start of the server."""

    async def metrics_now() -> ClusterMetrics:
        records = await asyncio.to_thread(known.register.jobs)
        counts = Counter(record.status.value for record in records)
        return ClusterMetrics(
            jobs={status.value: counts[status.value] for status in JobStatus},
            drivers=sum(known.driver_job(record.id) is not None for record in records),
            restarts=sum(record.restarts for record in records),
            load_1_min=os.getloadavg()[0],
        )

    @app.get("/api/v1/cluster")
    async def cluster() -> ClusterDocument:
        """Returns the server, its machine and the number of its jobs."""
        now = await metrics_now()
        return ClusterDocument(
            version=clonos.__version__,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=time_text(started_ns),
            cores=os.cpu_count() or 1,
            submission_allowed=submission_allowed,
            jobs=now.jobs,
            drivers=now.drivers,
        )

    @app.get("/api/v1/cluster/metrics")
    async def cluster_metrics() -> ClusterMetrics:
        """Returns the numbers of the server now."""
        return await metrics_now()

    @app.get("/api/v1/slots")
    async def slots() -> SlotList:
        """Lists the slots of all living drivers."""
        records = await asyncio.to_thread(known.register.jobs)
        found: list[JobSlot] = []
        for record in records:
            driver_job = known.driver_job(record.id)
            if driver_job is None:
                continue
            try:
                folder = known.supervisor.folder_of(record.id)
                status, body = await forward(folder, "GET", f"/jobs/{driver_job}/status")
            except DriverSilent:
                continue
            if status == 200:
                document = StatusDocument.model_validate_json(body)
                found += [JobSlot(**slot.model_dump(), job=record.id) for slot in document.slots]
        return SlotList(slots=found)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        """Returns the numbers of the server and of all jobs with a living driver in the text format of Prometheus."""
        own = _exposition(await metrics_now()).decode()
        records = await asyncio.to_thread(known.register.jobs)
        folders = [known.supervisor.folder_of(each.id) for each in records if known.driver_job(each.id) is not None]
        texts = await asyncio.gather(*map(metrics_of, folders))
        return Response(await asyncio.to_thread(merged, [own, *texts]), media_type=CONTENT_TYPE)


def _exposition(now: ClusterMetrics) -> bytes:
    registry = CollectorRegistry()
    jobs = Gauge("jobs", "Jobs by status", ["status"], namespace=NAMESPACE, registry=registry)
    for status, count in now.jobs.items():
        jobs.labels(status).set(count)
    Gauge("drivers", "Drivers that answer", namespace=NAMESPACE, registry=registry).set(now.drivers)
    Gauge("driver_restarts", "Restarts of drivers", namespace=NAMESPACE, registry=registry).set(now.restarts)
    return generate_latest(registry)
