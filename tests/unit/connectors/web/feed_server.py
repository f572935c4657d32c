"""A WebSocket server in threads with numbered messages, which sends them after the cursor that a client names."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from tests.speed import scaled

LIMIT_S = scaled(40.0)


def after(cursor: str | None) -> dict[str, int]:
    """Subscription after a cursor, which is the number of messages before it."""
    return {"after": int(cursor or 0)}


class Feeds:
    """Server of places with messages, on one port. What it has survives ``kill`` and ``start``.

    A client that sends ``{"after": n}``, or has ``?after=n`` in its URL, gets the messages of the place from number n
    on, and then each new one; a client that does neither within its first message, or sends "live", only new ones.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, speaks: str | None = None) -> None:
        self.answers: deque[tuple[int, dict[str, str], bytes]] = deque()  # in place of the next handshakes
        self.closes: deque[tuple[int, str]] = deque()  # of the next connections, after all messages
        self.asked: list[tuple[str, dict[str, str]]] = []  # target and headers of each handshake
        self.greeted: list[Any] = []
        self.pings = 0
        self.answers_pings = True
        self._tls, self._speaks = tls, speaks
        self._places: dict[str, list[Any]] = {}
        self._changed = threading.Condition()
        self._connections: set[ServerConnection] = set()
        self._port = 0

    def __enter__(self) -> Feeds:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    def url(self, place: str = "feed") -> str:
        """URL of a place."""
        return f"{'wss' if self._tls else 'ws'}://{self.address}/{place}"

    def add(self, messages: Iterable[Any], place: str = "feed") -> None:
        """Adds messages to a place, and sends them to the clients that are there."""
        with self._changed:
            self._places.setdefault(place, []).extend(messages)
            self._changed.notify_all()

    def number(self, place: str, numbers: Iterable[int]) -> None:
        """Adds messages with these numbers to a place; ``at`` is the cursor after each."""
        count = len(self._places.get(place, []))
        self.add([{"n": number, "at": count + turn} for turn, number in enumerate(numbers, 1)], place)

    def wait_for_greetings(self, count: int) -> None:
        """Waits until clients have sent that many first messages."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.greeted) >= count, LIMIT_S), self.greeted

    def wait(self, limit_s: float) -> None:
        """Waits until something happens here, or that long."""
        with self._changed:
            self._changed.wait(limit_s)

    def start(self) -> None:
        """Opens the port."""
        listening = socket.create_server(("127.0.0.1", self._port))
        self._port = listening.getsockname()[1]
        protocols: Any = None if self._speaks is None else [self._speaks]
        self._is_closed = False
        self._server: Server = serve(
            self._talk,
            sock=listening,
            ssl=self._tls,
            subprotocols=protocols,
            process_request=self._answer,
            ping_interval=None,
            close_timeout=1,
        )
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def cut(self) -> None:
        """Breaks all connections, without a closing handshake."""
        with self._changed:
            for connection in self._connections:
                try:
                    connection.socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # its client has gone

    def kill(self) -> None:
        """Closes the port and breaks all connections."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.cut()
        self._server.shutdown()
        self._thread.join()
        with self._changed:
            assert self._changed.wait_for(lambda: not self._connections, LIMIT_S)

    def restart(self) -> None:
        """Ends the server, and starts it again."""
        self.kill()
        self.start()

    def _has_news(self, place: str, sent: int) -> bool:
        return self._is_closed or len(self._places.get(place, [])) > sent or bool(self.closes)

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        self.asked.append((request.path, {name.lower(): value for name, value in request.headers.raw_items()}))
        if not self.answers:
            return None
        status, headers, body = self.answers.popleft()
        found = Headers({"Content-Length": str(len(body)), **headers})
        return Response(status, "Told", found, body)

    def _talk(self, connection: ServerConnection) -> None:
        with self._changed:
            self._connections.add(connection)
        try:
            self._serve(connection)
        except ConnectionClosed:
            pass
        finally:
            with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()

    def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        parts = urlsplit(connection.request.path)
        place = parts.path[1:]
        after = parse_qs(parts.query).get("after", [None])[0]
        if after is None:
            greeting = json.loads(connection.recv())
            with self._changed:
                self.greeted.append(greeting)
                after = greeting["after"] if isinstance(greeting, dict) else None
                sent = len(self._places.get(place, [])) if after is None else int(after)
                self._changed.notify_all()
        else:
            sent = int(after)
        while not self._is_closed:
            with self._changed:
                messages = self._places.get(place, [])[sent:]
            for message in messages:
                connection.send(message if isinstance(message, bytes | str) else json.dumps(message))
            sent += len(messages)
            if self.closes:
                connection.close(*self.closes.popleft())
                return
            with self._changed:
                if not self._has_news(place, sent):
                    self._changed.wait(0.05)
            connection.ping()  # notices a client that has gone
