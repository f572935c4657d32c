"""Status of a job, as drivers and the server report it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from clonos.core.coordinator.coordinator_effects import Ending
from clonos.core.model.progress import SETTLED_PHASES
from clonos.status import Phase, Status


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


STATUS_OF_ENDING: Final = {
    Ending.FINISHED: JobStatus.FINISHED,
    Ending.DRAINED: JobStatus.FINISHED,
    Ending.ABORTED: JobStatus.CANCELED,
}


def status_now(status: Status, is_cancelling: bool) -> JobStatus:
    """Returns the status of a job that has not ended. ``is_cancelling``: its end at once was requested."""
    if is_cancelling:
        return JobStatus.CANCELLING
    if status.phase is Phase.STARTING:
        return JobStatus.CREATED
    is_settled = all(task.phase in SETTLED_PHASES for task in status.tasks)
    is_recovering = not is_settled and any(not recovery.is_over for recovery in status.recoveries)
    return JobStatus.RECOVERING if is_recovering else JobStatus.RUNNING
