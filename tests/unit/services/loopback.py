"""A small HTTP server on loopback that counts requests and answers by path."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Seen:
    """A request as the server saw it; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Loopback:
    """A running server."""

    url: str
    seen: list[Seen] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)  # what ``/hold`` waits for
    failures_left: int = 0  # how often ``/flaky`` fails

    @property
    def keys(self) -> list[str]:
        """The idempotency keys of the requests."""
        return [seen.headers["idempotency-key"] for seen in self.seen]


@contextmanager
def loopback() -> Iterator[Loopback]:
    """A server that ends with the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = False  # so that closing waits for them
    state = Loopback(f"http://127.0.0.1:{server.server_address[1]}")
    _Handler.states[server.server_address[1]] = state
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        state.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    states: ClassVar[dict[int, Loopback]] = {}
    timeout = 5

    def _handle(self) -> None:
        state = self.states[self.connection.getsockname()[1]]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        state.seen.append(Seen(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        match urlsplit(self.path).path:
            case "/count":
                self._answer(
                    200, json.dumps({"count": len(state.seen)}).encode(), {"X-Trace": "t", "Set-Cookie": "c=1"}
                )
            case "/zipped":
                self._answer(200, gzip.compress(b"x" * 100_000), {"Content-Encoding": "gzip"})
            case "/hold":
                state.hold.wait(5)
                self._answer(200, b"late")
            case "/drip":
                self._drip(state)
            case "/flaky" if state.failures_left:
                state.failures_left -= 1
                self._answer(503, b"busy", {"Retry-After": "0"})
            case "/cut" if state.failures_left:
                state.failures_left -= 1
                self.close_connection = True  # without an answer
            case "/moved":
                self._answer(302, b"", {"Location": "/count"})
            case "/seen-other":
                self._answer(303, b"", {"Location": "/count"})
            case "/refused":
                self._answer(403, b"not you", {"Content-Type": "text/plain; charset=latin-1"})
            case _:
                self._answer(200, body or b"ok")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _handle  # noqa: N815

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _drip(self, state: Loopback) -> None:
        """A body that never ends, in small pieces, until ``hold`` is set or the reader goes away."""
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        try:
            while not state.hold.wait(0.02):
                self.wfile.write(b"drop")
        except OSError:
            return

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""
