"""An HTTP server in a thread with numbered records in pages, which answers as a test tells it to."""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Asked(NamedTuple):
    """One request."""

    target: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Answer:
    """Answer that a test has prepared."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Pages:
    """Server under ``url`` of ``records``, in pages of ``size``. ``answers``: those of the next requests."""

    url: str = ""
    records: list[Any] = field(default_factory=list)
    size: int = 2
    answers: deque[Answer] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    places: dict[str, list[Any]] = field(default_factory=dict)  # records under other paths
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, count: int, limit_s: float = 40.0) -> None:
        """Waits until there were this many requests."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= count, limit_s), f"{len(self.asked)} came"

    def answer(self, request: Asked) -> Answer:
        """Returns the page after the cursor, a number of records."""
        with self._changed:
            self.asked.append(request)
            self._changed.notify_all()
        if self.answers:
            return self.answers.popleft()
        parts = urlsplit(request.target)
        query, records = parse_qs(parts.query), self.places.get(parts.path[1:], self.records)
        start = int(query.get("cursor", ["0"])[0])
        found = records[start : start + self.size]
        following = str(start + len(found))
        headers = {}
        if start + len(found) < len(records):
            headers["Link"] = f'<?cursor={following}>; rel="next", </>; rel="first"'
        return Answer(200, json.dumps({"data": {"items": found}, "orders": found, "next": following}).encode(), headers)


@contextmanager
def pages(records: list[Any], tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Pages]:
    """Runs a server until the block ends."""
    found = Pages(records=records)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            named = {name.lower(): value for name, value in self.headers.items()}
            answer = found.answer(Asked(self.path, named))
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *arguments: Any) -> None:
            """Does nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    found.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/records"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class RestartedPages:
    """Server of places with numbered records, on one port. What it has survives ``restart``."""

    def __init__(self) -> None:
        self._records: dict[str, list[Any]] = {}
        self._stack = ExitStack()
        self._port = 0

    def __enter__(self) -> RestartedPages:
        self._serve()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def url(self, place: str) -> str:
        """URL of a place."""
        return f"http://{self.address}/{place}"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    def add(self, place: str, records: Iterable[Any]) -> None:
        """Adds records to a place."""
        self._records.setdefault(place, []).extend(records)

    def restart(self) -> None:
        """Ends the server, and starts it again."""
        self._stack.close()
        self._serve()

    def _serve(self) -> None:
        served = self._stack.enter_context(pages([], port=self._port))
        served.places, served.size = self._records, 50
        self._port = urlsplit(served.url).port or 0
