"""A NATS server with JetStream on loopback: Debian's package, one process, its data in a folder of the test."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from tests.connectors.servers.certificates import Authority
from tests.connectors.servers.fetch import install
from tests.connectors.servers.server_process import PortServer

NAME = "NATS"
USER, PASSWORD, READER = "shop", "p4ss-of-the-streams", "reader"
CONFIGURATION = """host: 127.0.0.1
port: {port}
jetstream {{ store_dir: "{folder}/data" }}
max_payload: 1MB
authorization {{
  users: [
    {{ user: {user}, password: "{password}" }}
    {{ user: {reader}, password: "{password}", permissions: {{ publish: ["$JS.API.>"], subscribe: ">" }} }}
  ]
}}
"""


def program() -> str | None:
    """The server's program."""
    return shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin")


def is_there() -> bool:
    """Whether a server is installed."""
    return program() is not None


def fetch() -> None:
    """Installs Debian's package; its service is not started."""
    install("nats-server", "The tests of connectors start NATS", RUNLEVEL="1")


TLS = """tls {{
  cert_file: "{certificate}"
  key_file: "{key}"
  ca_file: "{ca}"
  verify: {asks}
}}
"""


class NatsServer(PortServer):
    """A server with one account. It keeps its port and its data over a kill.

    With an ``authority`` it has a certificate, and with ``asks_client`` it takes clients with a certificate only.
    """

    name, scheme, user, password = NAME, "nats", USER, PASSWORD
    arguments = ("-c", "nats.conf")

    def __init__(self, folder: Path, authority: Authority | None = None, asks_client: bool = False) -> None:
        super().__init__(folder, program())
        text = CONFIGURATION.format(port=self.port, folder=folder, user=USER, password=PASSWORD, reader=READER)
        self._context = cast(ssl.SSLContext | None, None)
        if authority is not None:
            certificate, key = authority.server()
            text += TLS.format(certificate=certificate, key=key, ca=authority.ca, asks=str(asks_client).lower())
            self.scheme, self._context = "tls", ssl.create_default_context(cafile=authority.ca)
            self._context.load_cert_chain(authority.client("tests"))
        (folder / "nats.conf").write_text(text, "utf-8")

    def answers(self) -> bool:
        """Whether JetStream answers."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
            return bool(self.ask(lambda jetstream: jetstream.account_info()))
        return False

    def ask(self, request: Callable[[Any], Awaitable[Any]]) -> Any:
        """The answer to a client of its own, which has nothing in common with the library."""
        import nats

        async def asked() -> Any:
            connection = await nats.connect(self.full_url, allow_reconnect=False, tls=self._context)
            try:
                return await request(connection.jetstream())
            finally:
                await connection.close()

        return asyncio.run(asked())


def serve(folder: Path) -> None:
    """Runs a server for a user's own trial, until it is interrupted."""
    server = NatsServer(folder)
    server.serve(server.full_url)
