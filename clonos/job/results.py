"""How a job ends: with a result, or with an error whose class says whose fault it is."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.core.coordinator.coordinator_effects import Ending, JobDone, JobFailed, StoodDown
from clonos.core.model.errors import Blame, ClonosError, EnvironmentFault, InternalError, JobError
from clonos.core.wire.printable import escaped
from clonos.core.wire.recovery_messages import InputRange
from clonos.status import Status


@dataclass(frozen=True, slots=True)
class Result:
    """A job that has ended and did not fail. ``checkpoint``: the last complete one. ``status``: its last picture."""

    ending: Ending
    checkpoint: int
    job_id: str
    status: Status

    @property
    def was_aborted(self) -> bool:
        """Whether it was stopped without a final checkpoint."""
        return self.ending is Ending.ABORTED

    def counter(self, name: str, step: str | None = None) -> int:
        """A counter, over all tasks or those of one step; each counts from where its last incarnation began."""
        tasks = [task for task in self.status.tasks if step is None or task.name.rpartition("/")[0] == step]
        return sum(task.counters.get(name, 0) for task in tasks)

    def summary(self) -> str:
        """One line for people."""
        done = {
            Ending.FINISHED: "has ended, all its output is committed",
            Ending.DRAINED: "was stopped with a final checkpoint; --resume goes on from there",
            Ending.ABORTED: "was aborted; --resume goes on from the last checkpoint",
        }[self.ending]
        recoveries = f", {len(self.status.recoveries)} recoveries" if self.status.recoveries else ""
        return f"{self.status.job} {done} (checkpoint {self.checkpoint}{recoveries})"


class JobCrashed(JobError):
    """The job has failed, and its own code or plan is at fault. ``failed`` has step, record, position, traceback."""

    job: str
    failed: JobFailed

    def __str__(self) -> str:
        return _told(self.job, self.failed)


class JobBroke(EnvironmentFault):
    """The job has failed, and slots, disks, networks or stores are at fault."""

    job: str
    failed: JobFailed

    def __str__(self) -> str:
        return _told(self.job, self.failed)


class JobStruckBug(InternalError):
    """The job has failed, and this library is at fault."""

    job: str
    failed: JobFailed

    def __str__(self) -> str:
        return f"{_told(self.job, self.failed)}\nThis is a bug of the library: please report it, with this message."


class JobSuperseded(EnvironmentFault):
    """Another driver has taken the job over."""

    job: str
    checkpoint: int

    def __str__(self) -> str:
        return (
            f"another driver has taken over job {self.job} after checkpoint {self.checkpoint}: this one has stopped."
            " Run a job from one driver at a time."
        )


def error_of(job: str, end: JobFailed | StoodDown) -> ClonosError:
    """The error of a job that has not ended well."""
    if isinstance(end, StoodDown):
        return JobSuperseded(job, end.checkpoint)
    match end.blame:
        case Blame.JOB:
            return JobCrashed(job, end)
        case Blame.ENVIRONMENT | Blame.PEER:
            return JobBroke(job, end)
        case Blame.LIBRARY:
            return JobStruckBug(job, end)


def result_of(end: JobDone, status: Status) -> Result:
    """The result of a job that has."""
    return Result(end.ending, end.checkpoint, status.job_id, status)


def _told(job: str, failed: JobFailed) -> str:
    lines = [f"job {job} has failed: {failed.reason}"]
    if failed.at is not None:
        lines.append(f"element: {_place(failed.at)} task {failed.task_name}")
    if failed.record:
        lines.append(f"record: {failed.record}")
    return escaped("\n".join([*lines, failed.traceback.rstrip()]).rstrip())


def _place(at: InputRange) -> str:
    """Which elements of which input, in words; a source has records and no channel."""
    first, last = at.first_seq, at.first_seq + at.count - 1
    numbers = f"{first}" if last == first else f"{first} to {last}"
    return f"number {numbers} of " + ("what was read by" if at.channel is None else f"channel {at.channel} at")
