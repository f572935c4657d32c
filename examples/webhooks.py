"""Receive webhooks, and answer each only when it is safe.

Gives each event once. The sender gets 202 when another process holds the event too; without an answer it sends the
event again, and the step behind the source drops the repetition by its id. The job runs until it is stopped.

    clonos run examples/webhooks.py --slots process
    curl -d '{"id": "e1", "amount": 30}' localhost:8080
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from clonos import EnvironmentFault, Job, files

PORT = int(os.environ.get("WEBHOOK_PORT", "8080"))
ANSWER_WITHIN_S = 10.0

Event = dict[str, Any]


class Webhooks:
    """Source of JSON bodies: in the journal each is a line."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self, offset_bytes: int) -> Receiver:
        return Receiver(self.port, offset_bytes)

    def cut(self, data: bytes) -> list[bytes]:
        return [line + b"\n" for line in data.split(b"\n")[:-1]]

    def decode(self, records: list[bytes]) -> list[Event]:
        return [json.loads(record) for record in records]


class Receiver:
    """HTTP server in the process of the source. It knows up to which byte the events are held elsewhere too."""

    def __init__(self, port: int, offset_bytes: int) -> None:
        self.received_bytes = offset_bytes
        self.arrived: queue.SimpleQueue[tuple[bytes, threading.Event]] = queue.SimpleQueue()
        self.unanswered: deque[tuple[int, threading.Event]] = deque()
        try:
            self.server = ThreadingHTTPServer(("localhost", port), self.handler())
        except OSError as error:
            raise EnvironmentFault(f"port {port} cannot be opened: {error}") from error
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), name="webhooks")
        self.thread.start()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        arrived = self.arrived

        class Handler(BaseHTTPRequestHandler):
            """One request: waits until its event is safe."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                try:
                    line = json.dumps(json.loads(body)).encode() + b"\n"
                except ValueError:
                    self.send_error(400)
                    return
                is_safe = threading.Event()
                arrived.put((line, is_safe))
                self.send_response(202 if is_safe.wait(ANSWER_WITHIN_S) else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Logs nothing."""

        return Handler

    def receive(self, wait_ms: int) -> bytes | None:
        try:
            line, is_safe = self.arrived.get(timeout=wait_ms / 1000)
        except queue.Empty:
            return b""
        self.received_bytes += len(line)
        self.unanswered.append((self.received_bytes, is_safe))
        return line

    def acknowledge(self, offset_bytes: int) -> None:
        while self.unanswered and self.unanswered[0][0] <= offset_bytes:
            self.unanswered.popleft()[1].set()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def first_of_each(key: str, seen: bool | None, event: Event) -> tuple[bool, Event | None]:
    return True, None if seen else event


job = Job("webhooks", checkpoint_every="500ms")
events = job.source(Webhooks(PORT), name="webhooks").key_by("id")
new = events.stateful_map(first_of_each, name="first_of_each").filter(lambda event: event is not None)
new.sink(files.jsonl("out/webhooks"), name="events")
