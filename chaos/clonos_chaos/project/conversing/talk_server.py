"""Server of a model and of a shop, in threads: counts what was asked, and drips, fails, breaks off and rate-limits.

``POST /v1/chat/completions``: a question gets the call of the tool ``refund``, and the result of a tool an answer. Both
carry the number of the request, so that an output shows which reply it has. ``POST /refunds`` refunds an order each
time; ``GET /refunds/KEY`` says what was refunded under a key, or 404.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Final, NamedTuple

CHAT: Final = "/v1/chat/completions"
REFUNDS: Final = "/refunds"
Modes = tuple[tuple[str, int], ...]
"""What becomes of a request of a model, with its weight."""

MODES: Final[Modes] = (("reply", 80), ("drip", 8), ("limit", 5), ("fail", 4), ("break", 3))
THINKS_S: Final = (0.002, 0.02)
DRIPS: Final = 5
DRIP_EVERY_S: Final = 0.01
READ_TIMEOUT_S: Final = 10.0


class Paid(NamedTuple):
    """Reply that the server has sent. ``place``: 0 for a question, 1 after its tool."""

    conversation: str
    turn: int
    place: int


@dataclass
class TalkServer:
    """A running server. ``paid``: its whole replies, by their numbers. ``refunds``: the keys of each order, one for
    each time that it was refunded. ``receipts``: by key. ``had``: how many requests it has had of each mode.
    ``times``: of each conversation, when a request had come and when its reply was sent, by the monotonic clock."""

    url: str
    rng: Random
    modes: Modes = MODES
    thinks_s: tuple[float, float] = THINKS_S
    paid: dict[int, Paid] = field(default_factory=dict)
    refunds: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    receipts: dict[str, int] = field(default_factory=dict)
    had: Counter[str] = field(default_factory=Counter)
    times: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def paid_count(self) -> int:
        """Returns how many replies it has sent."""
        with self.lock:
            return len(self.paid)

    def begin(self) -> tuple[int, str, float]:
        """Takes a request of a model: its number, what becomes of it, and after how many seconds."""
        with self.lock:
            names, weights = zip(*self.modes, strict=True)
            mode = self.rng.choices(names, weights)[0]
            self.had[mode] += 1
            return self.had.total(), mode, self.rng.uniform(*self.thinks_s)

    def note_paid(self, number: int, paid: Paid) -> None:
        """Counts a reply that was sent."""
        with self.lock:
            self.paid[number] = paid

    def refund(self, order: str, key: str) -> int:
        """Refunds an order; returns the receipt."""
        with self.lock:
            self.refunds[order].append(key)
            return self.receipts.setdefault(key, len(self.receipts) + 1)


@contextmanager
def talk_server(seed: int, modes: Modes = MODES, thinks_s: tuple[float, float] = THINKS_S) -> Iterator[TalkServer]:
    """Runs a server until the block ends. ``thinks_s``: the shortest and the longest time before a reply."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.state = TalkServer(f"http://127.0.0.1:{server.server_port}", Random(seed), modes, thinks_s)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="model")
        thread.start()
        try:
            yield server.state
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them
    request_queue_size = 128
    state: TalkServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: callers are killed while they wait."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = READ_TIMEOUT_S

    def do_GET(self) -> None:
        receipt = self.server.state.receipts.get(self.path.rpartition("/")[2])
        self._send(200 if receipt else 404, {"receipt": receipt})

    def do_POST(self) -> None:
        asked, came_s = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), time.monotonic()
        state = self.server.state
        if self.path == CHAT:
            conversation = _question_of(asked["messages"])[0]
            self._chat(asked["messages"])
        else:
            conversation = asked["order"].partition("-")[0]
            receipt = state.refund(asked["order"], self.headers["Idempotency-Key"])
            time.sleep(state.thinks_s[1])
            self._send(200, {"receipt": receipt})
        state.times[conversation].append((came_s, time.monotonic()))

    def _chat(self, messages: list[dict[str, Any]]) -> None:
        number, mode, seconds = self.server.state.begin()
        time.sleep(seconds)
        if mode == "break":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif mode in ("limit", "fail"):
            self._send(429 if mode == "limit" else 503, {"error": mode}, {"Retry-After": "0"})
        else:
            paid, message = _answered(number, messages)
            is_call = "tool_calls" in message
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if is_call else "stop"}
            usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
            body = {"id": f"c-{number}", "object": "chat.completion", "created": 1, "model": "m"}
            # Counted before it is sent: what has left may have arrived, even if this thread does not learn of it.
            self.server.state.note_paid(number, paid)
            self._send(200, body | {"choices": [choice], "usage": usage}, drips=mode == "drip")

    def _send(
        self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None, *, drips: bool = False
    ) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if drips:
            size = -(-len(data) // DRIPS)
            for start in range(0, len(data), size):
                self.wfile.write(data[start : start + size])
                time.sleep(DRIP_EVERY_S)
        else:
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


def _question_of(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """Returns conversation and turn, which are the last question."""
    question = next(each["content"] for each in reversed(messages) if each["role"] == "user")
    conversation, turn = question.split()
    return conversation, int(turn)


def _answered(number: int, messages: list[dict[str, Any]]) -> tuple[Paid, dict[str, Any]]:
    """Returns the reply to a conversation."""
    conversation, turn = _question_of(messages)
    if messages[-1]["role"] == "tool":
        return Paid(conversation, turn, 1), {"role": "assistant", "content": f"answer {number}"}
    function = {"name": "refund", "arguments": json.dumps({"order": f"{conversation}-{turn}"})}
    call = {"id": f"call {number}", "type": "function", "function": function}
    return Paid(conversation, turn, 0), {"role": "assistant", "content": None, "tool_calls": [call]}
