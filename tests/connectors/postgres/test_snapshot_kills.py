"""Tables and then their changes, while tasks, drivers and the server die in either half: each row is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from clonos import files
from clonos.api.graph import JobGraph
from clonos.connectors import postgres as pg
from clonos.connectors.kit.external_system import SystemRefused
from clonos.connectors.postgres import Change
from clonos.core.model.options import Options
from tests.connectors.servers.postgres import PostgresServer
from tests.processes.harness.drawing_job import is_quiescent
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

HISTORY = 400
LIVE = 400
KEYS = 2
OPTIONS = Options(checkpoint_every_ms=300, heartbeat_ms=50)


def insert(server: PostgresServer, first: int, count: int) -> None:
    """Inserts rows in one transaction."""
    server.run(f"INSERT INTO orders SELECT n, 'item ' || n FROM generate_series({first}, {first + count - 1}) n")


def copies(server: PostgresServer) -> int:
    """Number of copies of tables."""
    ((count,),) = server.run("SELECT count(*) FROM pg_matviews WHERE schemaname = 'orders_slot'")
    return int(count)


def slowly(change: Change) -> Change:
    """Takes so long for each row that steps are of a few rows."""
    Event().wait(0.005)
    return change


def book(key: int, last: int | None, change: Change) -> tuple[int, dict[str, Any]]:
    """Emits each number with its predecessor under its key."""
    return change.row["id"], {"n": change.row["id"], "last": last}


class Followed:
    """A table and its changes -> by key, in order -> files."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.folder, self.server = folder, server

    def graph(self) -> JobGraph:
        """A new description of the same job."""
        graph = JobGraph("followed")
        source = pg.changes(self.server.full_url, "orders", slot="orders_slot", snapshot=True)
        changes = graph.source(source, name="orders").map(slowly, name="slowly")
        booked = changes.key_by(lambda change: change.row["id"] % KEYS).stateful_map(book, name="book", parallelism=2)
        booked.sink(files.jsonl(self.folder / "out"), name="out")
        return graph

    def rows(self) -> list[Any]:
        """Committed rows."""
        return list(files.read_committed(self.folder / "out")) if (self.folder / "out").exists() else []

    def wait_for(self, job: RunningJob, count: int) -> None:
        """Until that many rows are committed."""
        job.wait_for(lambda _: len(self.rows()) >= count)


def kill(job: RunningJob) -> None:
    """SIGKILL to the process of the source, once all is well."""
    job.wait_for(is_quiescent)
    os.kill(job.pid_of(0), signal.SIGKILL)


def test_kills_in_the_tables_and_in_their_changes_and_new_drivers_leave_each_row_once_and_in_order(
    tmp_path: Path, replicated: PostgresServer
) -> None:
    server = replicated
    server.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    insert(server, 0, HISTORY)
    followed = Followed(tmp_path, server)
    with running(followed.graph(), tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        assert copies(server) == 1
        insert(server, HISTORY, LIVE // 2)  # after the snapshot
        followed.wait_for(job, 1)
        kill(job)
        followed.wait_for(job, HISTORY // 4)
    with running(followed.graph(), tmp_path, OPTIONS, resume=True) as job:
        kill(job)
        server.kill()
        server.start()
        followed.wait_for(job, HISTORY + LIVE // 2)
        kill(job)
        insert(server, HISTORY + LIVE // 2, LIVE // 2)
        followed.wait_for(job, HISTORY + LIVE // 2 + 1)
    with running(followed.graph(), tmp_path, OPTIONS, resume=True) as job:
        followed.wait_for(job, HISTORY + LIVE)
        job.wait_for(lambda _: not copies(server))  # no restart reads the copies any more
        kill(job)
        insert(server, HISTORY + LIVE, 1)
        followed.wait_for(job, HISTORY + LIVE + 1)
    rows = sorted((row["n"], row["last"]) for row in followed.rows())
    assert rows == [(n, n - KEYS if n >= KEYS else None) for n in range(HISTORY + LIVE + 1)]
    with pytest.raises(SystemRefused, match="a job has gone on from the snapshot of the slot orders_slot"):
        pg.changes(server.full_url, "orders", slot="orders_slot", snapshot=True).splits(1)
