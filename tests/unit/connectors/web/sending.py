"""Requests to ``web.receive``, by a client that has nothing in common with the library."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from clonos import web
from tests.speed import scaled

PATH = "/orders"
LIMIT_S = scaled(20.0)
RETRY_S = 0.01


class Answer(NamedTuple):
    """Answer to a request, with its headers in lower case."""

    status: int
    text: str
    headers: dict[str, str]


def free_port() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def send(
    port: int, body: bytes = b"{}", headers: dict[str, str] | None = None, path: str = PATH, method: str = "POST"
) -> Answer:
    """Sends a request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, path, body, {"Idempotency-Key": "e1"} if headers is None else headers)
        reply = connection.getresponse()
        named = {name.lower(): value for name, value in reply.getheaders()}
        return Answer(reply.status, reply.read().decode(), named)
    finally:
        connection.close()


def deliver(port: int, number: int) -> None:
    """Sends a numbered event until it is answered with 200."""
    for _ in range(int(LIMIT_S / RETRY_S)):
        with suppress(OSError, http.client.HTTPException):
            if send(port, b"%d" % number, {"Idempotency-Key": f"event-{number}"}).status == 200:
                return
        threading.Event().wait(RETRY_S)
    raise AssertionError(f"event {number} was not answered")


def send_raw(port: int, text: bytes) -> bytes:
    """Sends bytes, ends sending, and returns all that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while piece := connection.recv(65_536):
            found += piece
        return found


class Receiving:
    """Source with its connection. ``journal`` has what was received."""

    def __init__(self, **options: Any) -> None:
        self.port = options.pop("port", None) or free_port()
        self.source: Any = web.receive(self.port, PATH, **options)
        self.feed = self.source.connect(0)
        self.journal = b""

    def take(self, count: int) -> None:
        """Receives until the journal has that many records."""
        while len(self.source.cut(self.journal)) < count:
            self.journal += self.feed.receive(20) or b""

    def acknowledge(self) -> None:
        """Acknowledges the journal."""
        self.feed.acknowledge(len(self.journal))

    @property
    def records(self) -> Any:
        """What the job is given, repetitions included."""
        return self.source.decode(self.source.cut(self.journal))


@contextmanager
def receiving(**options: Any) -> Iterator[Receiving]:
    """Opens a port; nobody takes what it receives."""
    found = Receiving(**options)
    try:
        yield found
    finally:
        found.feed.close()


@contextmanager
def journalling(**options: Any) -> Iterator[Receiving]:
    """Opens a port; what it receives is journalled and acknowledged at once."""
    found = Receiving(**options)
    has_ended = threading.Event()

    def run() -> None:
        while not has_ended.is_set():
            found.journal += found.feed.receive(5) or b""
            found.acknowledge()

    thread = threading.Thread(target=run, name="journal")
    thread.start()
    try:
        yield found
    finally:
        has_ended.set()
        thread.join()
        found.feed.close()
