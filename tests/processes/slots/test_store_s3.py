"""The checkpoint store on an S3-compatible server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.io.store.object_files import StoreFailed
from clonos.io.store.store import CheckpointStore
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
