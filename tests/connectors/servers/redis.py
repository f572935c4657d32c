"""A Redis server on loopback: Debian's package, one process, its data in a folder of the test."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.connectors.servers.certificates import Authority
from tests.connectors.servers.fetch import install
from tests.connectors.servers.server_process import PortServer

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


class RedisProcess(PortServer):
    """A server that has each write on its disk before it answers. It keeps its port and its data over a kill.

    With an ``authority`` it has a certificate, and with ``asks_client`` it takes clients with a certificate only.
    """

    name, scheme, user, password = NAME, "redis", USER, PASSWORD
    arguments = ("redis.conf",)

    def __init__(self, folder: Path, authority: Authority | None = None, asks_client: bool = False) -> None:
        super().__init__(folder, program())
        text = CONFIGURATION.format(port=0 if authority else self.port, folder=folder)
        self._trust = {}
        if authority is not None:
            certificate, key = authority.server()
            asks = "yes" if asks_client else "no"
            text += TLS.format(port=self.port, certificate=certificate, key=key, ca=authority.ca, asks=asks)
            self.scheme = "rediss"
            self._trust = {"ssl_ca_certs": str(authority.ca), "ssl_certfile": str(authority.client("tests"))}
        (folder / "redis.conf").write_text(text, "utf-8")

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


def serve(folder: Path) -> None:
    """Runs a server for a user's own trial, until it is interrupted."""
    server = RedisProcess(folder)
    server.serve(server.full_url)
