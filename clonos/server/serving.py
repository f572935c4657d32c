"""``clonos serve``: the process of a server, from its options to its end."""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from clonos.core.model.errors import JobError
from clonos.io.system.open_files import raise_files_limit
from clonos.job.continuing.restart_strategy import restart_strategy
from clonos.server.access.tokens import READ_TOKEN_VARIABLE, TOKEN_VARIABLE, find_tokens
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.app.server_app import server_app
from clonos.server.job_api.admitted_server import AdmittedServer, limits_of
from clonos.server.job_api.guard import LOOPBACK_HOSTS, role_by_token
from clonos.server.job_api.server_thread import listen_tcp
from clonos.server.register.databases import open_register
from clonos.server.register.register import RegisterInUse
from clonos.server.submission.submissions import Submissions
from clonos.server.supervision.spare_driver import SpareDriver
from clonos.server.supervision.supervisor import Supervisor

logger = logging.getLogger("clonos.server")

CONNECTIONS_MAX: Final = 500


class AddressUnfit(JobError):
    """The server's options of address or TLS cannot be used."""

    reason: str

    def __str__(self) -> str:
        return f"the server cannot be started: {self.reason}"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of a server (docs/server.md). ``restart_strategy``: as ``restart_strategy()`` takes it."""

    folder: Path
    port: int
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    token: str | None = None
    read_token: str | None = None
    allow_submit: bool = False
    register: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    restart_strategy: str = "fixed-delay"


def serve(options: ServeOptions, show: Callable[[str], None]) -> None:
    """Runs a server until SIGINT or SIGTERM; drivers go on. ``show``: shows a line to the user.

    Raises: AddressUnfit. RegisterInUse. RegisterFailed. TokenUnfit. PortTaken.
    """
    _check(options)
    raise_files_limit()
    with _own_folder(options.folder):
        tokens = find_tokens(options.folder, options.token, options.read_token)
        for variable in (TOKEN_VARIABLE, READ_TOKEN_VARIABLE):  # jobs must not have them
            os.environ.pop(variable, None)
        with listen_tcp(options.host, options.port) as listener:
            url = _url(options, listener)
            with _running(options) as (known, submissions):
                app = server_app(known, submissions, role_by_token(tokens.by_token), _hosts(options))
                if tokens.fresh_file is not None:
                    shown = next(iter(tokens.by_token))
                    show(f"the token is {shown} (it stays in {tokens.fresh_file}, and is shown only now)")
                show(f"the server listens on {url}, its jobs are in {options.folder}")
                _listen(app, listener, options)
                show("the server ends; its jobs go on, and the next start takes them over")


def _check(options: ServeOptions) -> None:
    """Raises: AddressUnfit."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise AddressUnfit("TLS needs both --tls-cert and --tls-key.")
    for file in (options.tls_cert, options.tls_key):
        if file is not None and not file.is_file():
            raise AddressUnfit(f"the file {file} does not exist.")
    for proxy in options.trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            raise AddressUnfit(f"--trusted-proxy needs an address or a network, and {error}.") from None
    if options.tls_cert is None and not _is_loopback(options.host):
        logger.warning(
            "the server listens on %s without TLS: tokens and data can be read on the way. Give it --tls-cert and"
            " --tls-key, or let it listen on loopback behind a proxy that has them",
            options.host,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hosts(options: ServeOptions) -> frozenset[str]:
    """Returns the names by which clients may call the server."""
    names = {*LOOPBACK_HOSTS, *(name.lower() for name in options.names)}
    if not _is_loopback(options.host):
        own = socket.gethostname()
        names |= {options.host, f"[{options.host}]", own.lower(), socket.getfqdn().lower()}
        try:
            addresses = {str(found[4][0]) for found in socket.getaddrinfo(own, None)}
        except OSError:
            addresses = set()
        names |= {f"[{address}]" if ":" in address else address for address in addresses}
    return frozenset(names)


def _url(options: ServeOptions, listener: socket.socket) -> str:
    scheme = "http" if options.tls_cert is None else "https"
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


@contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """Context in which this process alone is the server of a folder. Raises: RegisterInUse."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "jobs").mkdir(mode=0o700, exist_ok=True)
    with (folder / "server.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RegisterInUse(f"the folder {folder}") from None
        yield


@contextmanager
def _running(options: ServeOptions) -> Iterator[tuple[KnownJobs, Submissions | None]]:
    """Context in which the jobs are supervised."""
    strategy = restart_strategy(options.restart_strategy)
    register = open_register(options.register, options.folder)
    try:
        submissions = Submissions(register, options.folder) if options.allow_submit else None
        supervisor = Supervisor(register, options.folder / "jobs", strategy, SpareDriver.of(options.folder))
        try:
            supervisor.start()
            yield KnownJobs(register, supervisor), submissions
        finally:
            supervisor.close()
    finally:
        register.close()


def _listen(app: ASGIApp, listener: socket.socket, options: ServeOptions) -> None:
    proxies = options.trusted_proxies
    server = AdmittedServer(app, limits_of(CONNECTIONS_MAX, proxies), options.tls_cert, options.tls_key, proxies)
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again at its end, when there is more to close
    try:
        server.run(listener)
    except KeyboardInterrupt:
        pass
    except OSError as error:  # of the certificate
        raise AddressUnfit(f"{error}.") from None


def show_on_standard_error(line: str) -> None:
    """Shows a line."""
    sys.stderr.write(f"clonos: {line}\n")
    sys.stderr.flush()
