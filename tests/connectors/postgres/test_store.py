"""The checkpoint store with its metadata in PostgreSQL: the contract of every store, and what only it may refuse."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import collect, values
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.io.store.object_files import StoreFailed, StoreUnsupported
from clonos.io.store.store import CheckpointStore
from clonos.job import Job
from tests.connectors.servers.postgres import PASSWORD, PostgresServer
from tests.store_contract import StoreContract

pytestmark = pytest.mark.connectors


@pytest.fixture
def url(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of its own for each test."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return f"{postgres.url}/jobs/one?objects={tmp_path / 'data'}"


class TestPostgres(StoreContract):
    """Metadata in PostgreSQL, objects in a folder."""


def test_rows_are_metadata_and_files_are_objects(postgres: PostgresServer, url: str, tmp_path: Path) -> None:
    store, other = CheckpointStore(url), CheckpointStore(url.replace("jobs/one", "jobs/other"))
    store.open_job("one")
    other.open_job("other")
    store.write_object("task/1", [b"state"])
    names = [name for (name,) in postgres.psql("SELECT name FROM clonos_store ORDER BY 1")]
    assert {name.rpartition("/")[0] for name in names} == {
        "jobs/one",
        "jobs/one/chain",
        "jobs/other",
        "jobs/other/chain",
    }
    assert [file.name for file in (tmp_path / "data").rglob("*") if file.is_file()] == ["1"]
    assert b"".join(CheckpointStore(store.objects_url).read_object("task/1")) == b"state"
    assert store.files.list("chain") == other.files.list("chain") == ["chain/00000000000000000001"]


def test_many_processes_that_create_the_table_at_one_moment_all_succeed(postgres: PostgresServer, url: str) -> None:
    for _ in range(10):
        postgres.psql("DROP TABLE IF EXISTS clonos_store")
        start = threading.Barrier(8, timeout=60)

        def create(start: threading.Barrier = start) -> list[str]:
            files = CheckpointStore(url).files
            start.wait()
            return files.list("chain")

        with ThreadPoolExecutor(8) as threads:
            assert [call.result() for call in [threads.submit(create) for _ in range(8)]] == [[]] * 8


def test_a_server_that_does_not_answer_is_a_failure_that_may_be_repeated(postgres: PostgresServer, url: str) -> None:
    store = CheckpointStore(url)
    store.open_job("one")
    postgres.kill()
    with pytest.raises(StoreFailed, match=r"failed to create chain.*connection failed"):
        store.append_checkpoint(1, b"1")
    postgres.start()
    store.append_checkpoint(1, b"1")
    assert store.files.list("chain") == ["chain/00000000000000000001", "chain/00000000000000000002"]


def test_a_job_keeps_its_checkpoints_there_and_its_slots_reach_the_data_alone(url: str, tmp_path: Path) -> None:
    output: Any = collect()
    job = Job("stored", slots="process", store=url)
    job.source(values(range(50))).sink(output)
    assert job.run().ending is Ending.FINISHED
    assert sorted(output.rows) == list(range(50))
    assert job.run(resume=True).ending is Ending.FINISHED
    assert list((tmp_path / "data" / "objects").rglob("*"))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://ann:s3cret@h/db/one?objects=/data", "a password in its URL would be shown"),
        ("postgresql://ann@h/db/one?objects=/data&password=s3cret", "a password in its URL would be shown"),
        ("postgresql://ann@h/db/one", "it keeps metadata only"),
        ("postgresql://ann@h/db/one?objects=postgresql://h/db/x", "it keeps metadata only"),
        ("postgresql://ann@h/db?objects=/data", "it needs a database and a name"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(StoreUnsupported, match=reason) as raised:
        CheckpointStore(url)
    assert "s3cret" not in str(raised.value)


def test_a_wrong_password_is_named(postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "wrong-one")
    with pytest.raises(StoreFailed, match=r"failed to read job: .*password authentication failed") as raised:
        CheckpointStore(url).open_job("one")
    assert "wrong-one" not in str(raised.value)
