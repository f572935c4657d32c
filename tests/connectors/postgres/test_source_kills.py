"""Sources of PostgreSQL while their task and the server are killed: the copy of a table is the table."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from clonos.connectors import postgres as pg
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.job import Handle, Job
from tests.connectors.servers.postgres import PostgresServer
from tests.speed import scaled

pytestmark = pytest.mark.connectors

STEP = 200
WAIT_S = scaled(40.0)


def insert(server: PostgresServer, first: int) -> None:
    """Inserts rows in transactions of 20."""
    with server.connect() as connection:
        for start in range(first, first + STEP, 20):
            rows = f"generate_series({start}, {start + 19}) n"
            connection.execute(f"INSERT INTO orders SELECT n, 'item ' || n FROM {rows}")


def wait_for_copies(server: PostgresServer, count: int) -> None:
    """Waits until the copy has that many rows."""
    deadline = time.monotonic() + WAIT_S
    with server.connect() as connection:
        for query in ("SELECT to_regclass('copied') IS NOT NULL", f"SELECT count(*) >= {count} FROM copied"):
            while connection.execute(query).fetchone() != (True,):
                assert time.monotonic() < deadline, connection.execute("SELECT count(*) FROM copied").fetchone()
                connection.execute("SELECT pg_sleep(0.02)")


def kill(handle: Handle, task: str) -> None:
    """SIGKILL to the process of a task."""
    (pid,) = [found.pid for found in handle.status().tasks if found.name == task]
    assert pid > 0
    os.kill(pid, signal.SIGKILL)


def test_kills_of_the_reader_and_the_server_lose_and_repeat_no_change(
    tmp_path: Path, replicated: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = replicated
    server.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    job = Job("copy", slots="process", checkpoint_every="300ms", store=tmp_path / "store")
    changes = job.source(pg.changes(server.full_url, "orders", slot="copy"), name="orders")
    rows = changes.map(lambda change: change.row or {}, name="row").rebalance().map(dict, name="copy")
    rows.sink(pg.table(server.full_url, "copied", {"id": "int", "item": "text"}))
    with job.start() as handle:
        insert(server, 0)
        wait_for_copies(server, STEP // 2)
        kill(handle, handle.status().tasks[0].name)
        insert(server, STEP)
        wait_for_copies(server, STEP + STEP // 2)
        server.kill()
        server.start()
        insert(server, 2 * STEP)
        wait_for_copies(server, 2 * STEP + STEP // 2)
        kill(handle, handle.status().tasks[0].name)
        insert(server, 3 * STEP)
        wait_for_copies(server, 4 * STEP)
        handle.stop(drain=True)
        assert handle.wait(WAIT_S).ending is Ending.DRAINED
    assert "SourceRecordsMissing" not in caplog.text  # a replay finds what the server had sent before
    table = server.psql("SELECT id, item FROM orders ORDER BY id")
    assert len(table) == 4 * STEP
    assert server.psql("SELECT id, item FROM copied ORDER BY id") == table


def test_kills_of_a_task_and_the_server_during_a_query_lose_and_repeat_no_row(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    postgres.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    for first in range(0, 8 * STEP, STEP):
        insert(postgres, first)
    slowly = "SELECT id, item FROM orders WHERE pg_sleep(0.001) IS NOT NULL"
    job = Job("copy", slots="process", parallelism=2, checkpoint_every="300ms", store=tmp_path / "store")
    rows = job.source(pg.query(postgres.full_url, slowly, key="id", parts=4), name="orders")
    copies = rows.rebalance().map(dict, name="copy")
    copies.sink(pg.table(postgres.full_url, "copied", {"id": "int", "item": "text"}))
    with job.start() as handle:
        wait_for_copies(postgres, 1)
        kill(handle, handle.status().tasks[0].name)
        wait_for_copies(postgres, 3 * STEP)
        postgres.kill()
        postgres.start()
        wait_for_copies(postgres, 8 * STEP)
        assert handle.wait(WAIT_S).ending is Ending.FINISHED
    table = postgres.psql("SELECT id, item FROM orders ORDER BY id")
    assert len(table) == 8 * STEP
    assert postgres.psql("SELECT id, item FROM copied ORDER BY id") == table
