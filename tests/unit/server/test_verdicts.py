"""What the end of a driver means for its job, and when it is started again."""

from __future__ import annotations

import pytest

from clonos.core.model.errors import Blame
from clonos.server.register.job_record import Intention
from clonos.server.register.transitions import JobEvent
from clonos.server.supervision.job_folder import DriverEnd
from clonos.server.supervision.supervised_job import Verdict, judge

STOP, STOP_AT_ONCE, CANCEL = Intention("stop"), Intention("stop", drain=False), Intention("cancel")
LOST, FINISHED, ABORTED, FAILED = JobEvent.DRIVER_LOST, JobEvent.FINISHED, JobEvent.ABORTED, JobEvent.FAILED


def _failed(blame: Blame, is_superseded: bool = False) -> DriverEnd:
    return DriverEnd(1, "failed", 0, blame, "why", is_superseded)


@pytest.mark.parametrize(
    ("end", "intention", "expected"),
    [
        (None, None, Verdict(LOST, "killed", is_failure=True)),
        (None, STOP, Verdict(LOST, "killed", is_failure=True)),
        (None, CANCEL, Verdict(ABORTED)),
        (DriverEnd(1, "finished"), None, Verdict(FINISHED)),
        (DriverEnd(1, "finished"), STOP, Verdict(FINISHED)),
        (DriverEnd(1, "finished"), CANCEL, Verdict(FINISHED)),
        (DriverEnd(1, "drained"), STOP, Verdict(FINISHED, stopped=True)),
        (DriverEnd(1, "drained"), None, Verdict(LOST)),
        (DriverEnd(1, "drained"), CANCEL, Verdict(ABORTED)),
        (DriverEnd(1, "aborted"), CANCEL, Verdict(ABORTED)),
        (DriverEnd(1, "aborted"), STOP_AT_ONCE, Verdict(ABORTED)),
        (DriverEnd(1, "aborted"), STOP, Verdict(LOST)),
        (DriverEnd(1, "aborted"), None, Verdict(LOST)),
        (_failed(Blame.JOB), None, Verdict(FAILED, "why")),
        (_failed(Blame.LIBRARY), None, Verdict(FAILED, "why")),
        (_failed(Blame.ENVIRONMENT), None, Verdict(LOST, "why", is_failure=True)),
        (_failed(Blame.ENVIRONMENT, is_superseded=True), None, Verdict(FAILED, "why")),
        (_failed(Blame.ENVIRONMENT), STOP, Verdict(LOST, "why", is_failure=True)),
        (_failed(Blame.JOB), CANCEL, Verdict(ABORTED, "why")),
    ],
)
def test_an_end_has_the_verdict_of_its_row(
    end: DriverEnd | None, intention: Intention | None, expected: Verdict
) -> None:
    assert judge(end, intention, "killed") == expected
