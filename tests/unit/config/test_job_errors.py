"""The error of a failed job has the class of its blame (docs/operations.md)."""

import pickle

import pytest

from clonos.cli import ENVIRONMENT_AT_FAULT, JOB_AT_FAULT, WE_ARE_AT_FAULT, exit_code_of
from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.errors import (
    Blame,
    EnvironmentFault,
    InternalError,
    JobError,
    LogDiverged,
    MessageMalformed,
    full_report,
)
from clonos.core.model.ids import ChannelId, Incarnation, TaskId
from clonos.core.ports.task_failure import failure_of
from clonos.core.wire.recovery_messages import InputRange, Recourse
from clonos.job.results import error_of


@pytest.mark.parametrize(
    ("blame", "base", "exit_code"),
    [
        (Blame.JOB, JobError, JOB_AT_FAULT),
        (Blame.PEER, EnvironmentFault, ENVIRONMENT_AT_FAULT),
        (Blame.ENVIRONMENT, EnvironmentFault, ENVIRONMENT_AT_FAULT),
        (Blame.LIBRARY, InternalError, WE_ARE_AT_FAULT),
    ],
)
def test_a_failed_job_raises_an_error_of_the_class_that_is_to_blame(
    blame: Blame, base: type[Exception], exit_code: int
) -> None:
    at = InputRange(ChannelId(3), 17, 2)
    error = error_of("orders", JobFailed(blame, "task map/0 raised E: no", task_name="map/0", at=at))
    assert isinstance(error, base)
    assert exit_code_of(error) == exit_code
    assert str(error).splitlines()[0] == "job orders has failed: task map/0 raised E: no"
    assert "element: number 17 to 18 of channel 3 at task map/0" in full_report(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


@pytest.mark.parametrize(
    ("error", "blame", "recourse"),
    [
        (ValueError("no"), Blame.JOB, Recourse.RETRY),
        (JobError("no"), Blame.JOB, Recourse.NONE),
        (EnvironmentFault("no"), Blame.ENVIRONMENT, Recourse.RETRY),
        (MessageMalformed("slot 1", "no"), Blame.PEER, Recourse.NONE),
        (LogDiverged("the causal log of task 1", 17), Blame.LIBRARY, Recourse.NONE),
    ],
)
def test_a_failed_task_has_the_blame_of_its_errors_class(error: Exception, blame: Blame, recourse: Recourse) -> None:
    failed = failure_of(TaskId(1), Incarnation(1), error)
    assert (failed.blame, failed.recourse) == (blame, recourse)
