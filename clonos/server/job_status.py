"""Status of a job, as drivers and the server report it."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """Status of a job, in the words of Flink."""

    CREATED = "CREATED"  # accepted; its tasks do not run yet
    RUNNING = "RUNNING"
    RECOVERING = "RECOVERING"  # a task recovers, a rollback runs, or the driver is being restarted
    FAILING = "FAILING"  # its driver has reported a failure and ends its slots
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"  # its input has ended, or it was stopped with a final checkpoint

    @property
    def is_final(self) -> bool:
        """Whether the job has ended for good."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)
