"""Supervision of one job: starts, losses, adoption and requests, with drivers that the test plays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos.core.model.errors import Blame
from clonos.io.system.process_identity import machine, started_at
from clonos.job.continuing.restart_strategy import FixedDelay
from clonos.job.job_status import JobStatus
from clonos.server.register.databases import open_register
from clonos.server.register.job_record import DriverProcess, JobRecord
from clonos.server.register.register import JobRegister
from clonos.server.register.transitions import JobEvent
from clonos.server.supervision.driver_link import DriverLink, DriverRefused, DriverSilent
from clonos.server.supervision.driver_main import ANOTHER_DRIVER
from clonos.server.supervision.driver_process import RunningDriver
from clonos.server.supervision.job_folder import DriverEnd, JobFolder
from clonos.server.supervision.supervised_job import CANCEL_KILL_AFTER_S, SupervisedJob

ATTEMPTS = 2
DELAY_S = 1.0
RUNNING = {"id": "words-of-the-store", "status": "RUNNING", "checkpoint": 1, "generation": 1, "recoveries": 0}


class PlayedDriver(RunningDriver):
    """A driver without a process."""

    def __init__(self, attempt: int) -> None:
        super().__init__(DriverProcess(999_999, "0", "nowhere", attempt), None, None)
        self.code: int | None = None
        self.was_killed = False

    def has_ended(self) -> bool:
        """Whether the test has ended it."""
        return self.code is not None

    @property
    def exit_code(self) -> int | None:
        """The code that the test gave."""
        return self.code

    def kill(self) -> None:
        """Notes the kill."""
        self.was_killed = True


class PlayedLink(DriverLink):
    """Link to a driver that answers what the test has set; silent at first."""

    def __init__(self, folder: JobFolder) -> None:
        super().__init__(folder)
        self.report: dict[str, Any] | None = None
        self.posts: list[tuple[str, str, object]] = []
        self.refuses = False

    def summary(self) -> dict[str, Any]:
        """The report."""
        if self.report is None:
            raise DriverSilent("it starts")
        return self.report

    def document(self, job_id: str, name: str) -> bytes:
        """A document that names itself."""
        return f'{{"document": "{name}"}}'.encode()

    def post(self, job_id: str, verb: str, body: object) -> bytes:
        """Notes the request."""
        if self.refuses:
            raise DriverRefused(409, "not now")
        self.posts.append((job_id, verb, body))
        return b"{}"


class Stage:
    """A supervised job, its register, and the drivers that it has started."""

    def __init__(self, folder: Path) -> None:
        self.register: JobRegister = open_register(None, folder)
        self.folder = JobFolder(folder / "words-1")
        self.folder.create()
        self.register.add(JobRecord("words-1", "words", JobStatus.CREATED, 1_000, "job.py"))
        self.drivers: list[PlayedDriver] = []
        self.pending: list[Callable[[], Callable[[], None] | None]] = []
        self.now_s = 100.0
        self.link = PlayedLink(self.folder)
        self.job = self.supervise()

    def supervise(self) -> SupervisedJob:
        """The job, as a new server takes it up."""
        strategy = FixedDelay(ATTEMPTS, DELAY_S)
        background = self.pending.append
        return SupervisedJob(self.record, self.folder, self.register, strategy, background, self._spawn, self.link)

    def _spawn(self, _folder: JobFolder, attempt: int) -> PlayedDriver:
        assert self.register.job("words-1").attempt == attempt, "its number is written before it starts"
        self.drivers.append(PlayedDriver(attempt))
        return self.drivers[-1]

    def tick(self, seconds: float = 0.0) -> None:
        """Lets time pass and looks after the job."""
        self.now_s += seconds
        self.job.tick(self.now_s)

    def report(self, **fields: Any) -> None:
        """Lets the living driver answer with this report."""
        self.link.report = {**RUNNING, **fields}
        self.tick(1.0)
        while self.pending:
            then = self.pending.pop(0)()
            if then is not None:
                then()

    def end(self, code: int, end: DriverEnd | None = None) -> None:
        """Ends the living driver."""
        if end is not None:
            self.folder.write_end(end)
        self.drivers[-1].code = code
        self.link.report = None
        self.tick()

    @property
    def record(self) -> JobRecord:
        """The record as the register has it."""
        return self.register.job("words-1")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A job that no driver has run yet."""
    made = Stage(tmp_path)
    yield made
    made.job.close()
    made.register.close()


def test_a_new_job_gets_a_driver_whose_number_is_written_first(stage: Stage) -> None:
    stage.tick()
    assert [driver.identity.attempt for driver in stage.drivers] == [1]
    assert stage.record.driver == stage.drivers[0].identity
    assert stage.record.status is JobStatus.CREATED


def test_the_reports_of_a_driver_move_the_status(stage: Stage) -> None:
    stage.tick()
    seen = []
    for status in ("CREATED", "RUNNING", "RECOVERING", "RUNNING", "FAILING"):
        stage.report(status=status)
        seen.append(stage.record.status.value)
    assert seen == ["CREATED", "RUNNING", "RECOVERING", "RUNNING", "FAILING"]
    assert stage.record.started_at_ms is not None


def test_a_killed_driver_is_started_again_after_the_delay(stage: Stage) -> None:
    stage.tick()
    stage.report()
    stage.end(-9)
    assert (stage.record.status, stage.record.driver) == (JobStatus.RECOVERING, None)
    assert stage.record.error == "the driver was lost (signal 9)."
    stage.tick(DELAY_S - 0.1)
    assert len(stage.drivers) == 1
    stage.tick(0.2)
    assert len(stage.drivers) == 2
    stage.report()
    assert (stage.record.status, stage.record.restarts) == (JobStatus.RUNNING, 1)
    assert stage.record.error is None, "a job that runs again shows the loss of its driver before"


def test_the_recoveries_of_all_drivers_are_counted(stage: Stage) -> None:
    stage.tick()
    stage.report(recoveries=3)
    stage.end(-9)
    stage.tick(DELAY_S)
    stage.report(recoveries=2)
    assert stage.record.recoveries == 3
    stage.folder.write_last({"status": b'{"job": {"recoveries": 4}}'})
    stage.end(0, DriverEnd(2, "finished", 4))
    assert (stage.record.status, stage.record.recoveries) == (JobStatus.FINISHED, 7)


def test_a_job_whose_drivers_are_lost_without_a_checkpoint_fails_at_the_limit(stage: Stage) -> None:
    stage.tick()
    for _ in range(ATTEMPTS + 1):
        stage.report(checkpoint=7)
        stage.end(-9)
        stage.tick(DELAY_S)
    assert len(stage.drivers) == ATTEMPTS + 1
    assert stage.record.status is JobStatus.FAILED
    assert "loss 3 without a completed checkpoint" in (stage.record.error or "")


def test_a_completed_checkpoint_starts_the_count_of_losses_over(stage: Stage) -> None:
    stage.tick()
    for number in range(ATTEMPTS + 3):
        stage.report(checkpoint=number)
        stage.report(checkpoint=number + 1)
        assert (stage.record.failures, stage.record.error) == (0, None)
        stage.end(-9)
        stage.tick(DELAY_S)
    assert stage.record.status is JobStatus.RECOVERING
    assert len(stage.drivers) == ATTEMPTS + 4


def test_a_failure_of_the_job_ends_it_with_its_error(stage: Stage) -> None:
    stage.tick()
    stage.end(0, DriverEnd(1, "failed", 4, Blame.JOB, "job words has failed: division by zero"))
    assert (stage.record.status, stage.record.checkpoint) == (JobStatus.FAILED, 4)
    assert stage.record.error == "job words has failed: division by zero"
    assert stage.job.has_ended
    assert stage.record.ended_at_ms is not None


def test_a_failure_of_the_environment_restarts_the_job(stage: Stage) -> None:
    stage.tick()
    stage.end(0, DriverEnd(1, "failed", 4, Blame.ENVIRONMENT, "the store does not answer"))
    assert (stage.record.status, stage.record.error) == (JobStatus.CREATED, "the store does not answer")
    stage.tick(DELAY_S)
    assert len(stage.drivers) == 2


def test_the_register_has_the_last_documents_of_a_driver(stage: Stage) -> None:
    stage.tick()
    stage.folder.write_last({"status": b'{"job": {"recoveries": 0}}'})
    stage.end(0, DriverEnd(1, "finished", 9))
    assert stage.register.document("words-1", "status") == b'{"job": {"recoveries": 0}}'
    assert (stage.record.status, stage.record.stopped) == (JobStatus.FINISHED, False)


def test_the_register_has_documents_of_a_running_job(stage: Stage) -> None:
    stage.tick()
    stage.report()
    stage.report()
    assert stage.register.document("words-1", "") == b'{"document": ""}'
    assert stage.register.document("words-1", "checkpoints") == b'{"document": "checkpoints"}'


def test_a_stop_is_handed_to_the_driver_once_and_ends_the_job_as_stopped(stage: Stage) -> None:
    stage.tick()
    stage.report()
    stage.register.intend("words-1", JobEvent.STOP)
    stage.job.reload()
    stage.report()
    stage.report()
    assert stage.link.posts == [("words-of-the-store", "stop", {"savepoint": None, "drain": True})]
    stage.end(0, DriverEnd(1, "drained", 12))
    assert (stage.record.status, stage.record.stopped, stage.record.checkpoint) == (JobStatus.FINISHED, True, 12)


def test_a_stop_that_a_driver_refuses_is_asked_again(stage: Stage) -> None:
    stage.register.intend("words-1", JobEvent.STOP)
    stage.job.reload()
    stage.tick()
    stage.link.refuses = True
    stage.report()
    stage.link.refuses = False
    stage.report()
    assert [verb for _, verb, _ in stage.link.posts] == ["stop"]


def test_a_stop_outlasts_the_death_of_driver_and_server(stage: Stage) -> None:
    stage.tick()
    stage.report()
    stage.register.intend("words-1", JobEvent.STOP)
    stage.job = stage.supervise()
    stage.tick()
    stage.tick()
    assert len(stage.drivers) == 2
    stage.report()
    assert [verb for _, verb, _ in stage.link.posts] == ["stop"]
    stage.end(0, DriverEnd(2, "drained", 3))
    assert (stage.record.status, stage.record.stopped) == (JobStatus.FINISHED, True)


def test_a_cancellation_without_a_driver_ends_the_job_at_once(stage: Stage) -> None:
    stage.tick()
    stage.end(-9)
    stage.register.intend("words-1", JobEvent.CANCEL)
    stage.job.reload()
    stage.tick(0.1)
    assert stage.record.status is JobStatus.CANCELED
    assert len(stage.drivers) == 1


def test_a_driver_that_does_not_carry_out_a_cancellation_is_killed(stage: Stage) -> None:
    stage.tick()
    stage.report()
    stage.register.intend("words-1", JobEvent.CANCEL)
    stage.job.reload()
    stage.tick()
    killed = []
    for seconds in (CANCEL_KILL_AFTER_S - 1, 1):
        stage.tick(seconds)
        killed.append(stage.drivers[0].was_killed)
    assert killed == [False, True]
    stage.end(-9)
    assert stage.record.status is JobStatus.CANCELED


def test_a_driver_that_a_signal_has_ended_is_started_again_and_no_loss(stage: Stage) -> None:
    stage.tick()
    for attempt in range(1, ATTEMPTS + 3):
        stage.report()
        stage.end(0, DriverEnd(attempt, "drained", 5))
        stage.tick(10.0)
    assert len(stage.drivers) == ATTEMPTS + 3
    assert (stage.record.status, stage.record.failures) == (JobStatus.RECOVERING, 0)


def test_a_server_that_starts_again_adopts_the_driver_that_has_the_lock(stage: Stage) -> None:
    stage.tick()
    stage.report()
    own = DriverProcess(os.getpid(), started_at(os.getpid()), machine(), 1)
    stage.folder.write_driver(own)
    lock = stage.folder.lock()
    assert lock is not None
    try:
        later = stage.supervise()
        later.tick(stage.now_s)
        assert later.driver is not None
        assert (later.driver.identity, len(stage.drivers)) == (own, 1)
        later.close()
    finally:
        os.close(lock)


@pytest.mark.parametrize("wrong", [{"started_at": "1"}, {"machine": "another boot"}, {"pid": 1}])
def test_a_process_is_never_adopted_by_its_number_alone(stage: Stage, wrong: dict[str, Any]) -> None:
    right = {"pid": os.getpid(), "started_at": started_at(os.getpid()), "machine": machine(), "attempt": 1}
    assert RunningDriver.adopt(DriverProcess(**{**right, **wrong})) is None


def test_the_end_of_a_driver_while_no_server_ran_counts_as_it_was(stage: Stage) -> None:
    stage.tick()
    stage.report()
    stage.folder.write_end(DriverEnd(1, "finished", 8))
    stage.job = stage.supervise()
    stage.tick()
    assert (stage.record.status, stage.record.checkpoint) == (JobStatus.FINISHED, 8)


def test_a_driver_that_found_another_one_is_no_loss(stage: Stage) -> None:
    stage.tick()
    lock = stage.folder.lock()
    assert lock is not None
    try:
        stage.end(ANOTHER_DRIVER)
        stage.tick()
        assert (stage.record.failures, len(stage.drivers)) == (0, 1)
    finally:
        os.close(lock)


def test_a_job_whose_folder_is_gone_fails_with_its_path(stage: Stage) -> None:
    stage.folder.files.rmdir()
    stage.folder.path.rmdir()
    stage.tick()
    assert stage.record.status is JobStatus.FAILED
    assert str(stage.folder.path) in (stage.record.error or "")
