"""The checkpoint store on an S3-compatible server."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from clonos.io.store.object_files import StoreFailed
from clonos.io.store.store import CheckpointStore
from tests.store_contract import StoreContract

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]


def _one_by_one(application: WSGIApplication) -> WSGIApplication:
    """Returns the application, serving one request after the other: moto looks for an object and then stores it, which
    S3 does in one step."""
    lock = threading.Lock()

    def serve(environment: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with lock:
            return application(environment, start_response)

    return serve


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server on loopback with a bucket in it."""
    application = _one_by_one(DomainDispatcherApplication(create_backend_app))
    served = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=served.serve_forever, name="s3", daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{served.server_port}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT")).close()
    yield address
    served.shutdown()
    thread.join()
    served.server_close()


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
