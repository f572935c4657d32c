"""Server of ``socketserver`` with a thread for each connection, whose port has limits."""

from __future__ import annotations

import logging
import socket
import sys
from contextlib import suppress
from socketserver import BaseServer, ThreadingMixIn
from threading import Lock, Thread
from typing import Any, Final

from clonos.io.net.connection_admission import Admission, AdmissionLimits, Owed

JOIN_S: Final = 3.0
"""Seconds that the thread of a connection has to end, when the server closes."""

TOO_MANY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

logger = logging.getLogger("clonos.run")


class AdmittingThreads(ThreadingMixIn, BaseServer):
    """Mixin of a server of connections, whose deadlines are those of its handlers.

    A handler says by ``owes`` what its client owes. While a connection waits for its client, it may be ended.
    """

    daemon_threads = True
    request_queue_size = 128

    def begin(self, limits: AdmissionLimits, name: str) -> None:
        """Sets the limits, before the server accepts connections. ``name``: of the threads."""
        self._name = name
        self.failure: Exception | None = None
        self._lock = Lock()
        self._admission: Admission[socket.socket] = Admission(limits)
        self._serving: dict[socket.socket, Thread] = {}

    def owes(self, connection: socket.socket, owed: Owed) -> None:
        """Notes what the client of a connection owes from now on."""
        with self._lock:
            self._admission.owes(connection, owed)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection in a thread of its own, and ends another one for it if there are too many."""
        arguments = request, client_address
        thread = Thread(target=self.process_request_thread, args=arguments, name=self._name, daemon=True)
        with self._lock:
            ended = self._admission.enter(request, client_address[0])
            is_admitted = ended is not request
            if is_admitted:
                self._serving[request] = thread
            if is_admitted and ended is not None:
                end_both_ways(ended)
        if is_admitted:
            thread.start()
            return
        request.setblocking(False)
        with suppress(OSError):  # it has gone, or reads nothing
            request.send(TOO_MANY)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        with self._lock:
            self._admission.leave(request)
            self._serving.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Notes a failure that is not one of the connection."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            logger.debug("a connection of %s has ended: %r", self._name, error)
        elif isinstance(error, Exception):
            self.failure = error

    def end_connections(self) -> None:
        """Lets all connections end, and waits for their threads, when no more are accepted."""
        with self._lock:
            opened = dict(self._serving)
        for connection in opened:
            with suppress(OSError):  # it has ended by itself
                connection.shutdown(socket.SHUT_RD)
        for thread in opened.values():
            thread.join(JOIN_S)


def end_both_ways(connection: socket.socket) -> None:
    """Ends both directions of a connection, which the thread or the loop that waits for it then sees."""
    with suppress(OSError):  # it has just ended
        connection.shutdown(socket.SHUT_RDWR)
