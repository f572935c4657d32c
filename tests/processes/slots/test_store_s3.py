"""The checkpoint store on an S3-compatible server."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from clonos.io.store.object_files import StoreFailed
from clonos.io.store.store import CheckpointStore
from tests.store_contract import StoreContract

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server on loopback with a bucket in it."""
    served = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    address = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT")).close()
    yield address
    served.stop()


@pytest.fixture
def url(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of its own for each test."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return f"s3://bucket/{tmp_path.name}?endpoint={server}"


class TestS3(StoreContract):
    """moto's server."""


def test_a_server_that_is_down_is_a_store_failure() -> None:
    with pytest.raises(StoreFailed, match="failed to read"):
        b"".join(CheckpointStore("s3://bucket/x?endpoint=http://127.0.0.1:1").read_object("task/1"))
