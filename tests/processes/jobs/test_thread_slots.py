"""Jobs whose slots are threads of the driver."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, files, random, values
from clonos.config import resolve_settings
from clonos.core.model.errors import JobError
from clonos.job import JobCrashed
from clonos.server.job_api.job_source import HandleSource, RequestDenied
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(60.0)
NUMBERS = 500


def _with_place(number: int) -> dict[str, object]:
    # clonos: ok CLN303 the test looks at where the step ran
    return {
        "n": number,
        "pid": os.getpid(),
        "thread": threading.current_thread().name,
        "drawn": random.random(),
    }


def _rows(folder: Path) -> list[Any]:
    texts = [file.read_text("utf-8") for file in sorted(folder.rglob("*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def test_tasks_run_in_threads_of_this_process_and_write_each_row_once(tmp_path: Path) -> None:
    job = Job("threads", slots="thread", store=tmp_path / "store", parallelism=2)
    numbers = job.source(values(range(NUMBERS))).key_by(lambda number: number % 7).count(name="count")
    numbers.map(lambda counted: _with_place(counted[1]), name="place").sink(files.jsonl(tmp_path / "out"))
    job.run()
    rows = _rows(tmp_path / "out")
    assert sorted(row["n"] for row in rows) == sorted(
        n for key in range(7) for n in range(1, 1 + len(range(key, NUMBERS, 7)))
    )
    assert {row["pid"] for row in rows} == {os.getpid()}
    assert {row["thread"] for row in rows} != {threading.current_thread().name}
    assert len({row["drawn"] for row in rows}) == NUMBERS


def test_a_task_that_raises_once_recovers_and_each_record_counts_once(tmp_path: Path) -> None:
    def raises_once(number: int) -> dict[str, int]:  # clonos: ok it raises once in the life of the job
        if number == 150 and not (tmp_path / "raised").exists():
            (tmp_path / "raised").touch()
            raise OSError("once")
        return {"n": number}

    job = Job("threads", slots="thread", store=tmp_path / "store", parallelism=2, checkpoint_every="50ms")
    job.source(values(range(300))).map(raises_once).sink(files.jsonl(tmp_path / "out"))
    with job.start() as handle:
        assert handle.wait().has_finished
        assert [recovery.is_over for recovery in handle.status().recoveries] == [True]
    assert sorted(row["n"] for row in _rows(tmp_path / "out")) == list(range(300))


def test_threads_may_be_silent_for_as_long_as_a_debugger_holds_them() -> None:
    assert resolve_settings({"slots": "thread"}, environment={}).core.lease_ms == 24 * 3_600_000
    assert resolve_settings({"slots": "thread", "lease": "3s"}, environment={}).core.lease_ms == 3_000
    assert resolve_settings({"slots": "process"}, environment={}).core.lease_ms == 5_000


def test_an_error_of_user_code_ends_the_job_with_its_cause(tmp_path: Path) -> None:
    job = Job("threads", slots="thread", store=tmp_path / "store")
    job.source(values([1, 0])).map(lambda number: 1 // number, name="divide").sink(files.jsonl(tmp_path / "out"))
    with pytest.raises(JobCrashed, match="ZeroDivisionError"):
        job.run()


def test_a_job_that_was_stopped_in_threads_continues_in_processes(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")

    def job(slots: str) -> Job:
        found = Job("threads", slots=slots, store=tmp_path / "store", checkpoint_every="200ms")  # type: ignore[arg-type]
        numbers = found.source(GatedNumbers(gate), name="read")
        numbers.key_by(lambda _: "all").count(name="count").sink(files.jsonl(tmp_path / "out"))
        return found

    gate.open_to(10)
    with job("thread").start() as handle:
        handle.stop(savepoint=tmp_path / "savepoint")
        assert handle.wait(LIMIT_S).checkpoint
    gate.end(20)
    job("process").run(resume=True)
    rows = _rows(tmp_path / "out")
    assert sorted(count for _, count in rows) == list(range(1, 1 + len(rows)))
    assert len(rows) == 20


def test_the_kill_of_a_task_that_is_a_thread_is_refused(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    job = Job("threads", slots="thread", store=tmp_path / "store", allow_injection=True)
    job.source(GatedNumbers(gate), name="read").sink(files.jsonl(tmp_path / "out"))
    with job.start() as handle:
        source = HandleSource(handle)
        while not handle.status().tasks:
            pass
        with pytest.raises(RequestDenied, match="is a thread of the driver, which cannot be killed"):
            source.kill(handle.status().tasks[0].name)
        handle.stop(drain=False)


def test_a_task_that_does_not_return_is_left_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def pipe_text(_: int) -> str:
        return pipe.read_text("utf-8")  # clonos: ok it does not return

    job = Job("threads", slots="thread", store=tmp_path / "store")
    job.source(values([1])).map(pipe_text, name="stay").sink(files.jsonl(tmp_path / "out"))
    with caplog.at_level(logging.WARNING, "clonos.slot"), job.start() as handle:
        writer = pipe.open("w", encoding="utf-8")  # returns when the task reads
        handle.stop(drain=False)
    writer.close()
    assert "goes on after the end of its slot, because its user code does not return" in caplog.text


def test_a_session_of_spark_does_not_go_with_threads(tmp_path: Path) -> None:
    job = Job("threads", store=tmp_path / "store")
    job.source(values([1])).sink(files.jsonl(tmp_path / "out"))
    with pytest.raises(JobError, match="spark= is given, but the slots are threads"):
        job.start(slots="thread", spark=object())  # type: ignore[arg-type]
