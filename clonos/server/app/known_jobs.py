"""Knowledge of the server of a job: its record, the latest report of its driver, and documents of earlier drivers.

The register decides over a job's status. A living driver knows its checkpoint and its recoveries sooner.
"""

from __future__ import annotations

import json
from typing import Any, Final

from clonos.connectors.secrets import masked
from clonos.io.system.wall_clock import time_text
from clonos.job.job_status import JobStatus
from clonos.server.job_api.documents import CheckpointList, JobSummary, RecoveryList, SeriesDocument
from clonos.server.job_api.job_source import RequestDenied
from clonos.server.register.job_record import JobRecord
from clonos.server.register.register import JobRegister, JobUnknown
from clonos.server.supervision.supervisor import Supervisor

ID_CHARACTERS_MAX: Final = 100
REPORTED: Final = (JobStatus.RUNNING, JobStatus.RECOVERING, JobStatus.FAILING)
"""Statuses between which a driver's report moves the job, before the register has it."""


class KnownJobs:
    """Jobs of a server, for its application. Methods may wait for the register: call them in a thread of their own."""

    def __init__(self, register: JobRegister, supervisor: Supervisor) -> None:
        self.register, self.supervisor = register, supervisor

    def record(self, job_id: str) -> JobRecord:
        """Returns the record of a job. Raises: RequestDenied: there is none."""
        if not job_id.isascii() or not job_id.isprintable() or len(job_id) > ID_CHARACTERS_MAX:
            raise RequestDenied("job_not_found", f"There is no job {job_id!r:.100} here.", 404)
        try:
            return self.register.job(job_id)
        except JobUnknown:
            raise RequestDenied("job_not_found", f"There is no job {job_id!r:.100} here.", 404) from None

    def summary(self, record: JobRecord) -> JobSummary:
        """Returns the summary of a job."""
        live = self.supervisor.summary(record.id) or {}
        status = record.status
        if status in REPORTED and live.get("status") in REPORTED:
            status = JobStatus(live["status"])
        return JobSummary(
            id=record.id,
            name=record.name,
            status=status,
            started_at=_time(record.started_at_ms or record.created_at_ms),
            ended_at=None if record.ended_at_ms is None else _time(record.ended_at_ms),
            recoveries=record.recoveries + int(live.get("recoveries", 0)),
            restarts=record.restarts,
            checkpoint=max(record.checkpoint, int(live.get("checkpoint", 0))),
            generation=max(record.generation, int(live.get("generation", 0))),
            error=record.error,
            stopped=record.stopped,
        )

    def driver_job(self, job_id: str) -> str | None:
        """Returns the id by which a living driver names the job; None if no driver answers."""
        live = self.supervisor.summary(job_id)
        return None if live is None else str(live["id"])

    def last_known(self, record: JobRecord, name: str) -> dict[str, Any]:
        """Returns a document of a job as its driver last reported it; an empty one if it reported none.

        ``name``: "" for the job itself, else "status", "checkpoints", "recoveries", "history" or "metrics".
        """
        found = self.register.document(record.id, name)
        document: dict[str, Any] = json.loads(found) if found is not None else _empty(name, record)
        return self.overlaid(record, name, document)

    def overlaid(self, record: JobRecord, name: str, document: dict[str, Any]) -> dict[str, Any]:
        """Returns a document of a driver with the summary that the server has."""
        summary = self.summary(record).model_dump(mode="json")
        if name == "":
            return {**document, **summary}
        if name == "status":
            return {**document, "job": summary}
        return document


def _empty(name: str, record: JobRecord) -> dict[str, Any]:
    match name:
        case "":
            plan: dict[str, Any] = {"steps": [], "vertices": [], "edges": []}
            return {"plan": plan, "options": {key: masked(text) for key, text in record.options.items()}, "outputs": []}
        case "status":
            lists: dict[str, Any] = {
                key: [] for key in ("tasks", "slots", "edges", "recoveries", "savepoints", "scaling", "skew", "alarms")
            }
            at = _time(record.ended_at_ms or record.created_at_ms)
            return {
                "at": at,
                **lists,
                "rescale": None,
                "totals": {},
                "injection_allowed": False,
                "savepoints_supported": False,
            }
        case "history":
            return {"lines": []}
        case "checkpoints":
            return CheckpointList(checkpoints=[]).model_dump()
        case "recoveries":
            return RecoveryList(recoveries=[]).model_dump()
        case _:
            return SeriesDocument(series={}).model_dump()


def _time(at_ms: int) -> str:
    return time_text(at_ms * 1_000_000)
