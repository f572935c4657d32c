"""Report of an exception to the coordinator: the element, if known, and the blame."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from clonos.core.channel.repeated_rows import RowNotRepeated
from clonos.core.model.errors import Blame, ClonosError, EnvironmentFault, JobError, ReplayDiverged
from clonos.core.model.ids import ChannelId, Incarnation, TaskId
from clonos.core.ports.operator_chain import FailedAt, StepFailed
from clonos.core.ports.task_failure import ERROR_CHARACTERS_MAX, TRACEBACK_CHARACTERS_MAX, FailurePlace, failure_of
from clonos.core.task.failure_report import describe_failure
from clonos.core.wire.message_codec import encode_message
from clonos.core.wire.recovery_messages import InputRange, Recourse

LIFE = TaskId(3), Incarnation(7)
STEP = InputRange(ChannelId(2), 100, 10)


def _task(at: InputRange | None) -> Any:
    return SimpleNamespace(task=LIFE[0], incarnation=LIFE[1], at=at)


def _failed_at(index: int | None) -> StepFailed:
    """The exception of a chain when user code raised at this record of a step."""
    try:
        try:
            raise ValueError("no such word")
        except ValueError as error:
            raise StepFailed(FailedAt("split", index, "'bad'")) from error
    except StepFailed as failed:
        return failed


@pytest.mark.parametrize(
    ("index", "expected"),
    [(0, replace(STEP, count=1)), (9, replace(STEP, first_seq=109, count=1)), (10, STEP), (None, STEP)],
    ids=["first", "last", "after the step", "not known"],
)
def test_a_failure_names_its_element_when_the_chain_knows_it(index: int | None, expected: InputRange) -> None:
    reported = describe_failure(_task(STEP), _failed_at(index))
    assert reported.at == expected
    assert (reported.task, reported.incarnation, reported.step, reported.record) == (*LIFE, "split", "'bad'")
    assert reported.error == "ValueError: no such word"
    assert "ValueError: no such word" in reported.traceback


@pytest.mark.parametrize("at", [STEP, None])
def test_a_failure_outside_of_user_code_names_the_current_step(at: InputRange | None) -> None:
    reported = describe_failure(_task(at), KeyError("x"))
    assert reported.at == at
    assert (reported.step, reported.record, reported.error) == ("", "", "KeyError: 'x'")


def _raised_from(cause: BaseException) -> ClonosError:
    error = ClonosError("x")
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "recourse", "blame"),
    [
        (ValueError("x"), Recourse.RETRY, Blame.JOB),
        (JobError("x"), Recourse.NONE, Blame.JOB),
        (ReplayDiverged("map/0", 7, "the time", "random numbers"), Recourse.ROLLBACK, Blame.JOB),
        (RowNotRepeated("map/0", "sink/0", 7), Recourse.ROLLBACK, Blame.JOB),
        (ClonosError("x"), Recourse.NONE, Blame.LIBRARY),
        (EnvironmentFault("x"), Recourse.RETRY, Blame.ENVIRONMENT),
        (MemoryError(), Recourse.ELSEWHERE, Blame.JOB),
        (OSError(errno.EMFILE, "x"), Recourse.ELSEWHERE, Blame.JOB),
        (OSError(errno.ENOENT, "x"), Recourse.RETRY, Blame.JOB),
        (RuntimeError("can't start new thread"), Recourse.ELSEWHERE, Blame.JOB),
        (_raised_from(MemoryError()), Recourse.ELSEWHERE, Blame.LIBRARY),
    ],
)
def test_a_job_error_is_fatal_an_environment_error_is_not_and_a_shortage_may_pass_in_another_process(
    error: Exception, recourse: Recourse, blame: Blame
) -> None:
    reported = failure_of(*LIFE, error)
    assert (reported.recourse, reported.blame) == (recourse, blame)
    assert reported.at is None
    for recourse in Recourse:
        assert failure_of(*LIFE, error, recourse).recourse is recourse


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_any_error_can_be_sent() -> None:
    place = FailurePlace(record="of \udcff")
    reported = failure_of(*LIFE, ValueError("no file \udcff"), place=place)
    assert (reported.error, reported.record) == ("ValueError: no file \\udcff", "of \\udcff")
    assert encode_message(reported)
    assert failure_of(*LIFE, Unprintable()).error == "Unprintable: (its text cannot be had: RuntimeError)"
    assert failure_of(*LIFE, MemoryError()).error == "MemoryError"


def test_the_text_of_a_failure_has_a_length_limit() -> None:
    reported = failure_of(*LIFE, ValueError("x" * 200_000), place=FailurePlace(record="r" * 200_000))
    assert (len(reported.error), len(reported.record)) == (ERROR_CHARACTERS_MAX, ERROR_CHARACTERS_MAX)
    assert len(reported.traceback) == TRACEBACK_CHARACTERS_MAX
    assert failure_of(*LIFE, ValueError("x"), with_traceback=False).traceback == ""
