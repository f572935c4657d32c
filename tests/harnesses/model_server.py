"""Server on loopback that speaks the protocol of chat completions: counts, and fails, limits, drips or breaks off as it
is told."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

DRIP_PAUSE_S = 0.02


class Answer(NamedTuple):
    """What the server sends: a status with a body, pieces without end (``drips``), or nothing (``breaks``)."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    drips: bool = False
    breaks: bool = False


class Asked(NamedTuple):
    """Request of a model. ``headers``: by names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def completion(content: str | None, *, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """Body of a reply, which has used 7 and 5 tokens."""
    return {
        "id": "c-1",
        "model": "m-2026",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, **message},
                "finish_reason": finish_reason,
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
    }


def sends(content: str | None, **parts: Any) -> Answer:
    """Answer with a reply."""
    return Answer(body=json.dumps(completion(content, **parts)).encode())


@dataclass
class ModelServer:
    """A running server. ``script``: its next answers; after them it says how many requests it has had."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    script: deque[Answer] = field(default_factory=deque)
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, asked: Asked) -> Answer:
        """Remembers a request; returns its answer."""
        with self.lock:
            self.asked.append(asked)
            return self.script.popleft() if self.script else sends(f"number {len(self.asked)}")


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """A server that ends with the block."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.state = ModelServer(f"http://127.0.0.1:{server.server_port}/v1")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="model server")
        thread.start()
        try:
            yield server.state
        finally:
            server.state.ended.set()
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them
    state: ModelServer


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 5

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.state.take(Asked(self.path, headers, body))
        self.close_connection = True
        if answer.breaks:
            return
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if not answer.drips:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        try:
            while answer.drips and not self.server.state.ended.wait(DRIP_PAUSE_S):
                self.wfile.write(b" ")
        except OSError:  # the client has gone
            return

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""
