"""``Job.run``, ``Job.start`` and the handle on slot processes: end, stop, resume, failure and status."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import collect, files, values
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.io.store.driver_mark import JobRunning
from clonos.job import Job, JobCrashed
from clonos.status import Phase
from clonos_standby.driver.driver import Driver
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)


def _squares(numbers: int, store: Path, **options: Any) -> tuple[Job, Any]:
    job = Job("squares", slots="process", store=store, **options)
    output = collect()
    job.source(values(range(numbers))).map(lambda number: number * number, name="square").sink(output)
    return job, output


class Gated:
    """A job that reads as far as it is let, writes what it read into files, and remembers how much by key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = Gate(folder / "gate")

    def job(self, **options: Any) -> Job:
        """A new description of the same job."""
        job = Job(
            "gated", slots="process", parallelism=2, checkpoint_every="100ms", store=self.folder / "store", **options
        )
        numbered = job.source(GatedNumbers(self.gate)).key_by(lambda number: number % 3)
        numbered.stateful_map(lambda _, seen, number: ((seen or 0) + 1, {"n": number, "seen": (seen or 0) + 1})).sink(
            files.jsonl(self.folder / "output")
        )
        return job

    def output(self) -> list[int]:
        """Committed rows; checks that the state's counts have no gap and no repeat."""
        rows = list(files.read_committed(self.folder / "output"))
        for key in range(3):
            seen = [row["seen"] for row in rows if row["n"] % 3 == key]
            assert sorted(seen) == list(range(1, len(seen) + 1))
        return sorted(row["n"] for row in rows)

    def wait_until_committed(self, count: int) -> None:
        """Waits for ``count`` records of output."""
        waiting = threading.Event()
        for _ in range(int(LIMIT_S * 50)):
            if (self.folder / "output").exists() and len(self.output()) >= count:
                return
            waiting.wait(0.02)
        raise AssertionError(f"{len(self.output())} of {count} records are committed")


@pytest.fixture
def gated(tmp_path: Path) -> Gated:
    return Gated(tmp_path)


def test_a_bounded_job_ends_by_itself_with_all_its_output(tmp_path: Path) -> None:
    job, output = _squares(1_000, tmp_path / "store", parallelism=2)
    result = job.run()
    assert result.ending is Ending.FINISHED
    assert sorted(output.rows) == [number * number for number in range(1_000)]
    assert result.summary().startswith("squares has finished, all its output is committed (checkpoint ")


def test_a_finished_job_starts_afresh_and_a_resume_of_it_ends_at_once(tmp_path: Path) -> None:
    _squares(10, tmp_path / "store")[0].run()
    job, output = _squares(20, tmp_path / "store")
    job.run(resume=False)
    assert len(output.rows) == 20
    job, output = _squares(20, tmp_path / "store")
    assert job.run(resume=True).ending is Ending.FINISHED


def test_a_resume_on_an_empty_store_starts_afresh(tmp_path: Path) -> None:
    job, output = _squares(10, tmp_path / "store")
    job.run(resume=True)
    assert len(output.rows) == 10


def test_a_job_that_runs_is_not_started_again(gated: Gated) -> None:
    gated.gate.open_to(100)
    with gated.job().start() as handle:
        gated.wait_until_committed(100)
        for option in ("resume", "overwrite"):
            with pytest.raises(JobRunning, match="job gated is running in this process, since"):
                gated.job().run(command_line={option: True})
        gated.gate.end(150)
        assert handle.wait(LIMIT_S).ending is Ending.FINISHED
    assert gated.output() == list(range(300))  # of two sources


def test_a_job_whose_slots_do_not_start_leaves_nothing(tmp_path: Path) -> None:
    job = Job("hopeless", slots="process", slots_wait="1ms", store=tmp_path / "store")
    job.source(values([1])).sink(files.jsonl(tmp_path / "out"))
    with pytest.raises(EnvironmentFault):
        job.run()
    assert not (tmp_path / "store").exists()
    assert not list((tmp_path / "out").rglob("*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": True, "overwrite": True}, "Set only one of them"),
        ({"checkpoint": 3}, "needs resume"),
        ({"spark": object()}, "the slots are processes"),
        ({"chekpoint_every": "1s"}, "did you mean 'checkpoint_every'"),
    ],
)
def test_options_that_contradict_each_other_are_refused_before_anything_starts(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobError, match=message):
        _squares(10, tmp_path / "store")[0].run(**options)
    assert not (tmp_path / "store").exists()


def test_an_unknown_option_is_refused_when_the_job_is_described() -> None:
    with pytest.raises(JobError, match="did you mean 'parallelism'"):
        Job("typo", paralelism=2)  # type: ignore[call-arg]  # the mistake


def test_a_drained_job_resumes_where_it_stopped(gated: Gated) -> None:
    gated.gate.open_to(300)
    with gated.job().start() as handle:
        gated.wait_until_committed(600)
        gated.gate.open_to(450)
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    drained = gated.output()
    assert len(drained) >= 600
    gated.gate.end(500)
    assert gated.job().run(resume=True).ending is Ending.FINISHED
    assert gated.output() == list(range(1_000))


def test_an_aborted_job_resumes_from_its_last_checkpoint(gated: Gated) -> None:
    gated.gate.open_to(300)
    with gated.job().start() as handle:
        gated.wait_until_committed(400)
        handle.stop(drain=False)
        assert handle.wait(LIMIT_S).was_aborted
    gated.gate.end(500)
    gated.job().run(resume=True)
    assert gated.output() == list(range(1_000))


def test_one_signal_before_the_job_has_begun_promises_nothing(
    gated: Gated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin = Driver.start
    drivers: list[Driver] = []
    monkeypatch.setattr(Driver, "start", lambda self: drivers.append(self))
    with gated.job().start() as handle, handle.handling_signals():
        signal.raise_signal(signal.SIGINT)
        begin(drivers[0])
        result = handle.wait(LIMIT_S)
        assert result.was_aborted
        assert result.summary() == "gated was stopped before it had begun: nothing was read or written"
        assert handle.summary() == []
    assert "checkpoint" not in caplog.text
    assert "SIGINT: stopping gated; a second signal aborts it" in caplog.text


def test_a_wait_that_takes_too_long_leaves_the_job_running(gated: Gated) -> None:
    gated.gate.open_to(10)
    with gated.job().start() as handle:
        with pytest.raises(TimeoutError):
            handle.wait(0.01)
        gated.gate.end(20)
        assert handle.wait(LIMIT_S).ending is Ending.FINISHED


def test_the_status_shows_the_slot_of_each_task_and_its_failures(gated: Gated) -> None:
    gated.gate.open_to(100)
    with gated.job().start() as handle:
        gated.wait_until_committed(200)
        before = handle.status()
        assert before.phase is Phase.RUNNING
        assert before.checkpoint > 0
        assert {task.pid for task in before.tasks} <= {slot.pid for slot in before.slots}
        os.kill(before.tasks[-1].pid, signal.SIGKILL)
        gated.gate.open_to(200)
        gated.wait_until_committed(400)
        after = handle.status()
        gated.gate.end(300)
        handle.wait(LIMIT_S)
    assert [one.task for one in after.recoveries] == [before.tasks[-1].name]
    assert after.recoveries[0].cause
    assert list(after.recoveries[0].reached)[:3] == ["failed", "detected", "view"]
    assert after.tasks[-1].incarnation > before.tasks[-1].incarnation
    assert [task.incarnation for task in after.tasks[:-1]] == [task.incarnation for task in before.tasks[:-1]]
    assert gated.output() == list(range(600))


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_with_a_final_checkpoint(gated: Gated, first: signal.Signals) -> None:
    gated.gate.open_to(200)

    def send() -> None:
        gated.wait_until_committed(400)
        os.kill(os.getpid(), first)

    sender = threading.Thread(target=send, name="sender")
    sender.start()
    before = signal.getsignal(first)
    assert gated.job().run().ending is Ending.DRAINED
    sender.join()
    assert signal.getsignal(first) is before


def test_user_code_that_raises_fails_the_job_with_step_record_and_traceback(tmp_path: Path) -> None:
    job = Job("divides", slots="process", store=tmp_path / "store")
    job.source(values([4, 2, 0, 1])).map(lambda number: 4 // number, name="divide").sink(collect())
    with pytest.raises(JobCrashed) as caught:
        job.run()
    text = str(caught.value)
    assert "job divides has failed: step divide, at the record 0, raised ZeroDivisionError" in text
    assert "Traceback" not in text
    assert "Traceback" in caught.value.details


def test_the_metrics_file_has_a_line_of_counters_at_the_end(tmp_path: Path) -> None:
    _squares(100, tmp_path / "store", metrics=tmp_path / "metrics.jsonl")[0].run()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert lines[-1]["phase"] == "ended"
    assert lines[-1]["checkpoint"] > 0


def test_a_result_has_the_last_counters_that_its_tasks_reported(gated: Gated) -> None:
    gated.gate.open_to(200)
    with gated.job().start() as handle:
        gated.wait_until_committed(400)
        handle.stop(drain=True)
        result = handle.wait(LIMIT_S)
    assert result.counter("records_in", result.status.tasks[-1].name.rpartition("/")[0]) == 400
    assert result.status.totals["records_in"] == result.counter("records_in") == 800


def test_the_status_has_the_hottest_key_of_a_task(tmp_path: Path) -> None:
    job = Job("skewed", slots="process", parallelism=2, store=tmp_path / "store")
    words = ["ann" if number % 3 else str(number) for number in range(30_000)]
    job.source(values(words)).key_by(lambda word: word).count(name="count").sink(collect())
    tasks = [task for task in job.run().status.tasks if task.name.startswith("count")]
    (hot,) = (task for task in tasks if task.hot_key)
    assert hot.hot_key == "'ann'"
    assert 0.6 < hot.hot_key_share < 1


def test_a_metrics_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="metrics file"):
        _squares(100, tmp_path / "store", metrics=tmp_path / "missing" / "metrics.jsonl")[0].run()


def test_two_jobs_of_one_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    jobs = [_squares(200, tmp_path / f"store-{number}") for number in range(2)]
    handles = [job.start() for job, _ in jobs]
    for handle in handles:
        with handle:
            handle.wait(LIMIT_S)
    assert [len(output.rows) for _, output in jobs] == [200, 200]
