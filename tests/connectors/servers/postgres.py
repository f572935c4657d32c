"""A PostgreSQL server on loopback: Debian's package, its data in a temporary folder of its own.

It refuses to run as root. Tests that run as root start it as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.connectors.servers.fetch import BrokerMissing, install
from tests.connectors.servers.server_process import ServerProcess

NAME = "PostgreSQL"
USER, PASSWORD, DATABASE = "clonos", "p4ss-of-the-server", "postgres"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "8",
    "max_replication_slots": "16",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "fsync": "off",  # a kill of the process loses nothing that it gave to the kernel
    "wal_sender_timeout": "10s",
    "log_min_messages": "warning",
}


def programs() -> Path | None:
    """Folder of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda file: float(file.parts[-3]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def is_there() -> bool:
    """Whether a server is installed."""
    return programs() is not None


def fetch() -> None:
    """Installs Debian's package."""
    install("postgresql", "The tests of connectors start PostgreSQL")


class PostgresServer(ServerProcess):
    """A server with an empty database. It keeps its port and its data over a kill.

    ``installed``: folder with another server than Debian's, which is copied. ``place``: that of its programs there.
    """

    name = NAME

    def __init__(self, installed: Path | None = None, place: str = "bin") -> None:
        found = programs() if installed is None else installed / place
        if found is None:
            raise BrokerMissing(NAME)
        self._as_user: dict[str, Any] = {}
        # Not in the folder of pytest or in the home of root, which other users cannot enter.
        self.folder = Path(tempfile.mkdtemp(prefix="clonos-postgres-"))
        if installed is not None:
            found = shutil.copytree(installed, self.folder / "installed", symlinks=True) / place
        self._programs = found
        if os.getuid() == 0:
            entry = _unprivileged()
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
            self._as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._initialize()

    @property
    def place(self) -> str:
        """Host, port and database, as in a URL."""
        return f"127.0.0.1:{self.port}/{DATABASE}"

    @property
    def url(self) -> str:
        """URL with the user and without a password."""
        return f"postgresql://{USER}@{self.place}"

    @property
    def full_url(self) -> str:
        """URL with the user and the password."""
        return f"postgresql://{USER}:{PASSWORD}@{self.place}"

    def answers(self) -> bool:
        """Whether the server takes a connection."""
        import psycopg

        with suppress(psycopg.OperationalError):
            psycopg.connect(self.full_url, connect_timeout=5).close()
            return True
        return False

    def connect(self, **options: Any) -> Any:
        """A new connection, which commits each statement."""
        import psycopg

        return psycopg.connect(self.full_url, autocommit=True, **options)

    def run(self, sql: str, *values: Any) -> list[Any]:
        """Runs a statement on a connection of its own and returns its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def psql(self, sql: str) -> list[tuple[str, ...]]:
        """Rows as text, from the server's own client: a reader that has nothing in common with the library."""
        command = [str(self._programs / "psql"), "--no-psqlrc", "-At", "-F", "\t", "-c", sql, self.full_url]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]

    @contextmanager
    def encrypted(self, certificate: Path, key: Path) -> Iterator[None]:
        """The server takes connections with TLS too, with this certificate."""
        folder = self.folder / "data"
        for found, name in ((certificate, "server.crt"), (key, "server.key")):
            shutil.copyfile(found, folder / name)
            (folder / name).chmod(0o600)
            if self._as_user:
                os.chown(folder / name, self._as_user["user"], self._as_user["group"])
        try:
            self._set_encryption("on")
            yield
        finally:
            self._set_encryption("off")

    def close(self) -> None:
        """Ends the server and removes its data."""
        self.kill()
        shutil.rmtree(self.folder)

    def _set_encryption(self, state: str) -> None:
        with self.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET ssl = {state}")
            connection.execute("SELECT pg_reload_conf()")
        while self.run("SHOW ssl") != [(state,)]:  # which a new session shows when the server has read it
            pass

    def _spawn(self) -> subprocess.Popen[bytes]:
        options = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        return self._run("postgres", "-D", "data", "-p", str(self.port), *options)

    def _initialize(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)  # in a folder that nobody else enters
        # The cheap method: a test connects hundreds of times.
        options = ("--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C", "--auth=md5")
        if self._run("initdb", "-D", "data", "-U", USER, "--pwfile=password", *options).wait() != 0:
            raise RuntimeError(f"initdb failed:\n{self.log()[-3000:]}")

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as_user,
            )


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody.")


def serve(_folder: Path) -> None:
    """Runs a server for a user's own trial, until it is interrupted."""
    server = PostgresServer()
    server.serve(server.full_url)
