"""Assembly of a server's application: routes, errors, the page, and what guards them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp

from clonos.io.system.wall_clock import wall_ns
from clonos.server.access.failed_logins import FailedLogins, LoginPace
from clonos.server.app.cluster_routes import add_cluster
from clonos.server.app.job_routes import add_deletion, add_documents, add_events, add_requests
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.app.submit_route import add_submit
from clonos.server.job_api.app import add_page, error_answer, new_app
from clonos.server.job_api.guard import API_PREFIX, BODY_BYTES_MAX, RequestGuard, Role
from clonos.server.register.register import JobUnknown, RegisterFailed, RequestRefused
from clonos.server.submission.submissions import Submissions
from clonos.server.submission.unpacking import UPLOAD_BYTES_MAX, SubmissionNotStored
from clonos.server.supervision.driver_link import DriverSilent

SUBMIT_PATH: Final = "/api/v1/jobs"
GUARDED: Final = (API_PREFIX, "/metrics")

ERRORS: Final[dict[type[Exception], tuple[int, str]]] = {
    JobUnknown: (404, "job_not_found"),
    RequestRefused: (409, "job_status"),
    RegisterFailed: (503, "register_unavailable"),
    DriverSilent: (503, "driver_silent"),
    SubmissionNotStored: (503, "submission_not_stored"),
}


def server_app(
    known: KnownJobs,
    submissions: Submissions | None,
    role_of: Callable[[str], Role | None],
    hosts: Iterable[str],
) -> ASGIApp:
    """Returns the application of a server. ``submissions``: None where nothing may be submitted.

    ``role_of``: returns the role of a token. ``hosts``: names by which clients may call the server.
    """
    app = routes(known, submissions)

    def body_bytes_max(path: str) -> int:
        return UPLOAD_BYTES_MAX if submissions is not None and path == SUBMIT_PATH else BODY_BYTES_MAX

    return LoginPace(RequestGuard(app, role_of, hosts, body_bytes_max, GUARDED), FailedLogins())


def routes(known: KnownJobs, submissions: Submissions | None) -> FastAPI:
    """Returns the application without what guards it."""
    app = new_app("Clonos server")
    for kind in ERRORS:
        app.add_exception_handler(kind, _on_error)
    add_documents(app, known)
    add_events(app, known)
    add_requests(app, known)
    add_deletion(app, known)
    add_submit(app, known, submissions)
    add_cluster(app, known, wall_ns(), submissions is not None)
    add_page(app)
    return app


async def _on_error(_request: Request, error: Exception) -> JSONResponse:
    status, code = ERRORS[type(error)]
    return error_answer(status, code, str(error))
