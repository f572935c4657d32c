"""Sockets of HTTP calls, limited by the deadline of the call and by the bytes of its reply.

Rules:

- Each wait of a socket is limited by the time left for the call, so no slow server exceeds the deadline: neither by a
  reply of single bytes, nor by a slow handshake, a name with many addresses, or by reading the request slowly.
- Every byte of a reply counts when it arrives: head, interim replies, chunk sizes, extensions and trailers too.
- A name lookup has no timeout. It runs in a thread, which is abandoned when the time is up.
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
from urllib3.response import HTTPResponse
from urllib3.util.connection import allowed_gai_family
from urllib3.util.ssl_ import create_urllib3_context

POOLED_HOSTS_MAX: Final = 32
UNLIMITED: Final = 0
"""A pool keeps the connections of all calls that were open at once; the capacities of steps limit those."""
LOOKUPS_MAX: Final = 64
"""Name lookups that run at once. A further lookup waits for one of them, within the time of its call."""
NANOSECONDS_PER_SECOND: Final = 1_000_000_000

Address = tuple[Any, ...]


class ReplyTooLong(Exception):
    """The reply has more bytes than its budget."""


class Budget:
    """Time and bytes that one attempt to send a request may use. ``phase``: current activity, for the text of a
    timeout."""

    __slots__ = ("_deadline_ns", "_monotonic", "bytes_left", "phase", "was_sent")

    def __init__(self, deadline_ns: int, monotonic: Callable[[], int]) -> None:
        self._deadline_ns = deadline_ns
        self._monotonic = monotonic
        self.bytes_left = 0
        self.phase = "connecting"
        self.was_sent = False  # the kernel has accepted some bytes of the request

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 or less after it."""
        return (self._deadline_ns - self._monotonic()) / NANOSECONDS_PER_SECOND

    def wait_s(self) -> float:
        """Returns the longest permitted wait in seconds. Raises: TimeoutError after the deadline."""
        if (left_s := self.left_s) <= 0:
            raise TimeoutError("the time for the call has elapsed")
        return left_s

    def mark_sent(self) -> None:
        """Notes that the server may have received the request from now on."""
        self.was_sent = True
        self.phase = "sending the request"

    def take(self, count_bytes: int) -> None:
        """Counts bytes of the reply. Raises: ReplyTooLong when the budget is exceeded."""
        self.bytes_left -= count_bytes
        if self.bytes_left < 0:
            raise ReplyTooLong


current_budget: ContextVar[Budget] = ContextVar("current_budget")
"""Budget of the attempt that this thread makes. A context variable, because urllib3 cannot pass it to a connection."""


class BoundedSocket(socket.socket):
    """Socket with a budget; each request that reuses the connection sets its own."""

    budget: Budget

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Receives within the time and the bytes that are left."""
        self.settimeout(self.budget.wait_s())
        count_bytes = super().recv_into(buffer, nbytes or len(buffer), flags)
        self.budget.take(count_bytes)
        return count_bytes

    def send(self, data: Any, flags: int = 0) -> int:
        """Sends a part; ``sendall`` of a TLS socket calls this."""
        self.budget.mark_sent()
        self.settimeout(self.budget.wait_s())
        return super().send(data, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Sends all data within the time that is left."""
        self.budget.mark_sent()
        self.settimeout(self.budget.wait_s())
        super().sendall(data, flags)


class _BoundedTlsSocket(BoundedSocket, ssl.SSLSocket):
    """Bounded socket with TLS. Its handshake is one wait, which ssl limits as a whole."""


class _Connection(HTTPConnection):
    """Connection with a bounded socket. Its text is in the errors of urllib3."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

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
        """Sends a request within its own budget, also on a connection that another request opened."""
        if isinstance(self.sock, BoundedSocket):
            self.sock.budget = current_budget.get()
        super().request(*arguments, **options)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """Reads the head of the reply."""
        current_budget.get().phase = "waiting for the reply"
        return super().getresponse()


class _TlsConnection(_Connection, HTTPSConnection):
    """Connection with a bounded TLS socket."""

    def connect(self) -> None:
        """Connects and performs the TLS handshake, each within the connect timeout.

        Raises: ConnectTimeoutError when the handshake takes longer.
        """
        self.ssl_context = self.ssl_context or tls_context()
        try:
            super().connect()
        except TimeoutError as slow:
            raise ConnectTimeoutError(self, "the TLS handshake takes too long") from slow


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def pool_manager(ca: str | None = None) -> urllib3.PoolManager:
    """Returns connection pools with bounded sockets. Each request needs a ``current_budget``. ``ca``: see
    ``tls_context``.
    """
    context = None if ca is None else tls_context(ca)
    manager = urllib3.PoolManager(num_pools=POOLED_HOSTS_MAX, maxsize=UNLIMITED, ssl_context=context)
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager


@functools.cache
def tls_context(ca: str | None = None) -> ssl.SSLContext:
    """Returns the TLS context, which verifies host names, and certificates by the system's authorities.

    ``ca``: file with the certificates of other authorities, in place of those of the system.
    """
    context = create_urllib3_context()
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)
    context.sslsocket_class = _BoundedTlsSocket
    return context


def _connected(connection: HTTPConnection, budget: Budget) -> BoundedSocket:
    """Returns a socket connected to the first address of the host that accepts."""
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
    """Looks up the addresses of a host.

    Raises: socket.gaierror when the name is unknown; TimeoutError after the deadline.
    """
    host = host.strip("[]")
    look_up = functools.partial(socket.getaddrinfo, host, port, allowed_gai_family(), socket.SOCK_STREAM)
    try:
        return look_up(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # not a numeric address: look the name up
        pass
    lookups = _lookups
    if not lookups.acquire(timeout=budget.wait_s()):
        raise TimeoutError(f"{LOOKUPS_MAX} name lookups are still unanswered")
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
    """Resets the limit in a forked child, which has none of the threads that would release it."""
    global _lookups
    _lookups = threading.Semaphore(LOOKUPS_MAX)
