"""Phases of a run: input at its rate until all faults have passed, then idle checkpoints until logs are small."""

from __future__ import annotations

from pathlib import Path

from clonos.core.model.progress import TaskPhase
from clonos.status import Phase, Status, TaskState
from clonos_chaos.real.runner_course import QUIESCENT_S, REST_S_MAX, Course, CoursePhase
from clonos_chaos.scenario.scenario_gate import Gate


def _status(checkpoint: int, log_bytes: int = 0, records: int = 0) -> Status:
    counters = {"log_memory_bytes": log_bytes, "records_in": records}
    task = TaskState("ask/0", 1, 1, 1, "", TaskPhase.LIVE, counters, 1, 1)
    return Status("job", Phase.RUNNING, checkpoint=checkpoint, tasks=(task,))


def _fed(folder: Path) -> Course:
    """A run that began at second 10 and has admitted a hundred records per second."""
    course = Course(Gate(folder), folder, 1_000, 100.0, retained_bytes_max=500)
    course.look(9.0, _status(0), is_live=False, is_over=False)
    course.look(10.0, _status(0, log_bytes=100), is_live=True, is_over=False)
    course.look(11.0, _status(0), is_live=True, is_over=False)
    course.look(12.0, _status(1), is_live=True, is_over=False)
    return course


def _rested(folder: Path) -> Course:
    course = _fed(folder)
    course.look(13.0, _status(1), is_live=True, is_over=True)
    course.look(13.0 + QUIESCENT_S, _status(1), is_live=True, is_over=True)
    assert course.phase is CoursePhase.RESTING
    course.look(14.0, _status(3, records=240), is_live=True, is_over=True)
    return course


def test_input_is_admitted_at_its_rate_once_all_tasks_are_live(tmp_path: Path) -> None:
    course = Course(Gate(tmp_path), tmp_path, 1_000, 100.0, retained_bytes_max=500)
    course.look(9.0, _status(0), is_live=False, is_over=True)
    assert (course.phase, course.gate.records) == (CoursePhase.STARTING, 0)
    assert _fed(tmp_path).gate.records == 200


def test_input_continues_while_a_fault_is_outstanding(tmp_path: Path) -> None:
    course = _fed(tmp_path)
    for second in range(13, 20):
        course.look(float(second), _status(1), is_live=True, is_over=False)
    assert (course.phase, course.gate.records) == (CoursePhase.FEEDING, 900)


def test_no_input_is_admitted_without_a_driver(tmp_path: Path) -> None:
    course = _fed(tmp_path)
    course.look(60.0, _status(1), is_live=False, is_over=False)
    assert course.gate.records <= 300


def test_a_run_ends_when_two_checkpoints_without_input_have_truncated_the_logs(tmp_path: Path) -> None:
    course = _rested(tmp_path)
    course.look(14.1, _status(4, log_bytes=400, records=240), is_live=True, is_over=True)
    assert course.phase is CoursePhase.RESTING, "one checkpoint may have begun before the last record"
    course.look(14.2, _status(5, log_bytes=400, records=240), is_live=True, is_over=True)
    assert (course.phase, course.remainder) == (CoursePhase.ENDING, [])
    assert (tmp_path / "gate").read_text("utf-8").endswith("end")


def test_logs_that_are_not_truncated_are_reported_with_their_task(tmp_path: Path) -> None:
    course = _rested(tmp_path)
    course.look(15.0, _status(9, log_bytes=700, records=240), is_live=True, is_over=True)
    assert course.phase is CoursePhase.RESTING, "the next checkpoint may still take them"
    course.look(16.0 + REST_S_MAX, _status(30, log_bytes=700, records=240), is_live=True, is_over=True)
    (complaint,) = course.remainder
    assert complaint == "700 bytes in logs, 100 at the start: {'ask/0': 700}"


def test_missing_checkpoints_are_reported(tmp_path: Path) -> None:
    course = _rested(tmp_path)
    course.look(16.0 + REST_S_MAX, _status(4, records=240), is_live=True, is_over=True)
    assert course.remainder == [f"no 2 checkpoints within {REST_S_MAX:g} s without input"]
