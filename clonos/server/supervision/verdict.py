"""Meaning of the end of a driver for its job."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.core.model.errors import Blame
from clonos.server.register.job_record import Intention
from clonos.server.register.transitions import JobEvent
from clonos.server.supervision.job_folder import DriverEnd


@dataclass(frozen=True, slots=True)
class Verdict:
    """Event of the job. ``is_failure``: it counts for the restart strategy. ``stopped``: ended with a final
    checkpoint, as a user asked."""

    event: JobEvent
    error: str | None = None
    is_failure: bool = False
    stopped: bool = False


def judge(end: DriverEnd | None, intention: Intention | None, how: str) -> Verdict:
    """Returns the verdict over a driver that has ended. ``end``: None if it was killed; ``how``: the words for that.

    A failure is final when the job or this library is at fault: the next driver would meet it again. The environment
    may have recovered by then. A driver that was ended by a signal has only paused its job.
    """
    cancelled = intention is not None and intention.verb == "cancel"
    if end is None:
        if cancelled:
            return Verdict(JobEvent.ABORTED)
        return Verdict(JobEvent.DRIVER_LOST, how, is_failure=True)
    match end.ending:
        case "finished":
            return Verdict(JobEvent.FINISHED)
        case "failed" if cancelled:
            return Verdict(JobEvent.ABORTED, end.error)
        case "failed" if end.blame == Blame.ENVIRONMENT and not end.is_superseded:
            return Verdict(JobEvent.DRIVER_LOST, end.error, is_failure=True)
        case "failed":
            return Verdict(JobEvent.FAILED, end.error)
        case "drained" if intention is not None and intention.verb == "stop":
            return Verdict(JobEvent.FINISHED, stopped=True)
    if intention is not None and (cancelled or not intention.drain):
        return Verdict(JobEvent.ABORTED)
    return Verdict(JobEvent.DRIVER_LOST)
