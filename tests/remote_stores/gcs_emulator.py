"""GCS on loopback: fake-gcs-server behind a proxy that adds the one XML condition that it lacks.

``obstore`` creates with ``PUT /bucket/name`` and ``x-goog-if-generation-match: 0``; the emulator has this condition in
the JSON interface alone. All else passes through. It needs Go, and once the network: the server is built into
``build/bin``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"
CACHED_PROGRAMS = Path(__file__).parent.parent.parent / "build" / "bin"
CONDITION = "x-goog-if-generation-match"
OF_ONE_CONNECTION = ("connection", "transfer-encoding", "content-length")
"""Headers that are not passed on."""


@contextmanager
def gcs_emulator(folder: Path) -> Iterator[str]:
    """The address of the door; there is a bucket ``bucket``. It lives as long as the block."""
    program = CACHED_PROGRAMS / "fake-gcs-server"
    if not program.exists():
        print(f"building {SERVER} into {CACHED_PROGRAMS}: a few minutes", file=sys.stderr)
        subprocess.run(["go", "install", SERVER], env=os.environ | {"GOBIN": str(CACHED_PROGRAMS)}, check=True)
    log, port = folder / "emulator.log", _free_port()
    arguments = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with log.open("wb") as output:
        process = subprocess.Popen([program, *arguments], stdout=output, stderr=output)
    try:
        _await_start(process, log)
        with _door(port) as address:
            make_bucket = urllib.request.Request(
                f"{address}/storage/v1/b", b'{"name": "bucket"}', {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(make_bucket).close()
            yield address
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    """The emulator does not tell which one it took, so it is given one."""
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
        return port


def _await_start(process: subprocess.Popen[bytes], log: Path) -> None:
    looked = threading.Event()
    for _ in range(300):
        if "server started at" in log.read_text("utf-8"):
            return
        assert process.poll() is None, log.read_text("utf-8")
        looked.wait(0.1)
    raise RuntimeError(f"the emulator did not start:\n{log.read_text('utf-8')}")


@contextmanager
def _door(port: int) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("DoorTo", (_Door,), {"emulator_port": port}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="door to the emulator")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Door(BaseHTTPRequestHandler):
    emulator_port = 0

    def do_GET(self) -> None:
        self._pass(self.command, self.path)

    do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        condition = self.headers.get(CONDITION)
        if condition is None:
            return self._pass("PUT", self.path)
        _, bucket, name = self.path.split("/", 2)
        asked = f"uploadType=media&name={quote(unquote(name), safe='')}&ifGenerationMatch={condition}"
        return self._pass("POST", f"/upload/storage/v1/b/{bucket}/o?{asked}", has_object=True)

    def _pass(self, method: str, path: str, has_object: bool = False) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: text for name, text in self.headers.items() if name.lower() not in OF_ONE_CONNECTION}
        connection = HTTPConnection("127.0.0.1", self.emulator_port)
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        answer = reply.read()
        connection.close()
        self.send_response(reply.status)
        for name, text in reply.getheaders():
            if name.lower() not in OF_ONE_CONNECTION:
                self.send_header(name, text)
        if has_object and reply.status == 200:
            made = json.loads(answer)
            self.send_header("ETag", made["etag"])
            self.send_header("x-goog-generation", made["generation"])
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
