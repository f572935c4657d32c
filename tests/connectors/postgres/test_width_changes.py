"""Changes of widths of tables in PostgreSQL, and a start from before them: each row is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos import postgres as pg
from clonos.io.store.store import CheckpointStore
from clonos.job import Job
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.width_changes import run_at
from tests.processes.harness.gated_source import Gate, GatedNumbers

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

SPLITS = 3
TABLES = {"appended": None, "replaced": "n"}
"""Tables, and the key by which rows replace others."""


class Numbers(GatedNumbers):
    """Three splits for any number of tasks."""

    def splits(self, parallelism: int) -> list[bytes]:
        return super().splits(SPLITS)


def test_rows_of_tables_are_withdrawn_over_changes_of_widths_by_a_start_from_before_them(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    gate, reach = Gate(tmp_path / "gate"), 0

    def job() -> Job:
        job = Job("widths", slots="process", checkpoint_every="1h", checkpoints_retained=50, store=tmp_path / "store")
        rows = job.source(Numbers(gate), name="read").map(lambda n: {"n": n}, name="row")
        sinks = [pg.table(postgres.full_url, name, {"n": "bigint"}, upsert=key) for name, key in TABLES.items()]
        rows.rebalance().map(dict, name="copy").sink(sinks[0], name="appended")
        rows.key_by("n").sink(sinks[1], name="replaced")
        return job

    def write() -> None:
        nonlocal reach
        reach += 60
        gate.open_to(reach)

    def is_there(numbers: int) -> bool:
        return all(
            postgres.psql("SELECT to_regclass('public." + name + "') IS NOT NULL") == [("t",)]
            and postgres.psql(f"SELECT count(*), count(DISTINCT n), max(n) FROM {name}")
            == [(str(numbers), str(numbers), str(numbers - 1))]
            for name in TABLES
        )

    def run(tasks: int, *, is_aborted: bool) -> None:
        widths = (f"copy={tasks}", f"replaced={tasks}")
        run_at(job(), widths, write, lambda: is_there(reach * SPLITS), is_aborted=is_aborted)

    run(4, is_aborted=False)
    store = CheckpointStore(str(tmp_path / "store"))
    store.find_job()
    before = store.checkpoints()[-1]
    run(2, is_aborted=True)
    run(2, is_aborted=False)
    run(4, is_aborted=True)
    gate.end(reach := reach - 30)
    assert job().run(resume=True, checkpoint=before).has_finished
    assert is_there(reach * SPLITS)
