"""Transitions of the status of a job, as a table.

An event without a row is refused in that status. A row that keeps the status is an event that changes nothing there,
such as a late report of a driver.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from clonos.job.job_status import JobStatus


class JobEvent(StrEnum):
    """Event of a job, from its driver, from the server, or from a user."""

    RUNS = "runs"  # the driver reports that all tasks run
    RECOVERS = "recovers"  # the driver reports a recovery
    FAILS = "fails"  # the driver reports that the job fails
    DRIVER_LOST = "driver lost"  # its driver has ended without an end of the job, and will be restarted
    SAVEPOINT = "savepoint"  # a user asks for a savepoint
    STOP = "stop"  # a user asks for an end with a final checkpoint
    CANCEL = "cancel"  # a user asks for an end without one
    FINISHED = "finished"  # the driver has ended the job: input ended, or stopped
    ABORTED = "aborted"  # the driver has ended the job without a final checkpoint
    FAILED = "failed"  # the job has failed, or the limit of restarts is reached


_CREATED, _RUNNING, _RECOVERING = JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RECOVERING
_FAILING, _CANCELLING = JobStatus.FAILING, JobStatus.CANCELLING
_ENDS: Final = {
    JobEvent.FINISHED: JobStatus.FINISHED,
    JobEvent.ABORTED: JobStatus.CANCELED,
    JobEvent.FAILED: JobStatus.FAILED,
}
_REPORTS: Final = {
    JobEvent.RUNS: _RUNNING,
    JobEvent.RECOVERS: _RECOVERING,
    JobEvent.FAILS: _FAILING,
    JobEvent.DRIVER_LOST: _RECOVERING,
}


def _stays(status: JobStatus) -> dict[JobEvent, JobStatus]:
    """Returns the rows of a final status: a report that comes late changes nothing, and requests have no row."""
    return dict.fromkeys((*_REPORTS, *_ENDS), status)


TRANSITIONS: Final[dict[JobStatus, dict[JobEvent, JobStatus]]] = {
    _CREATED: {
        **_REPORTS,
        **_ENDS,
        JobEvent.DRIVER_LOST: _CREATED,
        JobEvent.STOP: _CREATED,
        JobEvent.CANCEL: _CANCELLING,
    },
    _RUNNING: {
        **_REPORTS,
        **_ENDS,
        JobEvent.SAVEPOINT: _RUNNING,
        JobEvent.STOP: _RUNNING,
        JobEvent.CANCEL: _CANCELLING,
    },
    _RECOVERING: {
        **_REPORTS,
        **_ENDS,
        JobEvent.SAVEPOINT: _RECOVERING,
        JobEvent.STOP: _RECOVERING,
        JobEvent.CANCEL: _CANCELLING,
    },
    _FAILING: {**_REPORTS, **_ENDS, JobEvent.CANCEL: _CANCELLING},
    _CANCELLING: {
        **dict.fromkeys(_REPORTS, _CANCELLING),
        **_ENDS,
        JobEvent.DRIVER_LOST: JobStatus.CANCELED,
        JobEvent.FAILED: JobStatus.CANCELED,
        JobEvent.CANCEL: _CANCELLING,
    },
    JobStatus.FAILED: _stays(JobStatus.FAILED),
    JobStatus.CANCELED: _stays(JobStatus.CANCELED),
    JobStatus.FINISHED: _stays(JobStatus.FINISHED),
}


def next_status(status: JobStatus, event: JobEvent) -> JobStatus | None:
    """Returns the status after an event; None where the status refuses it."""
    return TRANSITIONS[status].get(event)
