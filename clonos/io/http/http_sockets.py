"""Sockets of HTTP that end with the call which they serve: in time, and in the bytes that a reply may have.

Rules:

- Each wait of a socket is limited by what is left of the call. So no way of answering slowly gets beyond the deadline:
  neither single bytes, nor a handshake, a name of many addresses, or a server that reads slowly what is sent.
- Every byte of a reply is counted as it comes: head, interim replies, chunk sizes, extensions and trailers too.
- A lookup of a name knows no deadline. It has a thread, which is left behind when the time is up.
"""

from __future__ import annotations

import functools
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.connection import allowed_gai_family
from urllib3.util.ssl_ import create_urllib3_context

POOLED_HOSTS_MAX: Final = 32
POOLED_CONNECTIONS_PER_HOST_MAX: Final = 8
LOOKUPS_MAX: Final = 64
"""Lookups of names that run at once. A further one waits for one of them, within the time of its call."""
NANOSECONDS_PER_SECOND: Final = 1_000_000_000

Address = tuple[Any, ...]


class ReplyTooLong(Exception):
    """A reply has more bytes than its budget."""


class Budget:
    """What an attempt to send a request may use. ``phase`` is what it does now, for the message of a timeout."""

    __slots__ = ("_deadline_ns", "_monotonic", "bytes_left", "phase", "was_sent")

    def __init__(self, deadline_ns: int, monotonic: Callable[[], int]) -> None:
        self._deadline_ns = deadline_ns
        self._monotonic = monotonic
        self.bytes_left = 0
        self.phase = "connecting"
        self.was_sent = False  # some bytes of a request have been given to the kernel

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 or less behind it."""
        return (self._deadline_ns - self._monotonic()) / NANOSECONDS_PER_SECOND

    def wait_s(self) -> float:
        """How long one wait may be. Raises: TimeoutError at the deadline."""
        if (left_s := self.left_s) <= 0:
            raise TimeoutError("the time for the call is used up")
        return left_s

    def take(self, count_bytes: int) -> None:
        """Counts bytes of the reply. Raises: ReplyTooLong."""
        self.bytes_left -= count_bytes
        if self.bytes_left < 0:
            raise ReplyTooLong


current_budget: ContextVar[Budget] = ContextVar("current_budget")
"""The budget of the attempt that this thread makes: urllib3 has no way to hand it to a connection."""


class BoundedSocket(socket.socket):
    """A socket within a budget, which each request that uses the connection replaces by its own."""

    budget: Budget

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Receives, within the time and the bytes that are left."""
        self.settimeout(self.budget.wait_s())
        count_bytes = super().recv_into(buffer, nbytes or len(buffer), flags)
        self.budget.take(count_bytes)
        return count_bytes

    def send(self, data: Any, flags: int = 0) -> int:
        """Sends a part; ``sendall`` of a TLS socket is made of this."""
        self.budget.was_sent = True
        self.settimeout(self.budget.wait_s())
        return super().send(data, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Sends all, within the time that is left."""
        self.budget.was_sent = True
        self.settimeout(self.budget.wait_s())
        super().sendall(data, flags)


class _BoundedTlsSocket(BoundedSocket, ssl.SSLSocket):
    """The same with TLS. Its handshake is one wait, which ssl limits as a whole."""


class _Connection(HTTPConnection):
    """A connection whose socket is bounded."""

    def _new_conn(self) -> socket.socket:
        budget = current_budget.get()
        budget.phase = "connecting"
        try:
            return _connected(self, budget)
        except socket.gaierror as unknown:
            raise NameResolutionError(self.host, self, unknown) from unknown
        except TimeoutError as slow:
            raise ConnectTimeoutError(self, "the address does not answer") from slow
        except OSError as refused:
            raise NewConnectionError(self, f"Failed to establish a new connection: {refused}") from refused

    def request(self, *arguments: Any, **options: Any) -> None:
        """Sends a request within its own budget, also where the connection was made for another."""
        if isinstance(self.sock, BoundedSocket):
            self.sock.budget = current_budget.get()
        super().request(*arguments, **options)


class _TlsConnection(_Connection, HTTPSConnection):
    """The same with TLS."""

    def connect(self) -> None:
        """Connects and shakes hands, each within the time for an attempt to connect."""
        self.ssl_context = tls_context()
        try:
            super().connect()
        except TimeoutError as slow:
            raise ConnectTimeoutError(self, "the TLS handshake takes too long") from slow


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def pool_manager() -> urllib3.PoolManager:
    """Pools of connections with bounded sockets. Requests need a ``current_budget``."""
    manager = urllib3.PoolManager(num_pools=POOLED_HOSTS_MAX, maxsize=POOLED_CONNECTIONS_PER_HOST_MAX)
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Verifies certificates by those of the system, and host names."""
    context = create_urllib3_context()
    context.load_default_certs()
    context.sslsocket_class = _BoundedTlsSocket
    return context


def _connected(connection: HTTPConnection, budget: Budget) -> BoundedSocket:
    """A socket that is connected to the first of the host's addresses that answers."""
    addresses = _addresses(connection._dns_host, connection.port, budget)
    for count, address in enumerate(addresses, 1):
        try:
            return _connected_to(address, connection, budget)
        except OSError:
            if count == len(addresses):
                raise
    raise OSError("the name has no address")


def _connected_to(found: Address, connection: HTTPConnection, budget: Budget) -> BoundedSocket:
    family, kind, protocol, _, address = found
    attempt_s = connection.timeout or budget.wait_s()
    sock = BoundedSocket(family, kind, protocol)
    try:
        for option in connection.socket_options or ():
            sock.setsockopt(*option)
        sock.settimeout(min(attempt_s, budget.wait_s()))
        sock.connect(address)
        sock.settimeout(min(attempt_s, budget.wait_s()))  # for the handshake, if there is one
    except BaseException:
        sock.close()
        raise
    sock.budget = budget
    return sock


def _addresses(host: str, port: int, budget: Budget) -> list[Address]:
    """Where a host is. Raises: socket.gaierror, or TimeoutError at the deadline."""
    host = host.strip("[]")
    look_up = functools.partial(socket.getaddrinfo, host, port, allowed_gai_family(), socket.SOCK_STREAM)
    try:
        return look_up(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # it is a name
        pass
    lookups = _lookups
    if not lookups.acquire(timeout=budget.wait_s()):
        raise TimeoutError(f"{LOOKUPS_MAX} lookups of names wait for an answer")
    outcome: Future[list[Address]] = Future()

    def run() -> None:
        try:
            outcome.set_result(look_up())
        except Exception as error:  # noqa: BLE001  raised again in the caller's thread
            outcome.set_exception(error)
        finally:
            lookups.release()

    threading.Thread(target=run, name="name lookup", daemon=True).start()
    return outcome.result(budget.wait_s())


_lookups = threading.Semaphore(LOOKUPS_MAX)


def forget_lookups() -> None:
    """In a forked child: it has none of the threads that would end them."""
    global _lookups
    _lookups = threading.Semaphore(LOOKUPS_MAX)
