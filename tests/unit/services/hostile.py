"""A server of raw sockets that answers as slowly, as much or as wrongly as its script says."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

DRIP_S: Final = 0.02  # between two pieces: far less than any timeout, so that no single wait is ever long
READ_BYTES: Final = 65_536
HEAD_END: Final = b"\r\n\r\n"


class Conversation:
    """One connection, as its script sees it. ``number``: 0 for the first connection to the server."""

    def __init__(self, server: Hostile, connection: socket.socket, number: int) -> None:
        self._server = server
        self._connection = connection
        self.number = number

    def read(self) -> bytes:
        """The next request, with its body if it says how long that is."""
        request, size_bytes = b"", 0
        while HEAD_END not in request or len(request) < size_bytes:
            piece = self._connection.recv(READ_BYTES)
            if not piece:
                raise ConnectionError("the client has closed the connection")
            request += piece
            head, _, _ = request.partition(HEAD_END)
            named = re.search(rb"content-length: (\d+)", head.lower())
            size_bytes = len(head) + len(HEAD_END) + int(named[1]) if named else 0
        self._server.requests.append(request)
        return request

    def send(self, data: bytes) -> None:
        """Sends all bytes at once."""
        self._connection.sendall(data)

    def drip(self, piece: bytes = b"x") -> None:
        """The piece again and again, with pauses, until the client or the server goes away."""
        while not self._server.over.wait(DRIP_S):
            self._connection.sendall(piece)

    def sip(self) -> None:
        """Reads a little again and again, with pauses: a client that sends much is held up."""
        while not self._server.over.wait(DRIP_S):
            self._connection.recv(512)

    def flood(self, piece: bytes) -> None:
        """The piece again and again, as fast as the client takes it."""
        while not self._server.over.is_set():
            self._connection.sendall(piece)
            self._server.flooded_bytes += len(piece)

    def hold(self) -> None:
        """Says nothing until the server ends."""
        self._server.over.wait()


Script = Callable[[Conversation], None]


class Hostile:
    """A running server: ``url``, and the requests that it has read."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None, receive_bytes: int) -> None:
        self.over = threading.Event()
        self.requests: list[bytes] = []
        self.flooded_bytes = 0
        self._script = script
        self._tls = tls
        self._listener = socket.socket()
        if receive_bytes:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept, name="hostile server")]
        self._connections: list[socket.socket] = []

    def start(self) -> None:
        """Accepts from now on."""
        self._threads[0].start()

    def close(self) -> None:
        """Ends all connections and threads."""
        self.over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it is closed
                return
            number = len(self._connections)
            self._connections.append(connection)
            self._threads.append(
                threading.Thread(target=self._converse, args=(connection, number), name="hostile connection")
            )
            self._threads[-1].start()

    def _converse(self, connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError):
            if self._tls is None:
                self._script(Conversation(self, connection, number))
                return
            with self._tls.wrap_socket(connection.dup(), server_side=True) as secured:
                self._script(Conversation(self, secured, number))


@contextmanager
def hostile(script: Script, *, tls: ssl.SSLContext | None = None, receive_bytes: int = 0) -> Iterator[Hostile]:
    """A server that ends with the block. ``receive_bytes``: the kernel's buffer for what the client sends."""
    server = Hostile(script, tls, receive_bytes)
    server.start()
    try:
        yield server
    finally:
        server.close()


def answer(body: bytes = b"ok", status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    """A whole answer; ``headers`` are lines that end with CR LF."""
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, headers, len(body), body)
