"""Application of the API of one job: its routes, its errors, and the page (docs/console.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import clonos
from clonos.job.last_lines import ANSWER_LINES_MAX
from clonos.job.prometheus.exposition import CONTENT_TYPE, exposition
from clonos.server.job_api.documents import (
    Accepted,
    CaptureRequest,
    CheckpointList,
    DriverDocument,
    ErrorDocument,
    ErrorText,
    FlameDocument,
    FlameRequest,
    HistoryDocument,
    JobDocument,
    JobList,
    KeyDocument,
    KeyRequest,
    KillRequest,
    LogDocument,
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
from clonos.server.job_api.events import OpenStreams, events
from clonos.server.job_api.guard import LOOPBACK_HOSTS, METRICS_PATH, RequestGuard, Role
from clonos.server.job_api.job_source import RequestDenied
from clonos.server.job_api.job_watch import JobWatch, is_final

PAGE_FOLDER: Final = Path(__file__).parents[1] / "page"
NUMBER_MAX: Final = 2**53
CODES: Final = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 422: "invalid_request"}
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorDocument} for status in (400, 401, 403, 404, 409, 413, 422, 429, 500)
}
JOB: Final = "/api/v1/jobs/{job_id}"


def new_app(title: str) -> FastAPI:
    """Returns an application without routes whose errors have the form of ``ErrorDocument``."""
    app = FastAPI(
        title=title,
        version=clonos.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        responses=ERRORS,
    )
    app.add_exception_handler(RequestDenied, _on_refused)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    return app


def job_app(
    watch: JobWatch, role_of: Callable[[str], Role | None] | None, hosts: Iterable[str] | None = LOOPBACK_HOSTS
) -> ASGIApp:
    """Returns the application of one job, with the page and behind a ``RequestGuard``.

    ``role_of``: returns the role of a token; None on a Unix socket, whose folder only its user may enter.
    """
    app = new_app(f"Clonos job {watch.source.name}")
    _add_documents(app, watch)
    _add_history(app, watch)
    _add_metrics(app, watch)
    add_event_stream(
        app, partial(_check, watch), lambda _, after: events(watch, watch.logs.last if after is None else after)
    )
    _add_looks(app, watch)
    _add_requests(app, watch)
    add_page(app)
    return RequestGuard(app, role_of, hosts)


def add_page(app: FastAPI) -> None:
    """Adds the page at ``/``. All other routes must have been added before."""
    app.mount("/", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")


def _check(watch: JobWatch, job_id: str) -> None:
    if job_id != watch.source.job_id:
        raise RequestDenied("job_not_found", f"There is no job {job_id!r:.100} here.", 404)


def _add_documents(app: FastAPI, watch: JobWatch) -> None:
    source = watch.source

    @app.get("/api/v1/cluster")
    async def cluster() -> DriverDocument:
        """Says that this is the driver of one job."""
        return DriverDocument()

    @app.get("/api/v1/jobs")
    async def jobs() -> JobList:
        """Lists the jobs."""
        return JobList(jobs=[await asyncio.to_thread(watch.summary_now)])

    @app.get(JOB)
    async def job(job_id: str) -> JobDocument:
        """Returns a job with its plan, options and outputs."""
        _check(watch, job_id)
        summary = await asyncio.to_thread(watch.summary_now)
        outputs = await asyncio.to_thread(source.outputs)
        return JobDocument(
            **summary.model_dump(),
            plan=await asyncio.to_thread(source.plan),
            options=dict(source.options()),
            outputs=outputs,
        )

    @app.get(f"{JOB}/status")
    async def status(job_id: str) -> StatusDocument:
        """Returns the state of a job now."""
        _check(watch, job_id)
        return await asyncio.to_thread(watch.document)

    @app.get(f"{JOB}/checkpoints")
    async def checkpoints(job_id: str) -> CheckpointList:
        """Returns the last checkpoints."""
        _check(watch, job_id)
        return await asyncio.to_thread(watch.checkpoints)

    @app.get(f"{JOB}/recoveries")
    async def recoveries(job_id: str) -> RecoveryList:
        """Returns the last recoveries."""
        _check(watch, job_id)
        return RecoveryList(recoveries=await asyncio.to_thread(watch.recoveries))

    @app.get(f"{JOB}/metrics")
    async def metrics(job_id: str, since: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0) -> SeriesDocument:
        """Returns the curves of the last hour, and the metrics of user code. ``since``: only later points, in
        milliseconds since the Unix epoch."""
        _check(watch, job_id)
        return await asyncio.to_thread(watch.series, since)

    @app.get(f"{JOB}/logs")
    async def logs(
        job_id: str,
        after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
        limit: Annotated[int, Query(ge=1, le=ANSWER_LINES_MAX)] = ANSWER_LINES_MAX,
    ) -> LogDocument:
        """Returns lines of the log after a line."""
        _check(watch, job_id)
        return await asyncio.to_thread(watch.logs.after, after, limit)


def _add_history(app: FastAPI, watch: JobWatch) -> None:
    @app.get(f"{JOB}/history")
    async def history(job_id: str) -> HistoryDocument:
        """Returns what has happened to a job, over all its drivers: the last lines of its history."""
        _check(watch, job_id)
        return await asyncio.to_thread(watch.history)


def _add_metrics(app: FastAPI, watch: JobWatch) -> None:
    @app.get(
        METRICS_PATH,
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Metrics as Prometheus reads them."}},
    )
    async def prometheus_metrics() -> Response:
        """Returns the metrics for Prometheus."""
        return Response(await asyncio.to_thread(exposition, watch.metrics), media_type=CONTENT_TYPE)


def add_event_stream(
    app: FastAPI, check: Callable[[str], object], events_of: Callable[[str, int | None], AsyncIterator[bytes]]
) -> None:
    """Adds the route of events. ``check`` refuses a job that is not known."""
    streams = OpenStreams()

    @app.get(
        f"{JOB}/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}},
    )
    async def event_stream(
        request: Request, job_id: str, after: Annotated[int | None, Query(ge=0, le=NUMBER_MAX)] = None
    ) -> StreamingResponse:
        """Streams status, recovery, alarm, log and ended events. ``after``: the last line of the log that is known."""
        await asyncio.to_thread(check, job_id)
        return streams.answer(request, events_of(job_id, after))


async def _check_running(watch: JobWatch, job_id: str) -> None:
    """Raises: RequestDenied: there is no such job, or it has ended."""
    _check(watch, job_id)
    summary = await asyncio.to_thread(watch.summary_now)
    if is_final(summary) or watch.has_ended:
        raise RequestDenied("job_has_ended", f"The job {summary.name} is {summary.status.value}.", 409)


def _add_looks(app: FastAPI, watch: JobWatch) -> None:
    """Adds the requests that change nothing, but show data of the job: the token for reading does not do."""
    source, check_running = watch.source, partial(_check_running, watch)

    @app.post(f"{JOB}/peek")
    async def peek(job_id: str, request: PeekRequest) -> PeekedRows:
        """Returns the next rows that a step emits. They are data of the job, so the token that controls is needed."""
        await check_running(job_id)
        return PeekedRows(rows=await asyncio.to_thread(source.peek, request.step, request.count))

    @app.post(f"{JOB}/capture")
    async def capture(job_id: str, request: CaptureRequest) -> Accepted:
        """Writes a record of what a task has done since the last completed checkpoint; the answer has its folder. It
        has data of the job, so the token that controls is needed."""
        await check_running(job_id)
        return Accepted(epoch=await asyncio.to_thread(source.capture, request.task, request.folder))

    @app.post(f"{JOB}/key")
    async def key(job_id: str, request: KeyRequest) -> KeyDocument:
        """Returns the course of a key at a step since the last completed checkpoint: its records, the calls that were
        made for them, and its state. They are data of the job, so the token that controls is needed."""
        await check_running(job_id)
        return KeyDocument.model_validate(await asyncio.to_thread(source.key, request.step, request.key))

    @app.post(f"{JOB}/threads")
    async def threads(job_id: str, request: ThreadsRequest) -> ThreadDumpDocument:
        """Returns what the threads of the driver and of the slots are at. Arguments are data of the job, so the token
        that controls is needed."""
        await check_running(job_id)
        return ThreadDumpDocument.model_validate(await asyncio.to_thread(source.threads, request.task))

    @app.post(f"{JOB}/flame")
    async def flame(job_id: str, request: FlameRequest) -> FlameDocument:
        """Samples the stack of a task for some seconds, then returns how often each was seen."""
        await check_running(job_id)
        return FlameDocument.model_validate(await asyncio.to_thread(source.flame, request.task, request.seconds))


def _add_requests(app: FastAPI, watch: JobWatch) -> None:
    source = watch.source

    check_running = partial(_check_running, watch)

    @app.post(f"{JOB}/savepoint", status_code=202)
    async def savepoint(job_id: str, request: SavepointRequest) -> Accepted:
        """Requests a savepoint, which is there when its manifest is; the log says so. The answer has its place."""
        await check_running(job_id)
        return Accepted(savepoint=await asyncio.to_thread(source.savepoint, request.path))

    @app.post(f"{JOB}/rescale", status_code=202)
    async def rescale(job_id: str, request: RescaleRequest) -> Accepted:
        """Requests other numbers of tasks of steps, other places of all tasks, or both. The answer has what each step
        will have; the status and the log say how far it is, and why it was given up if it was."""
        await check_running(job_id)
        number, widths = await asyncio.to_thread(source.rescale, request.widths, request.place_anew)
        return Accepted(number=number, widths=widths)

    @app.post(f"{JOB}/stop", status_code=202)
    async def stop(job_id: str, request: StopRequest) -> Accepted:
        """Requests the end of a job, by default with a final checkpoint that commits all output so far."""
        await check_running(job_id)
        await asyncio.to_thread(source.stop, request.drain, request.savepoint)
        return Accepted()

    @app.post(f"{JOB}/cancel", status_code=202)
    async def cancel(job_id: str) -> Accepted:
        """Requests the end of a job at once; a resume repeats what came after the last checkpoint."""
        await check_running(job_id)
        await asyncio.to_thread(source.stop, False, None)
        return Accepted()

    @app.post(f"{JOB}/kill", status_code=202)
    async def kill(job_id: str, request: KillRequest) -> Accepted:
        """Kills the process of a task, in a job with the option allow_injection."""
        await check_running(job_id)
        return Accepted(tasks=await asyncio.to_thread(source.kill, request.task))


# ------------------------------------------------------------------ errors


def error_answer(status: int, code: str, message: str) -> JSONResponse:
    """Returns an error as an answer."""
    return JSONResponse(ErrorDocument(error=ErrorText(code=code, message=message)).model_dump(), status)


async def _on_refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestDenied)
    return error_answer(error.http_status, error.code, error.message)


async def _on_http_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return error_answer(error.status_code, CODES.get(error.status_code, "error"), f"{error.detail}.")


async def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = "; ".join(
        f"{'.'.join(str(place) for place in each['loc'][1:]) or 'the body'}: {each['msg']}" for each in error.errors()
    )
    return error_answer(422, "invalid_request", f"The request is not valid: {found:.500}.")
