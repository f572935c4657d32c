"""What the coordinator is told when a task raised: which element, if that is known, and whose fault it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clonos.core.model.errors import ClonosError, EnvironmentFault, JobError
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.ports.operator_chain import FailedAt, StepFailed
from clonos.core.ports.task_failure import ERROR_CHARACTERS_MAX, NOWHERE, TRACEBACK_CHARACTERS_MAX, failure_of
from clonos.core.task.failure_report import describe_failure

LIFE = TaskId(3), Incarnation(7)
STEP = (2, 100, 10)  # of channel 2, ten elements from number 100 on


def _task(at: tuple[int, int, int]) -> Any:
    return SimpleNamespace(task=LIFE[0], incarnation=LIFE[1], at=at)


def _failed_at(index: int) -> StepFailed:
    """What a chain raises when user code has raised at this record of a step."""
    try:
        try:
            raise ValueError("no such word")
        except ValueError as error:
            raise StepFailed(FailedAt("split", index, "'bad'")) from error
    except StepFailed as failed:
        return failed


@pytest.mark.parametrize(
    ("index", "expected"),
    [(0, (2, 100, 1)), (9, (2, 109, 1)), (10, STEP), (-1, STEP)],
    ids=["first", "last", "behind the step", "not known"],
)
def test_a_failure_names_its_element_where_the_chain_knows_one_of_the_step(
    index: int, expected: tuple[int, int, int]
) -> None:
    told = describe_failure(_task(STEP), _failed_at(index))
    assert (told.channel, told.first_seq, told.count) == expected
    assert (told.task, told.incarnation, told.step, told.record) == (*LIFE, "split", "'bad'")
    assert told.error == "ValueError: no such word"
    assert "ValueError: no such word" in told.traceback


@pytest.mark.parametrize("at", [STEP, NOWHERE])
def test_a_failure_outside_of_user_code_names_the_step_that_was_being_done(at: tuple[int, int, int]) -> None:
    told = describe_failure(_task(at), KeyError("x"))
    assert (told.channel, told.first_seq, told.count) == at
    assert (told.step, told.record, told.error) == ("", "", "KeyError: 'x'")


@pytest.mark.parametrize(
    ("error", "is_fatal", "is_environment"),
    [
        (ValueError("x"), False, False),
        (JobError("x"), True, False),
        (ClonosError("x"), True, False),
        (EnvironmentFault("x"), False, True),
    ],
)
def test_what_is_the_jobs_own_fault_is_fatal_and_what_is_the_environments_is_not(
    error: Exception, is_fatal: bool, is_environment: bool
) -> None:
    told = failure_of(*LIFE, error)
    assert (told.is_fatal, told.is_environment) == (is_fatal, is_environment)
    assert (told.channel, told.first_seq, told.count) == NOWHERE
    for said in (True, False):
        assert failure_of(*LIFE, error, is_fatal=said).is_fatal is said


def test_what_is_told_has_limits() -> None:
    told = failure_of(*LIFE, ValueError("x" * 200_000), record="r" * 200_000)
    assert (len(told.error), len(told.record)) == (ERROR_CHARACTERS_MAX, ERROR_CHARACTERS_MAX)
    assert len(told.traceback) == TRACEBACK_CHARACTERS_MAX
    assert failure_of(*LIFE, ValueError("x"), with_traceback=False).traceback == ""
