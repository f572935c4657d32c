"""Server on loopback that speaks the protocol of chat completions and of embeddings: counts, and fails, limits, drips
or breaks off as its script says."""

from __future__ import annotations

import json
import math
import threading
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from struct import pack
from typing import Any, NamedTuple
from zlib import crc32

DRIP_PAUSE_S = 0.02
DIMENSIONS = 8
TEXT_CHARACTERS_MAX = 1_000


class Answer(NamedTuple):
    """What the server sends: a status with a body, in pieces (``pieces``) or without end (``drips``), or nothing
    (``breaks``). ``after_piece``: called after each piece."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    drips: bool = False
    breaks: bool = False
    pieces: tuple[bytes, ...] = ()
    after_piece: Callable[[], object] = bool


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


def streams(*deltas: dict[str, Any], finish_reason: str = "stop") -> tuple[bytes, ...]:
    """Pieces of a reply that comes as events: what is new in each, the end, the usage, and the last mark."""
    choices: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"delta": {}, "finish_reason": finish_reason})
    events: list[dict[str, Any]] = [{"id": "c-1", "model": "m-2026", "choices": [each]} for each in choices]
    events.append({"choices": [], "usage": completion(None)["usage"]})
    return (*(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode() for event in events), b"data: [DONE]\n\n")


def embedding(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Vector of length 1 of a text: texts with words in common are near to each other."""
    vector = [0.1] * dimensions
    for word in text.lower().split():
        vector[crc32(word.encode()) % dimensions] += 1
    length = math.hypot(*vector)
    return [number / length for number in vector]


def vectors(request: dict[str, Any]) -> dict[str, Any]:
    """Body of the reply to a request for vectors, which has used a token for each word."""
    found = [embedding(text, request.get("dimensions", DIMENSIONS)) for text in request["input"]]
    is_packed = request.get("encoding_format") == "base64"
    sent = [b64encode(pack(f"<{len(each)}f", *each)).decode() if is_packed else each for each in found]
    words = sum(len(text.split()) for text in request["input"])
    return {
        "object": "list",
        "model": "e-2026",
        "data": [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(sent)],
        "usage": {"prompt_tokens": words, "total_tokens": words},
    }


def embeds(request: dict[str, Any]) -> Answer:
    """Answer with vectors; a refusal if a text is too long."""
    if any(len(text) > TEXT_CHARACTERS_MAX for text in request["input"]):
        return Answer(400, b"a text is too long")
    return Answer(body=json.dumps(vectors(request)).encode())


@dataclass
class ModelServer:
    """A running server. ``script``: its next answers; after them it gives vectors, or says how many requests it has
    had."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    script: deque[Answer] = field(default_factory=deque)
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, asked: Asked) -> Answer:
        """Remembers a request; returns its answer."""
        with self.lock:
            self.asked.append(asked)
            if self.script:
                return self.script.popleft()
            return embeds(asked.body) if asked.path.endswith("/embeddings") else sends(f"number {len(self.asked)}")


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
        if not answer.drips and not answer.pieces:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        for piece in answer.pieces:
            self.wfile.write(piece)
            answer.after_piece()
        try:
            while answer.drips and not self.server.state.ended.wait(DRIP_PAUSE_S):
                self.wfile.write(b" ")
        except OSError:  # the client has gone
            return

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""
