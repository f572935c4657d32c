"""What the tests of connectors and of the page run against, fetched once: `make brokers`.

Each system is a module beside this one with `NAME`, `is_there()` and `fetch()`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

SYSTEMS = ("kafka", "mosquitto", "nats", "postgres", "pgvector", "prometheus", "rabbitmq", "redis", "chromium")
"""Names of the modules."""

FOLDER_VARIABLE = "CLONOS_BROKERS"


class System(Protocol):
    """A server that tests start."""

    NAME: str

    def is_there(self) -> bool:
        """Whether it can be started."""

    def fetch(self) -> None:
        """Installs it; raises `SystemExit` with the command that a person has to run first."""


class BrokerMissing(Exception):
    """A server that a test needs is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not installed: run `make brokers`, once.")


def cache_folder() -> Path:
    """Where everything is kept: `$CLONOS_BROKERS`, else a folder in the home of the user."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache" / "clonos" / "brokers")


def install(package: str, purpose: str, **environment: str) -> None:
    """Installs a package of Debian.

    Raises: SystemExit: a person has to do it; the command is named after ``purpose``.
    """
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise SystemExit(f"{purpose}: sudo apt-get install -y {package}")
    subprocess.run(("apt-get", "update"), check=True, stdin=subprocess.DEVNULL)
    command = ("apt-get", "install", "--yes", "--no-install-recommends", package)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"} | environment
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=quiet)


def system(name: str) -> System:
    """The module of a system."""
    return cast(System, import_module(f"tests.connectors.servers.{name}"))


def fetch(names: tuple[str, ...] = SYSTEMS) -> None:
    """Fetches what is missing."""
    for found in map(system, names):
        if not found.is_there():
            print(f"fetching {found.NAME} for the tests", file=sys.stderr)
            found.fetch()
            if not found.is_there():
                raise SystemExit(f"{found.NAME} was fetched and cannot be found: this is a fault of its fetch().")
