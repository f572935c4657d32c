"""A Redis server on loopback: Debian's package, one process, its data in a folder of the test."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.connectors.servers.certificates import Authority
from tests.connectors.servers.fetch import BrokerMissing, install
from tests.connectors.servers.server_process import ServerProcess

NAME = "Redis"
# Without the rights of the default user, Redis 7.0 leaves out the transactions of its append-only file when it starts.
USER, PASSWORD, READER = "shop", "p4ss-of-the-entries", "reader"
CONFIGURATION = f"""bind 127.0.0.1
port {{port}}
dir {{folder}}
save ""
appendonly yes
appendfsync always
user default off ~* &* +@all
user {USER} on >{PASSWORD} ~* &* +@all
user {READER} on >{PASSWORD} %R~* &* +@all
"""
TLS = """tls-port {port}
tls-cert-file {certificate}
tls-key-file {key}
tls-ca-cert-file {ca}
tls-auth-clients {asks}
"""


def program() -> str | None:
    """The server's program."""
    return shutil.which("redis-server", path="/usr/bin:/usr/local/bin")


def is_there() -> bool:
    """Whether a server is installed."""
    return program() is not None


def fetch() -> None:
    """Installs Debian's package; its service is not started."""
    install("redis-server", "The tests of connectors start Redis", RUNLEVEL="1")


class RedisProcess(ServerProcess):
    """A server that has each write on its disk before it answers. It keeps its port and its data over a kill.

    With an ``authority`` it has a certificate, and with ``asks_client`` it takes clients with a certificate only.
    """

    name = NAME

    def __init__(self, folder: Path, authority: Authority | None = None, asks_client: bool = False) -> None:
        found = program()
        if found is None:
            raise BrokerMissing(NAME)
        self._program, self.folder = found, folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        text = CONFIGURATION.format(port=0 if authority else self.port, folder=folder)
        self._scheme, self._trust = "redis", {}
        if authority is not None:
            certificate, key = authority.server()
            asks = "yes" if asks_client else "no"
            text += TLS.format(port=self.port, certificate=certificate, key=key, ca=authority.ca, asks=asks)
            self._scheme = "rediss"
            self._trust = {"ssl_ca_certs": str(authority.ca), "ssl_certfile": str(authority.client("tests"))}
        (folder / "redis.conf").write_text(text, "utf-8")

    @property
    def place(self) -> str:
        """Host and port, as in a URL."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """URL with the user and without a password."""
        return f"{self._scheme}://{USER}@{self.place}"

    @property
    def full_url(self) -> str:
        """URL with the user and the password."""
        return f"{self._scheme}://{USER}:{PASSWORD}@{self.place}"

    def answers(self) -> bool:
        """Whether the server has its data and answers."""
        import redis

        with suppress(redis.RedisError):
            return bool(self.ask("PING"))
        return False

    def ask(self, *command: Any) -> Any:
        """The answer to a client of its own, which has nothing in common with the library."""
        return self.ask_all([command])[0]

    def ask_all(self, commands: list[Any]) -> list[Any]:
        """The answers to commands, as redis-py gives them."""
        import redis

        with redis.Redis.from_url(self.full_url, protocol=2, **self._trust) as client:
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute())

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self.folder / "server.log").open("ab") as log:
            command = [self._program, "redis.conf"]
            return subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def serve(folder: Path) -> None:
    """Runs a server for a user's own trial, until it is interrupted."""
    server = RedisProcess(folder)
    try:
        server.start()
        print(f"Redis listens on {server.full_url}. Its data is in {folder}. Ctrl-C ends it.", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        server.kill()
