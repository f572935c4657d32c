"""HTTP server whose port has limits: uvicorn, with connections that are admitted and have deadlines.

uvicorn has no deadline for the first request of a connection, and refuses everybody at its limit of connections. So
the listening socket counts each connection from its first byte, before any handshake of TLS, and the protocol notes
what its client owes. A connection is ended by closing both of its directions, which its transport then sees.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from clonos.io.net.admitting_threads import TOO_MANY, end_both_ways
from clonos.io.net.connection_admission import Admission, AdmissionLimits, Owed

END_TIMEOUT_S: Final = 2
ACCEPTED_AT_ONCE: Final = 32
"""Connections that are accepted before those are read that have sent something."""
QUEUE_MAX: Final = 1_024
"""Connections that wait in the system until they are accepted."""
CONNECTIONS_OF_ADDRESS: Final = 0.2
"""Share of a port's connections that one address may have."""


class AdmittedConnections:
    """Open connections of a port, by their descriptors. Only the thread of the event loop uses it."""

    def __init__(self, admission: Admission[int]) -> None:
        self._admission = admission
        self._sockets: dict[int, socket.socket] = {}

    def enter(self, connection: socket.socket, address: str) -> bool:
        """Adds a connection, for which another one may be ended. Returns whether it is admitted."""
        number = connection.fileno()
        ended = self._admission.enter(number, address)
        if ended == number:
            return False
        if ended is not None:
            self._end(ended)
        self._sockets[number] = connection
        return True

    def leave(self, number: int) -> None:
        """Forgets a connection that is about to be closed."""
        self._admission.leave(number)
        self._sockets.pop(number, None)

    def owes(self, number: int, owed: Owed, body_bytes: int) -> None:
        """Notes what the client of a connection owes."""
        self._admission.owes(number, owed, body_bytes)

    async def end_overdue(self) -> None:
        """Ends the connections whose client is too late."""
        for number in self._admission.overdue():
            self._end(number)

    def _end(self, number: int) -> None:
        connection = self._sockets.pop(number, None)
        if connection is not None:
            end_both_ways(connection)


class AdmittedSocket(socket.socket):
    """Socket of one connection, which is forgotten when it is closed."""

    def __init__(self, accepted: socket.socket, connections: AdmittedConnections) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self._connections = connections

    def close(self) -> None:
        """Closes it."""
        if self.fileno() >= 0:
            self._connections.leave(self.fileno())
        super().close()


class AdmittingListener(socket.socket):
    """Listening socket. ``is_plain``: clients that are refused are told so, which TLS does not allow."""

    def __init__(self, listener: socket.socket, connections: AdmittedConnections, *, is_plain: bool) -> None:
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self._connections, self._is_plain = connections, is_plain

    def listen(self, _backlog: int = 0, /) -> None:
        """Listens. The event loop names how many connections it accepts at once, which is another number."""
        super().listen(QUEUE_MAX)

    def accept(self) -> tuple[socket.socket, Any]:
        """Returns a connection and the address of its client. Raises: ConnectionAbortedError: it is refused."""
        accepted, address = super().accept()
        connection = AdmittedSocket(accepted, self._connections)
        if self._connections.enter(connection, address[0] if isinstance(address, tuple) else ""):
            return connection, address
        with connection, suppress(OSError):
            connection.setblocking(False)
            if self._is_plain:
                connection.send(TOO_MANY)
        raise ConnectionAbortedError


class AdmittedConfig(uvicorn.Config):
    """Configuration of one server, with its connections."""

    def __init__(self, app: ASGIApp, connections: AdmittedConnections, **options: Any) -> None:
        super().__init__(app, http=AdmittedProtocol, callback_notify=connections.end_overdue, **options)
        self.timeout_notify = 0  # at each look of uvicorn, which is once in a second
        self.connections = connections


class AdmittedProtocol(H11Protocol):
    """Connection that notes what its client owes."""

    config: AdmittedConfig
    _number = -1
    _is_unread = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins with a connection that owes the head of a request."""
        super().connection_made(transport)
        self._number = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        """Takes in what has come."""
        super().data_received(data)
        self._note(len(data))

    def on_response_complete(self) -> None:
        """Begins to wait for the next request."""
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        """Begins to wait until the client reads."""
        super().pause_writing()
        self._is_unread = True
        self._note()

    def resume_writing(self) -> None:
        """Goes on."""
        super().resume_writing()
        self._is_unread = False
        self._note()

    def _note(self, size: int = 0) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        if self._is_unread:
            owed = Owed.READING
        elif cycle is None or cycle.response_complete:
            owed = Owed.HEAD
        else:
            owed = Owed.BODY if cycle.more_body else Owed.NOTHING
        self.config.connections.owes(self._number, owed, size)


class AdmittedServer:
    """Server of an application. ``run`` serves at a listening socket, which is closed in the end, until ``end``.

    ``certificate``, ``key``: in PEM, for TLS. ``trusted_proxies``: addresses and networks whose connections have no
    limit for each address, and whose header ``X-Forwarded-For`` counts.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: AdmissionLimits,
        certificate: Path | None = None,
        key: Path | None = None,
        trusted_proxies: Sequence[str] = (),
    ) -> None:
        self._connections = AdmittedConnections(Admission(limits))
        self._is_plain = certificate is None
        config = AdmittedConfig(
            app,
            self._connections,
            backlog=ACCEPTED_AT_ONCE,
            loop="asyncio",  # another one would not ask the listening socket
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            timeout_graceful_shutdown=END_TIMEOUT_S,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)

    def run(self, listener: socket.socket) -> None:
        """Serves. Raises: OSError: of the certificate."""
        with AdmittingListener(listener, self._connections, is_plain=self._is_plain) as admitting:
            self._server.run(sockets=[admitting])

    def end(self) -> None:
        """Asks it to end. Any thread may call this."""
        self._server.should_exit = True


def limits_of(connections_max: int, trusted_proxies: Sequence[str] = ()) -> AdmissionLimits:
    """Returns the limits of a port. Raises: ValueError: of a proxy that is neither an address nor a network."""
    trusted = tuple(map(ip_network, trusted_proxies))
    return AdmissionLimits(connections_max, round(connections_max * CONNECTIONS_OF_ADDRESS), trusted=trusted)
