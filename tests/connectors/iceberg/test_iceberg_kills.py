"""Jobs into an Iceberg table and from one, under kills of tasks and of all processes, read by pyiceberg too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import iceberg
from tests.connectors.table_writing import SCHEMA, TableJob, kill_all_and_resume, kill_each_task
from tests.harnesses.iceberg_tables import NAME, catalog_in, opened

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets, pytest.mark.timeout(240)]


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
