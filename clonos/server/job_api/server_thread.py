"""Thread of a process that serves an application, on TCP or on a Unix socket."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from clonos.core.model.errors import EnvironmentFault
from clonos.io.net.connection_admission import AdmissionLimits
from clonos.job.handle import Handle
from clonos.server.job_api.admitted_server import AdmittedServer
from clonos.server.job_api.app import job_app
from clonos.server.job_api.guard import Role, role_by_token
from clonos.server.job_api.job_source import HandleSource
from clonos.server.job_api.job_watch import JobWatch
from clonos.server.job_api.log_ring import LogRing

LOOPBACK: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8090
PORTS_TRIED: Final = 20
"""Ports from the default one on that are tried if the user names none."""

CONNECTIONS_MAX: Final = 200


class PortTaken(EnvironmentFault):
    """No server can listen at the address."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"the page cannot be served at {self.address}: {self.reason}. Name another port with --ui-port."


class ServerThread:
    """Thread that serves ``app`` at a socket, which it closes in the end. It serves when the constructor returns."""

    def __init__(self, app: ASGIApp, listener: socket.socket, name: str = "job api") -> None:
        self._listener = listener
        self._server = AdmittedServer(app, AdmissionLimits(CONNECTIONS_MAX, CONNECTIONS_MAX))  # all have one address
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._server.run(self._listener)

    def close(self) -> None:
        """Ends the thread: event streams should have ended before."""
        self._server.end()
        self._thread.join()


def listen_tcp(host: str, port: int | None) -> socket.socket:
    """Returns a listening socket. ``port``: None takes the first free one from 8090 on, 0 any.

    Raises: PortTaken.
    """
    ports = range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED) if port is None else (port,)
    reason = ""
    for each in ports:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, each))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            reason = error.strerror or str(error)
    raise PortTaken(f"{host}:{ports[0]}", reason)


def listen_unix(path: Path) -> socket.socket:
    """Returns a listening Unix socket that only this user may open. Raises: PortTaken."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise PortTaken(str(path), error.strerror or str(error)) from None
    return listener


@contextmanager
def served_job(handle: Handle, logs: LogRing, listener: socket.socket) -> Iterator[str]:
    """Context in which the page and the API of a job are served at a TCP socket of the loopback interface, which is
    closed in the end.

    Gives the URL with a fresh token in its fragment, which a browser does not send.
    """
    token = secrets.token_urlsafe(24)
    port = listener.getsockname()[1]
    with _served(handle, logs, listener, token):
        yield f"http://{LOOPBACK}:{port}/#token={token}"


@contextmanager
def served_job_at(handle: Handle, logs: LogRing, path: Path) -> Iterator[None]:
    """Context in which the API of a job is served on a Unix socket, without tokens. Raises: PortTaken."""
    with _served(handle, logs, listen_unix(path), None):
        yield
    path.unlink(missing_ok=True)


@contextmanager
def _served(handle: Handle, logs: LogRing, listener: socket.socket, token: str | None) -> Iterator[None]:
    try:
        watch = JobWatch(HandleSource(handle), logs)
        app = job_app(watch, None, None) if token is None else job_app(watch, role_by_token({token: Role.WRITE}))
    except BaseException:
        listener.close()
        raise
    watch.start()
    server = ServerThread(app, listener)
    try:
        yield
    finally:
        watch.close()
        server.close()
