"""Runs with a password for PostgreSQL write it nowhere."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from subprocess import Popen

import pytest

from clonos.connectors import files
from tests.connectors.secret_runs import WRONG, check_absence, run_with_secret
from tests.connectors.servers.postgres import PASSWORD, USER, PostgresServer
from tests.processes.jobs.test_job_cli import LIMIT_S
from tests.processes.jobs.test_secrets import everything_in

pytestmark = pytest.mark.connectors

PROGRAM = """
rows = job.source(postgres.query("{url}", "SELECT * FROM words", key="word"{password}))
rows.sink(postgres.table("{url}", "copies", {{"word": "text"}}{password}))
"""
CHANGES = """
changes = job.source(postgres.changes("{url}", "words", slot="guarded", password=PASSWORD))
changes.map(lambda change: change.row["word"], name="word").sink(files.jsonl("out"))
"""
STORE = """
job = Job("copy", store="{url}/jobs/copy?objects={objects}", metrics="metrics.json")
job.source(files.lines("{given}")).sink(files.jsonl("out"))
"""


@pytest.mark.parametrize(("password", "is_secret"), [(PASSWORD, True), (PASSWORD, False), (WRONG, True)])
def test_a_run_with_a_password_writes_it_nowhere(
    tmp_path: Path, postgres: PostgresServer, password: str, is_secret: bool
) -> None:
    postgres.run("CREATE TABLE words (word text)")
    postgres.run("INSERT INTO words VALUES ('to'), ('be')")
    url = postgres.url if is_secret else postgres.full_url
    program = PROGRAM.format(url=url, password=", password=PASSWORD" if is_secret else "")
    run = run_with_secret(tmp_path, program, password)
    assert run.code == (0 if password == PASSWORD else 1), run.shown
    if password == WRONG:
        assert f'password authentication failed for user "{USER}"' in run.shown
    else:
        assert postgres.psql("SELECT word FROM copies ORDER BY word") == [("be",), ("to",)]
    assert postgres.place in run.shown


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_run_that_follows_changes_with_a_password_writes_it_nowhere(
    tmp_path: Path, replicated: PostgresServer, password: str
) -> None:
    replicated.run("CREATE TABLE words (word text PRIMARY KEY)")
    out = tmp_path / "run" / "out"

    def insert(process: Popen[str]) -> None:
        """Writes rows after the start of the job, and stops it when they have arrived."""
        for _ in range(int(LIMIT_S / 0.02)):
            if process.poll() is not None:
                return
            if replicated.psql("SELECT 1 FROM pg_replication_slots WHERE active"):
                break
            threading.Event().wait(0.02)
        replicated.run("INSERT INTO words VALUES ('to'), ('be')")
        for _ in range(int(LIMIT_S / 0.02)):
            if out.exists() and len(list(files.read_committed(out))) == 2:
                break
            threading.Event().wait(0.02)
        process.send_signal(signal.SIGTERM)

    run = run_with_secret(tmp_path, CHANGES.format(url=replicated.url), password, insert)
    assert (run.code == 0) is (password == PASSWORD), run.shown
    if password == WRONG:
        assert f'password authentication failed for user "{USER}"' in run.shown
    else:
        assert sorted(files.read_committed(out)) == ["be", "to"]
    assert replicated.place in run.shown


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_run_with_a_password_of_its_store_writes_it_nowhere(
    tmp_path: Path, postgres: PostgresServer, password: str
) -> None:
    """The store takes it from the environment, and refuses one in its URL without showing it."""
    (tmp_path / "words.txt").write_text("to\nbe\n", "utf-8")
    program = STORE.format(url=postgres.url, objects=tmp_path / "data", given=tmp_path / "words.txt")
    run = run_with_secret(tmp_path, program, password, PGPASSWORD=password)
    if password == PASSWORD:
        assert run.code == 0, run.shown
        check_absence(password, repr(postgres.psql("SELECT * FROM clonos_store")).encode())
        check_absence(password, everything_in(tmp_path / "data"))
        assert list(files.read_committed(tmp_path / "run" / "out")) == ["to", "be"]
    else:
        assert run.code == 3, run.shown
        assert "password authentication failed" in run.shown
        assert postgres.place in run.shown


def test_a_run_with_a_password_in_the_url_of_its_store_is_refused_without_showing_it(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    program = STORE.format(url=postgres.full_url, objects=tmp_path / "data", given=tmp_path / "words.txt")
    run = run_with_secret(tmp_path, program, PASSWORD)
    assert run.code == 1
    assert "a password in its URL" in run.shown
    assert postgres.place in run.shown
