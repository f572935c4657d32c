"""Route of submissions. Without the permission to submit it refuses before it reads the body."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from fastapi import FastAPI, File, Form, UploadFile

from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.app.slow_work import SlowWork
from clonos.server.job_api.documents import JobSummary
from clonos.server.job_api.job_source import RequestDenied
from clonos.server.submission.submissions import Submissions
from clonos.server.submission.unpacking import SubmissionRefused

CHECKS_AT_A_TIME: Final = 2
CHECKS_WAITING_MAX: Final = 4


def add_submit(app: FastAPI, known: KnownJobs, submissions: Submissions | None) -> None:
    """Adds the route. ``submissions``: None where nothing may be submitted."""
    if submissions is None:

        @app.post("/api/v1/jobs", status_code=201)
        async def refuse() -> JobSummary:
            """Refuses every submission: the server was started without permission for it.

            Raises: RequestDenied.
            """
            message = "This server takes no submissions: start it with --allow-submit."
            raise RequestDenied("submission_not_allowed", message, 403)

        return
    taking, checks = submissions, SlowWork(CHECKS_AT_A_TIME, CHECKS_WAITING_MAX, "submissions")

    @app.post("/api/v1/jobs", status_code=201)
    async def submit(
        job: Annotated[UploadFile, File()],
        file: Annotated[str | None, Form()] = None,
        options: Annotated[str, Form()] = "{}",
    ) -> JobSummary:
        """Takes a job: a Python file or an archive.

        ``file``: FILE or FILE:NAME in an archive. ``options``: a JSON object of texts. Raises: RequestDenied.
        """
        values = _options(options)
        try:
            record = await checks.run(taking.submit, job.file, job.filename or "", file, values)
        except SubmissionRefused as error:
            raise RequestDenied("submission_refused", str(error), 422) from None
        known.supervisor.look_at(record.id)
        return known.summary(record)


def _options(text: str) -> dict[str, str]:
    """Returns the options of a submission. Raises: RequestDenied."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=dict[str, str])
    except DECODE_ERRORS as error:
        message = f"The field options must be a JSON object whose values are texts: {error!s:.200}."
        raise RequestDenied("invalid_request", message, 422) from None
