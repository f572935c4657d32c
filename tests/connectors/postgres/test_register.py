"""The register of a server in PostgreSQL, on the real server: what it keeps, and who may have it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.job.job_status import JobStatus
from clonos.server.register.databases import open_register
from clonos.server.register.job_record import Intention, JobRecord
from clonos.server.register.postgres_database import PostgresDatabase
from clonos.server.register.register import JobRegister, JobUnknown, RegisterFailed, RegisterInUse, RequestRefused
from clonos.server.register.transitions import JobEvent
from tests.connectors.servers.postgres import PASSWORD, PostgresServer
from tests.processes.harness.running_server import running_server

pytestmark = pytest.mark.connectors


@pytest.fixture
def register(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobRegister]:
    """A register with one job; the password is where libpq looks for it."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    opened = _open(postgres)
    opened.add(JobRecord("words-1", "words", JobStatus.CREATED, 1_000, "job.py"))
    yield opened
    opened.close()


def _open(postgres: PostgresServer, wait_s: float = 10.0) -> JobRegister:
    return JobRegister(PostgresDatabase(postgres.url, wait_s), "PostgreSQL")


def test_a_later_register_has_what_an_earlier_one_wrote(register: JobRegister, postgres: PostgresServer) -> None:
    register.apply("words-1", JobEvent.RUNS, started_at_ms=2_000, checkpoint=3)
    register.intend("words-1", JobEvent.STOP)
    register.keep("words-1", "status", b'{"text": "100 % \\u0000 \xc3\xa9?"}')
    register.close()
    later = _open(postgres)
    try:
        found = later.job("words-1")
        assert (found.status, found.checkpoint, found.intention) == (JobStatus.RUNNING, 3, Intention("stop"))
        assert later.document("words-1", "status") == b'{"text": "100 % \\u0000 \xc3\xa9?"}'
        assert [job.id for job in later.jobs()] == ["words-1"]
    finally:
        later.close()


def test_a_refused_request_changes_nothing(register: JobRegister) -> None:
    register.apply("words-1", JobEvent.FINISHED)
    with pytest.raises(RequestRefused):
        register.intend("words-1", JobEvent.CANCEL)
    with pytest.raises(JobUnknown):
        register.change("words-2", checkpoint=1)
    assert (register.job("words-1").status, register.job("words-1").intention) == (JobStatus.FINISHED, None)


def test_a_second_server_is_refused_while_the_first_has_the_register(
    register: JobRegister, postgres: PostgresServer
) -> None:
    with pytest.raises(RegisterInUse, match="another server uses the register"):
        _open(postgres, wait_s=0.0)
    register.close()
    _open(postgres).close()


def test_the_register_goes_on_after_its_connection_was_ended(register: JobRegister, postgres: PostgresServer) -> None:
    postgres.run("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    assert register.apply("words-1", JobEvent.RUNS).status is JobStatus.RUNNING
    with pytest.raises(RegisterInUse):
        _open(postgres, wait_s=0.0)


def test_a_register_whose_database_was_away_goes_on_when_that_is_back(
    register: JobRegister, postgres: PostgresServer
) -> None:
    register.apply("words-1", JobEvent.RUNS)
    postgres.kill()
    with pytest.raises(RegisterFailed, match="Jobs that run go on"):
        register.job("words-1")
    postgres.start()
    assert register.job("words-1").status is JobStatus.RUNNING


def test_no_change_of_many_threads_is_lost(register: JobRegister) -> None:
    def submit(first: int) -> None:
        for number in range(first, first + 10):
            register.add(JobRecord(f"job-{number}", "job", JobStatus.CREATED, number, "job.py"))
            register.apply(f"job-{number}", JobEvent.RUNS)

    threads = [threading.Thread(target=submit, args=(first,), name="submits") for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [job.status for job in register.jobs()].count(JobStatus.RUNNING) == 30


def test_an_address_opens_the_register_in_its_database(register: JobRegister, postgres: PostgresServer) -> None:
    register.close()
    opened = open_register(postgres.url, Path("unused"))
    assert opened.job("words-1").name == "words"
    opened.close()


def test_a_server_has_its_jobs_in_the_register_after_it_was_killed(postgres: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    file = tmp_path / "jobs" / "figures.py"
    file.write_text(
        "from clonos import Job, files, values\n"
        "job = Job('numbers', slots='process')\n"
        "job.source(values([1, 2, 3]), name='read').sink(files.jsonl('out'))\n"
    )
    with running_server(tmp_path, "--register", postgres.url, PGPASSWORD=PASSWORD) as server:
        job_id = server.submit(file)
        server.kill()
        server.start()
        ended = server.wait_for_status(job_id, "FINISHED")
        assert (ended["error"], ended["name"]) == (None, "numbers")
        parts = (server.folder_of(job_id).files / "out").glob("*")
        assert sorted(row for part in parts for row in part.read_text("utf-8").split()) == ["1", "2", "3"]
    assert postgres.run("SELECT id FROM clonos_jobs") == [(job_id,)]
