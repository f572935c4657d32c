"""The checkpoint store on an S3-compatible server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.io.store.metadata_chain import AppendOutcome
from clonos.io.store.object_files import StoreFailed
from clonos.io.store.store import CheckpointStore
from tests.connectors.object_stores.objects import put_raw
from tests.harnesses.s3_server import CREDENTIALS, S3Server
from tests.store_contract import StoreContract

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A server on loopback with a bucket in it."""
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def url(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of its own for each test."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return server.url(tmp_path.name)


class TestS3(StoreContract):
    """moto's server."""


def test_a_server_that_is_down_is_a_store_failure() -> None:
    with pytest.raises(StoreFailed, match="failed to read"):
        b"".join(CheckpointStore("s3://bucket/x?endpoint=http://127.0.0.1:1").read_object("task/1"))


def test_objects_of_others_in_the_folder_of_a_store_do_no_harm(server: S3Server, url: str, tmp_path: Path) -> None:
    for key in ("", "objects/", "objects/task/", "objects//a", "objects/task//b", "chain/", "chain//c"):
        put_raw(server, f"{tmp_path.name}/{key}", b"" if key.endswith("/") or not key else b"x")
    record = CheckpointStore(url).open_job("one")
    resumed = CheckpointStore(url)
    assert resumed.open_job("one", resume=True) == record
    assert resumed.append_checkpoint(1, b"1") is AppendOutcome.CREATED
    again = CheckpointStore(url)
    again.open_job("one", overwrite=True)
    again.write_object("task/1", [b"state"])
    assert again.files.list("objects") == ["objects/task/1"]
