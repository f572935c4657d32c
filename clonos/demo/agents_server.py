"""Server of the demo of agents: a model that answers each time otherwise, and a shop. It logs each request.

- ``POST /v1/chat/completions`` asks for a refund of a random amount, and then says how much was refunded.
- ``POST /refunds`` refunds an order; ``GET /refunds/KEY`` returns the refund with this idempotency key, or 404.

Run it as ``python -m clonos.demo.agents_server LOG``; it prints its port, and ends when its standard input ends.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

THINKING_S: Final = 0.05
"""Seconds that the model takes for a reply, so that a kill meets questions under way."""

CENTS_MAX: Final = 10_000
TOKENS: Final = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}

_draw = random.SystemRandom().randint  # noqa: TID251 it plays an external system, which has no seed


class AgentsServer(ThreadingHTTPServer):
    """Model and shop. ``refunds``: the refunds by idempotency key."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, log_fd: int) -> None:
        super().__init__(("127.0.0.1", 0), ModelAndShop)
        self.log_fd = log_fd
        self.refunds: dict[str, dict[str, Any]] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a connection breaks when its process is killed."""

    def log(self, **entry: Any) -> None:
        """Logs a request by one write to a file in append mode, so that lines cannot mix."""
        os.write(self.log_fd, json.dumps(entry).encode() + b"\n")


class ModelAndShop(BaseHTTPRequestHandler):
    """Handler of a connection."""

    server: AgentsServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers what has become of a refund."""
        found = self.server.refunds.get(self.path.rpartition("/")[2])
        self._reply(found if found is not None else {"error": "no such refund"}, 200 if found is not None else 404)

    def do_POST(self) -> None:
        """Answers a question, or refunds an order."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Idempotency-Key", "")
        if self.path == "/refunds":
            self.server.log(kind="refund", key=key, **asked)
            self.server.refunds[key] = asked
            self._reply(asked)
            return
        self.server.log(kind="question", key=key)
        time.sleep(THINKING_S)
        self._reply(completion(asked["messages"]))

    def _reply(self, content: object, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Prints nothing."""


def completion(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the next reply in a conversation whose last message of the user is the number of an order."""
    place = max(number for number, message in enumerate(messages) if message["role"] == "user")
    results = [message["content"] for message in messages[place:] if message["role"] == "tool"]
    message: dict[str, Any] = {"role": "assistant", "content": results[0] if results else None}
    if not results:
        arguments = json.dumps({"order": int(messages[place]["content"]), "cents": _draw(1, CENTS_MAX)})
        function = {"name": "refund", "arguments": arguments}
        message["tool_calls"] = [{"id": "call", "type": "function", "function": function}]
    return {"model": "demo", "choices": [{"message": message, "finish_reason": "stop"}], "usage": TOKENS}


def main() -> None:
    """Serves until standard input ends, as it does when the parent process ends."""
    server = AgentsServer(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
    threading.Thread(target=server.serve_forever, daemon=True, name="server of the demo").start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
