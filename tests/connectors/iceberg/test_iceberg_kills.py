"""Jobs into an Iceberg table and from one, under kills of tasks and of all processes, read by pyiceberg too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.catalog import load_catalog

from clonos.api.graph import JobGraph
from clonos.connectors import iceberg
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.ids import TaskId
from clonos_services import random
from tests.connectors.table_writing import (
    LINES,
    OPTIONS,
    SCHEMA,
    TableJob,
    kill_all_and_resume,
    kill_each_task,
    kill_one,
)
from tests.harnesses.iceberg_tables import NAME, catalog_in, opened
from tests.harnesses.s3_server import CREDENTIALS, S3Server
from tests.processes.harness.drawing_job import is_quiescent, wait_for_checkpoint
from tests.processes.harness.running_job import running

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets, pytest.mark.timeout(240)]

FOLLOWED = pyarrow.schema([("n", pyarrow.int64())])


def in_store(s3: S3Server, folder: str) -> dict[str, str]:
    """Properties of a catalog whose tables are in an object store."""
    return {
        "warehouse": f"s3://bucket/{folder}",
        "s3.endpoint": s3.address,
        "s3.region": "us-east-1",
        "s3.access-key-id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }


class IcebergJob(TableJob):
    """A job into an Iceberg table."""

    def sink(self) -> Any:
        return iceberg.table(NAME, catalog=catalog_in(self.folder), schema=SCHEMA, partition_by="kind")

    def found(self) -> list[Any]:
        return opened(catalog_in(self.folder)).scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


def test_kills_of_tasks_leave_each_row_in_the_table_once(tmp_path: Path) -> None:
    kill_each_task(IcebergJob(tmp_path))


def test_a_resume_after_the_death_of_all_processes_leaves_each_row_in_the_table_once(tmp_path: Path) -> None:
    kill_all_and_resume(lambda: IcebergJob(tmp_path))


class CopyingJob:
    """Appends of a table that another program writes to -> 2 tasks -> draw -> another table."""

    def __init__(self, catalog: dict[str, str], given: int = 0) -> None:
        self.catalog, self.given = catalog, given
        made = load_catalog(**self.catalog)
        made.create_namespace_if_not_exists("shop")
        made.create_table_if_not_exists(NAME, FOLLOWED, properties={"write.parquet.row-group-limit": "50"})
        self.graph = JobGraph("copying")
        source = iceberg.changes(NAME, catalog=self.catalog, after_snapshot=0, watch="50ms", ordered=False)
        appended = self.graph.source(source, name="appended", parallelism=2)
        drawn = appended.map(lambda row: {"n": row["n"], "draw": random.getrandbits(30), "kind": "a"}, name="draw")
        drawn.sink(iceberg.table("shop.copy", catalog=self.catalog, schema=SCHEMA))

    def give(self) -> None:
        """Adds two snapshots, whose files have several row groups."""
        first = self.given * LINES
        for begin in (first, first + LINES // 2):
            rows = pyarrow.table({"n": pyarrow.array(range(begin, begin + LINES // 2), pyarrow.int64())})
            opened(self.catalog).append(rows)
        self.given += 1

    def copied(self) -> list[int]:
        """The numbers of the other table."""
        return sorted(opened(self.catalog, "shop.copy").scan().to_arrow().column("n").to_pylist())


@pytest.mark.parametrize("place", ["folder", "store"])
def test_kills_of_tasks_and_of_all_processes_that_follow_a_table_leave_each_row_once(
    tmp_path: Path, s3: S3Server, place: str
) -> None:
    catalog = catalog_in(tmp_path) | (in_store(s3, "lake/followed") if place == "store" else {})
    copying = CopyingJob(catalog)
    with running(copying.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        for task in (TaskId(0), TaskId(1)):
            copying.give()
            wait_for_checkpoint(job)
            copying.give()
            kill_one(job, task)
        job.wait_for(lambda _: len(copying.copied()) >= LINES)
        copying.give()
    copying = CopyingJob(catalog, copying.given)
    with running(copying.graph, tmp_path, OPTIONS, resume=True) as job:
        job.wait_for(is_quiescent)
        copying.give()
        job.wait_for(lambda _: len(copying.copied()) >= copying.given * LINES)
        job.driver.stop(drain=True)
        assert isinstance(job.end(), JobDone)
    assert copying.copied() == list(range(copying.given * LINES))
