"""HTTP server that answers each request with another number, and remembers what was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """Request that was answered. ``key``: its idempotency key, "" without one."""

    method: str
    path: str
    key: str


class CountingServer(ThreadingHTTPServer):
    """Server at ``address``. ``answered``: the requests by the numbers that they got, from 1 on."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Counting)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.answered: dict[int, Asked] = {}
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Shows nothing: connections of killed processes break."""


class _Counting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CountingServer

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = self.server
        with server.lock:
            number = len(server.answered) + 1
            server.answered[number] = Asked(self.command, self.path, self.headers.get("Idempotency-Key") or "")
        body = str(number).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""


@contextmanager
def counting_server() -> Iterator[CountingServer]:
    """Runs a server in a thread."""
    with CountingServer() as server:
        thread = threading.Thread(target=server.serve_forever, name="counting")
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
