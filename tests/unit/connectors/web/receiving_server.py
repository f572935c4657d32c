"""An HTTP server in a thread that stores what it gets, and answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request that was answered with 2xx, or ``status``."""

    key: str
    body: bytes
    headers: dict[str, str]
    status: int

    @property
    def value(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Receiver:
    """Server under ``url``. ``answers``: statuses of the next requests; then ``status_of`` decides by the body."""

    url: str = ""
    answers: deque[tuple[int, dict[str, str]]] = field(default_factory=deque)
    refused: tuple[bytes, ...] = ()
    echoed: str = ""  # name of the request's header that a refusal repeats
    received: list[Received] = field(default_factory=list)
    _arrived: threading.Condition = field(default_factory=threading.Condition)

    def store(self, request: Received) -> None:
        """Called for each request, before it is answered."""
        with self._arrived:
            self.received.append(request)
            self._arrived.notify_all()

    def wait_for(self, count: int, limit_s: float = 40.0) -> None:
        """Waits until this many requests have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.received) >= count, limit_s), f"{len(self.received)} arrived"

    def answer(self, body: bytes) -> tuple[int, dict[str, str]]:
        """Returns status and headers of the reply."""
        if self.answers:
            return self.answers.popleft()
        return (422 if any(part in body for part in self.refused) else 204), {}

    @property
    def accepted(self) -> list[Received]:
        """Requests that were answered with 2xx."""
        return [one for one in self.received if one.status < 300]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Runs a server on a free port until the block ends."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(length := int(self.headers["content-length"]))
            if len(body) < length:  # the client died while it sent; nothing has arrived
                self.close_connection = True
                return
            status, headers = found.answer(body)
            named = {name.lower(): value for name, value in self.headers.items()}
            found.store(Received(named["idempotency-key"], body, named, status))
            content = b"" if status == 204 else f"status {status}{named.get(found.echoed, '')}".encode()
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found.url = f"http://127.0.0.1:{server.server_address[1]}/rows"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="receiver")
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
