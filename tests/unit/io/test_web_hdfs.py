"""A malformed answer of a namenode is a store failure, and is not followed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clonos.io.store.web_hdfs import WebHdfs

pytestmark = pytest.mark.keeps_sockets

Serve = Callable[[bytes, int, dict[str, str]], WebHdfs]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that answers each request alike."""
    servers: list[ThreadingHTTPServer] = []

    def begin(answer: bytes, status: int = 200, headers: dict[str, str] | None = None) -> WebHdfs:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), name="namenode").start()
        return WebHdfs(f"127.0.0.1:{server.server_port}")

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def listing(*names: str, kind: str = "FILE") -> bytes:
    found = [{"pathSuffix": name, "type": kind, "length": 1, "owner": "me"} for name in names]
    return json.dumps({"FileStatuses": {"FileStatus": found}}).encode()


def test_files_are_listed_with_their_status(serve: Serve) -> None:
    assert list(serve(listing("1", "..2"), 200, {}).files_below("/store/chain")) == [
        "/store/chain/1",
        "/store/chain/..2",
    ]
    assert serve(b'{"FileStatus": {"type": "FILE", "length": 3, "owner": "me"}}', 200, {}).is_file("/store/job")


def test_a_missing_file_is_distinguished_from_other_errors(serve: Serve) -> None:
    answer = b'{"RemoteException": {"exception": "FileNotFoundException", "javaClassName": "x", "message": null}}'
    with pytest.raises(FileNotFoundError):
        serve(answer, 404, {}).read("/store/job")


@pytest.mark.parametrize("name", ["..", ".", "../other", "a/b", "/etc", "a\0"])
def test_a_name_with_a_path_outside_the_root_is_refused(serve: Serve, name: str) -> None:
    with pytest.raises(OSError, match="cannot be read"):
        serve(listing(name), 200, {}).files_below("/store/chain")


def test_an_endless_folder_tree_is_refused(serve: Serve) -> None:
    with pytest.raises(OSError, match="nested more than 64 levels deep"):
        serve(listing("deeper", kind="DIRECTORY"), 200, {}).files_below("/store/chain")


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b"[]", b'{"FileStatus": 7}', b"\xff", b"[" * 5_000, b'{"x": ' + b"[" * 5_000]
)
def test_a_malformed_answer_raises_only_a_store_failure(serve: Serve, answer: bytes) -> None:
    namenode = serve(answer, 200, {})
    for ask in (namenode.files_below, namenode.is_file, namenode.read):
        with pytest.raises(OSError, match="the namenode's answer cannot be read"):
            ask("/store/chain")
    with pytest.raises(OSError, match="HTTP status 500"):
        serve(answer, 500, {}).is_file("/store/chain")


@pytest.mark.parametrize("location", [None, "", "http://[", "ftp://127.0.0.1/x", "http://127.0.0.1:999999/"])
def test_a_malformed_redirect_raises_only_a_store_failure(serve: Serve, location: str | None) -> None:
    with pytest.raises(OSError, match=r"redirects to|LocationParseError|ValueError"):
        serve(b"", 307, {} if location is None else {"Location": location}).is_file("/store/chain")
