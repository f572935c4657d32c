"""Routes of the jobs of a server: the URLs of a driver, for all jobs."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response

from clonos.io.system.wall_clock import time_text
from clonos.job.last_lines import ANSWER_LINES_MAX
from clonos.job.stack_documents import FLAME_S_MAX
from clonos.server.app.event_stream import JobEvents
from clonos.server.app.forwarding import forward
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.app.slow_work import SlowWork
from clonos.server.job_api.app import JOB, NUMBER_MAX, add_event_stream
from clonos.server.job_api.documents import (
    Accepted,
    CaptureRequest,
    CheckpointList,
    FlameDocument,
    FlameRequest,
    HistoryDocument,
    JobDocument,
    JobList,
    JobSummary,
    KeyDocument,
    KeyRequest,
    KillRequest,
    LogDocument,
    LogLine,
    PeekedRows,
    PeekRequest,
    RecoveryList,
    RescaleRequest,
    SavepointRequest,
    SeriesDocument,
    StatusDocument,
    StopRequest,
    ThreadDumpDocument,
    ThreadsRequest,
)
from clonos.server.job_api.job_source import CAPTURE_S, PEEK_S, RequestDenied
from clonos.server.job_api.key_courses import COURSE_S
from clonos.server.register.transitions import JobEvent, next_status
from clonos.server.supervision.driver_link import TIMEOUT_S, DriverSilent
from clonos.server.supervision.job_folder import JobFolder
from clonos_standby.driver.shown_stacks import ANSWER_S

DOCUMENTS: Final[dict[str, Any]] = {
    "": JobDocument,
    "/status": StatusDocument,
    "/checkpoints": CheckpointList,
    "/recoveries": RecoveryList,
    "/history": HistoryDocument,
    "/metrics": SeriesDocument,
}


LOGS_AT_A_TIME: Final = 2
LOGS_WAITING_MAX: Final = 40
DELETIONS_WAITING_MAX: Final = 20


def add_documents(app: FastAPI, known: KnownJobs) -> None:
    """Adds the routes that read."""
    log_files = SlowWork(LOGS_AT_A_TIME, LOGS_WAITING_MAX, "log files")

    @app.get("/api/v1/jobs")
    async def jobs() -> JobList:
        """Lists the jobs, the latest first."""
        records = await asyncio.to_thread(known.register.jobs)
        return JobList(jobs=[known.summary(record) for record in records])

    for path, model in DOCUMENTS.items():
        _add_document(app, known, path.strip("/"), f"{JOB}{path}", model)

    @app.get(f"{JOB}/logs")
    async def logs(
        job_id: str,
        after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
        limit: Annotated[int, Query(ge=1, le=ANSWER_LINES_MAX)] = ANSWER_LINES_MAX,
    ) -> LogDocument:
        """Returns lines of the log of the latest driver after a line."""
        await asyncio.to_thread(known.record, job_id)
        folder, driver_job = known.supervisor.folder_of(job_id), known.driver_job(job_id)
        if driver_job is not None:
            try:
                status, body = await forward(folder, "GET", f"/jobs/{driver_job}/logs", f"after={after}&limit={limit}")
                if status == 200:
                    return LogDocument.model_validate_json(body)
            except DriverSilent:
                pass  # it has just ended
        return await log_files.run(log_of_file, folder, after, limit)


def add_events(app: FastAPI, known: KnownJobs) -> None:
    """Adds the route of events."""
    add_event_stream(app, known.record, JobEvents(known).of)


def _add_document(app: FastAPI, known: KnownJobs, name: str, path: str, model: Any) -> None:
    async def document(job_id: str, since: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0) -> Response:
        record = await asyncio.to_thread(known.record, job_id)
        driver_job = known.driver_job(job_id)
        if driver_job is not None:
            folder = known.supervisor.folder_of(job_id)
            try:
                query = f"since={since}" if since else ""
                status, body = await forward(folder, "GET", f"/jobs/{driver_job}/{name}".rstrip("/"), query)
                if status == 200:
                    return JSONResponse(known.overlaid(record, name, json.loads(body)))
            except DriverSilent:
                pass  # it has just ended
        return JSONResponse(await asyncio.to_thread(known.last_known, record, name))

    title = name or "job"
    document.__doc__ = f"Returns the {title} of a job: of its living driver, or as the last one reported it."
    app.get(path, response_model=model, name=title)(document)


def add_requests(app: FastAPI, known: KnownJobs) -> None:
    """Adds the routes that change something."""

    @app.post(f"{JOB}/stop", status_code=202)
    async def stop(job_id: str, request: StopRequest) -> Accepted:
        """Requests the end of a job with a final checkpoint. An accepted request outlasts the death of driver and
        server."""
        record = await asyncio.to_thread(known.record, job_id)
        if request.savepoint is not None:
            await _check_savepoints(known, record.id)
        return await _intend(known, job_id, JobEvent.STOP, request.savepoint, request.drain)

    @app.post(f"{JOB}/cancel", status_code=202)
    async def cancel(job_id: str) -> Accepted:
        """Requests the end of a job at once."""
        await asyncio.to_thread(known.record, job_id)
        return await _intend(known, job_id, JobEvent.CANCEL, None, False)

    @app.post(f"{JOB}/savepoint", status_code=202, response_model=Accepted)
    async def savepoint(job_id: str, request: SavepointRequest) -> Response:
        """Requests a savepoint."""
        return await _forwarded(known, job_id, "savepoint", request.model_dump_json().encode())

    @app.post(f"{JOB}/rescale", status_code=202, response_model=Accepted)
    async def rescale(job_id: str, request: RescaleRequest) -> Response:
        """Requests other numbers of tasks of steps, other places of all tasks, or both."""
        return await _forwarded(known, job_id, "rescale", request.model_dump_json().encode())

    @app.post(f"{JOB}/peek", response_model=PeekedRows)
    async def peek(job_id: str, request: PeekRequest) -> Response:
        """Returns the next rows that a step emits."""
        return await _forwarded(known, job_id, "peek", request.model_dump_json().encode())

    @app.post(f"{JOB}/capture", response_model=Accepted)
    async def capture(job_id: str, request: CaptureRequest) -> Response:
        """Writes a record of what a task has done since the last completed checkpoint."""
        return await _forwarded(known, job_id, "capture", request.model_dump_json().encode())

    @app.post(f"{JOB}/key", response_model=KeyDocument)
    async def key(job_id: str, request: KeyRequest) -> Response:
        """Returns what a key has gone through at a step since the last completed checkpoint."""
        return await _forwarded(known, job_id, "key", request.model_dump_json().encode())

    @app.post(f"{JOB}/threads", response_model=ThreadDumpDocument)
    async def threads(job_id: str, request: ThreadsRequest) -> Response:
        """Returns what the threads of the driver and of the slots are at."""
        return await _forwarded(known, job_id, "threads", request.model_dump_json().encode())

    @app.post(f"{JOB}/flame", response_model=FlameDocument)
    async def flame(job_id: str, request: FlameRequest) -> Response:
        """Samples the stack of a task for some seconds, then returns how often each was seen."""
        return await _forwarded(known, job_id, "flame", request.model_dump_json().encode())

    @app.post(f"{JOB}/kill", status_code=202, response_model=Accepted)
    async def kill(job_id: str, request: KillRequest) -> Response:
        """Kills the process of a task, in a job with the option allow_injection."""
        return await _forwarded(known, job_id, "kill", request.model_dump_json().encode())


def add_deletion(app: FastAPI, known: KnownJobs) -> None:
    """Adds the route that removes a job."""
    deletions = SlowWork(1, DELETIONS_WAITING_MAX, "deletions")

    @app.delete(JOB, status_code=200)
    async def delete(job_id: str, files: bool = False) -> JobSummary:
        """Removes a job that has ended from the server; its store, log and relative outputs stay in its folder.

        ``files``: deletes the folder too, with all of them. Savepoints are never deleted.
        """
        record = await asyncio.to_thread(known.record, job_id)
        summary = known.summary(record)
        await asyncio.to_thread(known.register.remove, record.id)
        if files:
            await deletions.run(known.supervisor.folder_of(record.id).remove)
        return summary


async def _intend(known: KnownJobs, job_id: str, event: JobEvent, savepoint: str | None, drain: bool) -> Accepted:
    await asyncio.to_thread(known.register.intend, job_id, event, savepoint, drain)
    known.supervisor.look_at(job_id)
    return Accepted()


async def _forwarded(known: KnownJobs, job_id: str, verb: str, body: bytes) -> Response:
    """Returns the answer of a job's driver. Raises: RequestDenied."""
    record = await asyncio.to_thread(known.record, job_id)
    if next_status(record.status, JobEvent.SAVEPOINT) is None:
        raise RequestDenied("job_status", f"The job {job_id} is {record.status}, which does not allow this.", 409)
    driver_job = known.driver_job(job_id)
    if driver_job is None:
        raise RequestDenied("no_driver", f"The driver of {job_id} is starting: try again in some seconds.", 409)
    path, timeout_s = f"/jobs/{driver_job}/{verb}", TIMEOUT_S + WAITS_S.get(verb, 0.0)
    status, reply = await _ask_driver(known, job_id, "POST", path, body, timeout_s)
    return Response(reply, status, media_type="application/json")


async def _ask_driver(
    known: KnownJobs, job_id: str, method: str, path: str, body: bytes | None = None, timeout_s: float = TIMEOUT_S
) -> tuple[int, bytes]:
    """Returns the status and the body of a driver's answer. Raises: RequestDenied: it has just ended. DriverSilent."""
    try:
        return await forward(known.supervisor.folder_of(job_id), method, path, "", body, timeout_s)
    except DriverSilent as silent:
        if not silent.is_gone:
            raise
        raise RequestDenied(
            "no_driver", f"The driver of {job_id} has just ended: try again in some seconds.", 409
        ) from None


async def _check_savepoints(known: KnownJobs, job_id: str) -> None:
    """Raises: RequestDenied: the driver of the job cannot write savepoints."""
    driver_job = known.driver_job(job_id)
    if driver_job is None:  # it is starting, and gets the request when it answers
        return
    _, body = await _ask_driver(known, job_id, "GET", f"/jobs/{driver_job}/status")
    if json.loads(body).get("savepoints_supported"):
        return
    raise RequestDenied("savepoints_unsupported", "The driver of the job cannot write a savepoint now.", 409)


WAITS_S: Final = {"capture": CAPTURE_S, "key": COURSE_S, "flame": FLAME_S_MAX, "threads": ANSWER_S, "peek": PEEK_S}
"""Seconds for which a driver may wait itself before it answers, by the request."""

LOG_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ([A-Z]+) ([\w.]+): (.*)", re.DOTALL)
TASK_OF_LINE: Final = re.compile(r"\[?([A-Za-z0-9_.+-]+/\d+)(?:\]|:) ")
PRINTED_BYTES_MAX: Final = 64 << 10


def log_of_file(folder: JobFolder, after: int, limit: int) -> LogDocument:
    """Returns lines of the log of a driver that does not live any more: up to ``limit`` after line ``after``.

    The numbers are those of lines in the file. What the process wrote past its log, such as the traceback of a failed
    start, follows as the last lines.
    """
    lines = _log_lines(folder)
    found = [_log_line(number, text) for number, text in enumerate(lines[after : after + limit], after + 1)]
    return LogDocument(lines=found, next=after + len(found))


def _log_lines(folder: JobFolder) -> list[str]:
    found: list[str] = []
    if folder.log.exists():
        for text in folder.log.read_text("utf-8", "replace").splitlines():
            if found and not LOG_LINE.match(text):
                found[-1] += f"\n{text}"  # of the same record: a traceback
            else:
                found.append(text)
    if folder.output.exists():
        found += folder.output.read_bytes()[-PRINTED_BYTES_MAX:].decode("utf-8", "replace").splitlines()
    return found


def _log_line(number: int, text: str) -> LogLine:
    match = LOG_LINE.match(text)
    if match is None:
        return LogLine(number=number, at="", level="INFO", logger="", text=text)
    at = datetime.fromisoformat(match[1]).astimezone()  # the file has local time
    task = TASK_OF_LINE.match(match[5])
    at_text = time_text(int(at.timestamp()) * 1_000_000_000 + int(match[2]) * 1_000_000)
    return LogLine(
        number=number, at=at_text, level=match[3], logger=match[4], text=match[5], task=task[1] if task else None
    )
