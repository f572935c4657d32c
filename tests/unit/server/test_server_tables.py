"""Tables of jobs and tasks: a value that is missing is a dash, so that each line has as many words as columns."""

from __future__ import annotations

import pytest

from clonos.cli.server_tables import jobs_table, show, tasks_table

ENDED = {
    "name": "map/0",
    "phase": "finished",
    "counters": {},
    "pid": None,
    "host": "",
    "rates": {"records_in_per_s": 0.0, "records_out_per_s": 0.0, "busy_ratio": 0.0},
    "standbys": 0,
    "keepers": 0,
    "incarnation": 1,
}
JOB = {
    "id": "words-1",
    "status": "RUNNING",
    "stopped": False,
    "started_at": "2026-01-02T03:04:05.6Z",
    "ended_at": None,
    "recoveries": 0,
    "restarts": 0,
    "checkpoint": None,
    "error": None,
}


def test_a_task_of_an_ended_job_has_a_dash_as_pid_and_host(capsys: pytest.CaptureFixture[str]) -> None:
    show(tasks_table([ENDED]))
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:4] == ["map/0", "finished", "-", "-"]


def test_a_running_job_has_a_dash_as_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    show(jobs_table([JOB]))
    _, line = capsys.readouterr().out.splitlines()
    assert line.split() == ["words-1", "RUNNING", "2026-01-02T03:04:05Z", "-", "0", "0", "-"]
