"""The register in SQLite: what it keeps over a restart, and which requests it accepts."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.core.wire.decoding import FormatUnknown
from clonos.job.job_status import JobStatus
from clonos.server.register.databases import SqliteDatabase, open_register
from clonos.server.register.job_record import DriverProcess, Intention, JobRecord
from clonos.server.register.register import (
    JobRegister,
    JobUnknown,
    RegisterFailed,
    RequestRefused,
    Transaction,
)
from clonos.server.register.transitions import JobEvent

CREATED = JobRecord("words-1", "words", JobStatus.CREATED, 1_000, "job.py", {"parallelism": "2"})


@pytest.fixture
def register(tmp_path: Path) -> Iterator[JobRegister]:
    """A register with one job."""
    opened = open_register(None, tmp_path)
    opened.add(CREATED)
    yield opened
    opened.close()


def test_a_new_register_of_the_same_file_has_what_was_written(register: JobRegister, tmp_path: Path) -> None:
    driver = DriverProcess(4711, "123", "boot", 1)
    register.change("words-1", attempt=1, driver=driver)
    register.apply("words-1", JobEvent.RUNS, started_at_ms=2_000, checkpoint=3)
    register.keep("words-1", "status", b'{"tasks": []}')
    later = open_register(None, tmp_path)
    try:
        found = later.job("words-1")
        assert (found.status, found.driver, found.started_at_ms) == (JobStatus.RUNNING, driver, 2_000)
        assert (found.options, found.checkpoint) == ({"parallelism": "2"}, 3)
        assert later.document("words-1", "status") == b'{"tasks": []}'
    finally:
        later.close()


def test_jobs_are_listed_with_the_latest_first(register: JobRegister) -> None:
    for number in (2, 3):
        register.add(JobRecord(f"words-{number}", "words", JobStatus.CREATED, 1_000 * number, "job.py"))
    assert [job.id for job in register.jobs()] == ["words-3", "words-2", "words-1"]


def test_an_accepted_stop_is_written_and_keeps_the_status(register: JobRegister, tmp_path: Path) -> None:
    register.apply("words-1", JobEvent.RUNS)
    register.intend("words-1", JobEvent.STOP, savepoint="file:///save")
    later = open_register(None, tmp_path)
    try:
        found = later.job("words-1")
        assert (found.status, found.intention) == (JobStatus.RUNNING, Intention("stop", "file:///save"))
    finally:
        later.close()


def test_a_cancellation_replaces_a_stop_and_a_stop_does_not_replace_a_stop(register: JobRegister) -> None:
    register.intend("words-1", JobEvent.STOP, savepoint="file:///first")
    assert register.intend("words-1", JobEvent.STOP).intention == Intention("stop", "file:///first")
    assert register.intend("words-1", JobEvent.CANCEL, drain=False).intention == Intention("cancel", drain=False)
    assert register.job("words-1").status is JobStatus.CANCELLING


def test_a_stop_of_a_job_that_is_cancelling_is_refused_and_changes_nothing(register: JobRegister) -> None:
    before = register.intend("words-1", JobEvent.CANCEL)
    with pytest.raises(RequestRefused, match="job words-1 is CANCELLING, which does not allow to stop it"):
        register.intend("words-1", JobEvent.STOP)
    assert register.job("words-1") == before


def test_a_report_after_the_end_sets_no_field(register: JobRegister) -> None:
    ended = register.apply("words-1", JobEvent.FINISHED, ended_at_ms=5_000)
    assert register.apply("words-1", JobEvent.RUNS, checkpoint=9, ended_at_ms=None) == ended
    assert register.job("words-1") == ended


def test_an_unknown_job_is_an_error_with_its_id(register: JobRegister) -> None:
    with pytest.raises(JobUnknown, match="there is no job 'words-9' here"):
        register.apply("words-9", JobEvent.RUNS)


def test_an_id_is_given_once(register: JobRegister) -> None:
    with pytest.raises(RequestRefused):
        register.add(CREATED)
    assert len(register.jobs()) == 1


def test_an_error_within_a_transaction_undoes_what_it_has_written(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "some.sqlite")

    def fail(run: Transaction) -> None:
        run("INSERT INTO numbers VALUES (2)")
        raise LookupError

    try:
        database.run(lambda run: run("CREATE TABLE numbers (number integer)"))
        database.run(lambda run: run("INSERT INTO numbers VALUES (1)"))
        with pytest.raises(LookupError):
            database.run(fail)
        assert database.run(lambda run: run("SELECT number FROM numbers")) == [(1,)]
    finally:
        database.close()


def test_no_change_of_many_threads_is_lost(register: JobRegister) -> None:
    def submit(first: int) -> None:
        for number in range(first, first + 20):
            register.add(JobRecord(f"job-{number}", "job", JobStatus.CREATED, number, "job.py"))
            register.apply(f"job-{number}", JobEvent.RUNS)

    threads = [threading.Thread(target=submit, args=(first,), name="submits") for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [job.status for job in register.jobs()].count(JobStatus.RUNNING) == 60


def test_a_register_of_another_version_is_refused(register: JobRegister, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "register.sqlite") as connection:
        connection.execute("UPDATE clonos_register SET version = 99")
    connection.close()
    with pytest.raises(
        FormatUnknown, match=r"register\.sqlite has format 99, and this version of clonos reads format 1"
    ):
        open_register(None, tmp_path)


def test_a_file_that_is_no_database_is_refused_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "register.sqlite"
    file.write_text("notes of somebody\n" * 100)
    with pytest.raises(RegisterFailed, match="file is not a database"):
        open_register(None, tmp_path)
    assert file.read_text().startswith("notes of somebody")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("mysql://host/jobs", "neither a path nor a URL of PostgreSQL"),
        ("postgresql://user:secret@host/jobs", "put it into PGPASSWORD"),
        ("postgresql://user@host/jobs?password=secret", "put it into PGPASSWORD"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(
    address: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(RegisterFailed, match=reason) as raised:
        open_register(address, tmp_path)
    assert "secret" not in str(raised.value)
