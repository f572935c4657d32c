"""End of a job: a result, or an error whose class says whose fault it is."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.core.coordinator.coordinator_effects import Ending, JobDone, JobFailed, StoodDown
from clonos.core.model.errors import Blame, ClonosError, EnvironmentFault, InternalError, JobError
from clonos.core.wire.printable import escaped
from clonos.core.wire.recovery_messages import InputRange
from clonos.status import Status


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """Result of a job that ended without a failure. ``checkpoint``: the last completed one; ``status``: its last
    status."""

    ending: Ending
    checkpoint: int
    job_id: str
    status: Status

    def __repr__(self) -> str:
        return f"<Result of the job {self.status.job}: {self.ending.value}, checkpoint {self.checkpoint}>"

    @property
    def was_aborted(self) -> bool:
        """True when the job was stopped without a final checkpoint."""
        return self.ending is Ending.ABORTED

    @property
    def has_finished(self) -> bool:
        """True when all sources have ended and all output is committed."""
        return self.ending is Ending.FINISHED

    def counter(self, name: str, step: str | None = None) -> int:
        """Returns the sum of a counter over all tasks, or over those of ``step``. A counter of a task starts at 0 with
        each incarnation."""
        tasks = [task for task in self.status.tasks if step is None or task.name.rpartition("/")[0] == step]
        return sum(task.counters.get(name, 0) for task in tasks)

    def summary(self) -> str:
        """Returns one line for users."""
        if self.was_aborted and not self.status.tasks:
            return not_begun(self.status.job)
        done = {
            Ending.FINISHED: "has finished, all its output is committed",
            Ending.DRAINED: "was stopped with a final checkpoint; --resume continues from there",
            Ending.ABORTED: "was aborted; --resume continues from the last checkpoint",
        }[self.ending]
        count = len(self.status.recoveries)
        recoveries = f", {count} {'recovery' if count == 1 else 'recoveries'}" if count else ""
        return f"{self.status.job} {done} (checkpoint {self.checkpoint}{recoveries})"


class JobCrashed(JobError):
    """The job has failed by its own code or plan. ``failed`` has the step, the record, its position and the
    traceback."""

    job: str
    failed: JobFailed

    def __str__(self) -> str:
        return _description(self.job, self.failed)

    @property
    def last_lines(self) -> int:
        """Number of the last lines of the message, which a short report keeps: where the epoch of the task is."""
        return len(self.failed.epoch.splitlines())

    @property
    def details(self) -> str:
        """Returns the task, the position, the whole record and the traceback of the failure."""
        return _details(self.failed)


class JobBroke(EnvironmentFault):
    """The job has failed because of slots, disks, networks or stores."""

    job: str
    failed: JobFailed

    def __str__(self) -> str:
        return _description(self.job, self.failed)

    @property
    def details(self) -> str:
        """Returns the task, the position, the whole record and the traceback of the failure."""
        return _details(self.failed)


class JobHitBug(InternalError):
    """The job has failed because of a bug of this library."""

    job: str
    failed: JobFailed

    def __str__(self) -> str:
        return (
            f"{_description(self.job, self.failed)}\n{_details(self.failed)}\n"
            "This is a bug of the library: please report it with this message."
        )


class JobSuperseded(EnvironmentFault):
    """Another driver has taken the job over."""

    job: str
    checkpoint: int

    def __str__(self) -> str:
        return (
            f"another driver has taken over job {self.job} after checkpoint {self.checkpoint}; this one has stopped."
            " Run a job from one driver at a time."
        )


def not_begun(job: str) -> str:
    """Returns the line about a job that was stopped while it was starting."""
    return f"{job} was stopped before it had begun: nothing was read or written"


def error_of(job: str, end: JobFailed | StoodDown) -> ClonosError:
    """Returns the error of a job that has failed or was taken over."""
    if isinstance(end, StoodDown):
        return JobSuperseded(job, end.checkpoint)
    match end.blame:
        case Blame.JOB:
            return JobCrashed(job, end)
        case Blame.ENVIRONMENT | Blame.PEER:
            return JobBroke(job, end)
        case Blame.LIBRARY:
            return JobHitBug(job, end)


def result_of(end: JobDone, status: Status) -> Result:
    """Returns the result of a job that ended without a failure."""
    return Result(end.ending, end.checkpoint, status.job_id, status)


def _details(failed: JobFailed) -> str:
    lines = [f"task: {failed.task_name}"] if failed.task_name else []
    if failed.at is not None:
        lines.append(f"element: {_element_range(failed.at)} task {failed.task_name}")
    if failed.record:
        lines.append(f"record: {failed.record}")
    return escaped("\n".join([*lines, failed.traceback.rstrip()]).rstrip())


def _description(job: str, failed: JobFailed) -> str:
    lines = [f"job {job} has failed: {failed.reason}", failed.frames, failed.advice, failed.epoch]
    return escaped("\n".join(line for line in lines if line))


def _element_range(at: InputRange) -> str:
    """Describes the failing elements of an input. A source has records and no channel."""
    first, last = at.first_seq, at.first_seq + at.count - 1
    numbers = f"{first}" if last == first else f"{first} to {last}"
    return f"number {numbers} of " + ("what was read by" if at.channel is None else f"channel {at.channel} at")
