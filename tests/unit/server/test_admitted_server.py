"""A server on loopback whose clients send nothing, or slowly, or read nothing: the others are answered."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from clonos.io.net.connection_admission import AdmissionLimits
from clonos.server.job_api.admitted_server import AdmittedServer, limits_of
from clonos.server.job_api.server_thread import LOOPBACK, listen_tcp, listen_unix
from tests.connectors.servers.certificates import Authority
from tests.speed import scaled

pytestmark = pytest.mark.slow

FEW = AdmissionLimits(connections_max=8, address_connections_max=5)
AT_ONCE = AdmissionLimits(connections_max=20, address_connections_max=20, head_s=0, body_s=0, answer_s=0)
HEAD = b"GET /%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
BIG_BYTES = 64 << 20


class _App:
    """An application. ``/held`` is answered when ``gate`` is set, ``/big`` with more than anybody buffers."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.gate = threading.Event()
        self.clients: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.clients.append(scope["client"][0] if scope["client"] else "")
        while scope["path"] == "/body" and (await receive()).get("more_body"):
            pass
        self.begun.release()
        if scope["path"] == "/held":
            await asyncio.to_thread(self.gate.wait)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        pieces = [bytes(1 << 20)] * (BIG_BYTES >> 20) if scope["path"] == "/big" else [b"answered"]
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})


class _Client:
    """Connections to a server; they are closed in the end."""

    def __init__(self, open_one: Callable[[], socket.socket], stack: ExitStack) -> None:
        self._open_one, self._stack = open_one, stack

    def connect(self, sent: bytes = b"") -> socket.socket:
        """A connection that has sent something."""
        connection = self._stack.enter_context(self._open_one())
        connection.settimeout(scaled(20))
        if sent:
            connection.sendall(sent)
        return connection

    def status(self, path: bytes = b"", head: bytes = HEAD) -> int:
        """The status of the answer to a right request."""
        connection = self.connect(head % path)
        return int(connection.recv(100).split()[1])


def _is_ended(connection: socket.socket) -> bool:
    """Whether the server has ended a connection, for which this waits."""
    with suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    return True


@contextmanager
def _served(app: _App, server: AdmittedServer, listener: socket.socket) -> Iterator[_Client]:
    address = listener.getsockname()

    def connected() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        connection.connect(address)
        return connection

    thread = threading.Thread(target=server.run, args=(listener,))
    thread.start()
    with ExitStack() as stack:
        try:
            yield _Client(connected, stack)
        finally:
            app.gate.set()
            server.end()
            stack.close()
            thread.join()


@pytest.fixture
def app() -> _App:
    return _App()


def test_silent_connections_do_not_keep_others_out_and_the_oldest_goes_first(app: _App) -> None:
    with _served(app, AdmittedServer(app, FEW), listen_tcp(LOOPBACK, 0)) as client:
        silent = [client.connect(b"GET / HT" if number % 2 else b"") for number in range(60)]
        assert [client.status() for _ in range(20)] == [200] * 20
        assert all(map(_is_ended, silent[:55]))


def test_silent_connections_to_the_socket_of_a_driver_do_not_keep_others_out(app: _App, tmp_path: Path) -> None:
    with _served(app, AdmittedServer(app, FEW), listen_unix(tmp_path / "api")) as client:
        for _ in range(60):
            client.connect()
        assert [client.status() for _ in range(20)] == [200] * 20


def test_connections_that_are_served_are_not_ended_for_new_connections_which_get_503(app: _App) -> None:
    with _served(app, AdmittedServer(app, FEW), listen_tcp(LOOPBACK, 0)) as client:
        served = [client.connect(HEAD % b"held") for _ in range(5)]
        for _ in served:
            assert app.begun.acquire(timeout=scaled(20))
        assert client.status() == 503
        app.gate.set()
        assert [connection.recv(100).split()[1] for connection in served] == [b"200"] * 5
        assert all(map(_is_ended, served))
        assert client.status() == 200


def test_a_trusted_proxy_has_all_connections_and_names_its_clients(app: _App) -> None:
    server = AdmittedServer(app, limits_of(40, [LOOPBACK]), trusted_proxies=[LOOPBACK])
    head = b"GET /%s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 10.1.2.3\r\n\r\n"
    with _served(app, server, listen_tcp(LOOPBACK, 0)) as client:
        for _ in range(30):
            client.connect(head % b"held")
            assert app.begun.acquire(timeout=scaled(20))
        assert set(app.clients) == {"10.1.2.3"}
        assert client.status(b"", head) == 200


def test_a_client_has_a_deadline_for_each_part_of_a_request_and_for_reading(app: _App) -> None:
    """The head of a first request, that of a later one, a body, and the reading of an answer."""
    body = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab"
    next_one = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"
    with _served(app, AdmittedServer(app, AT_ONCE), listen_tcp(LOOPBACK, 0)) as client:
        unread = client.connect(HEAD % b"big")
        assert app.begun.acquire(timeout=scaled(20))
        late = [client.connect(sent) for sent in (b"", b"GET / HT", body, next_one)]
        assert all(map(_is_ended, late))
        received = 0
        with suppress(ConnectionError):
            while piece := unread.recv(1 << 20):
                received += len(piece)
        assert received < BIG_BYTES


def test_a_handshake_of_tls_that_does_not_come_has_the_limits_of_a_silent_connection(app: _App, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    with _served(app, AdmittedServer(app, FEW, certificate, key), listen_tcp(LOOPBACK, 0)) as client:
        silent = [client.connect(b"\x16\x03\x01" if number % 2 else b"") for number in range(20)]
        with trusting.wrap_socket(client.connect(), server_hostname=LOOPBACK) as connection:
            connection.sendall(HEAD % b"")
            assert connection.recv(100).split()[1] == b"200"
        assert all(map(_is_ended, silent[:15]))
