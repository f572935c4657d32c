"""A RabbitMQ broker on loopback: Debian's package, one Erlang process, its data in a folder of the test.

It is told its port for other nodes, so that it does not start the daemon `epmd`, which would outlive it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.connectors.servers.certificates import Authority
from tests.connectors.servers.fetch import BrokerMissing, install
from tests.connectors.servers.server_process import ServerProcess

NAME = "RabbitMQ"
USER, PASSWORD = "shop", "p4ss-of-the-broker"
PROGRAMS = Path("/usr/lib/rabbitmq/lib")
CONFIGURATION = f"""loopback_users = none
default_user = {USER}
default_pass = {PASSWORD}
listeners.tcp.1 = 127.0.0.1:{{port}}
listeners.ssl.1 = 127.0.0.1:{{secure_port}}
ssl_options.certfile = {{certificate}}
ssl_options.keyfile = {{key}}
ssl_options.cacertfile = {{ca}}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
disk_free_limit.absolute = 10MB
max_message_size = 16777216
log.console = true
log.console.level = warning
log.file = false
"""


def program() -> Path | None:
    """The newest server's program, which needs no user of its own."""
    found = sorted(PROGRAMS.glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    return found[-1] if found and shutil.which("erl") else None


def is_there() -> bool:
    """Whether a server is installed."""
    return program() is not None


def fetch() -> None:
    """Installs Debian's package; its service is not started."""
    install("rabbitmq-server", "The tests of connectors start RabbitMQ", RUNLEVEL="1")


class RabbitServer(ServerProcess):
    """A broker with one virtual host. It keeps its port and its data over a kill."""

    name = NAME

    def __init__(self, folder: Path) -> None:
        found = program()
        if found is None:
            raise BrokerMissing(NAME)
        self._program, self.folder = found, folder
        with ExitStack() as stack:
            free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            self.port, self.secure_port, nodes_port = (each.getsockname()[1] for each in free)
        self.authority = Authority(folder / "certificates")
        certificate, key = self.authority.server()
        text = CONFIGURATION.format(
            port=self.port, secure_port=self.secure_port, certificate=certificate, key=key, ca=self.authority.ca
        )
        (folder / "rabbit.conf").write_text(text, "utf-8")
        (folder / "plugins").write_text("[].\n", "utf-8")
        name = "clonos@localhost"
        self._environment = os.environ | {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_DIST_PORT": str(nodes_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbit"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            # The broker looks for epmd once a minute, and must neither find nor start one.
            "ERL_ZFLAGS": "-start_epmd false",
            "ERL_EPMD_PORT": str(self.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ALLOW_INPUT": "1",  # the script becomes the server, whose process is killed
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(
                (f"-noinput -sname {name} -start_epmd false -erl_epmd_port {nodes_port}", "+S 1:1 +sbwt none")
            ),
        }

    @property
    def place(self) -> str:
        """Host, port and virtual host, as in a URL."""
        return f"127.0.0.1:{self.port}/%2F"

    @property
    def url(self) -> str:
        """URL with the user and without a password."""
        return f"amqp://{USER}@{self.place}"

    @property
    def full_url(self) -> str:
        """URL with the user and the password."""
        return f"amqp://{USER}:{PASSWORD}@{self.place}"

    @property
    def secure_url(self) -> str:
        """URL of the port with a certificate of ``authority``."""
        return f"amqps://{USER}:{PASSWORD}@127.0.0.1:{self.secure_port}/%2F"

    def answers(self) -> bool:
        """Whether the broker takes a connection."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5), self.channel():
            return True
        return False

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel of a client of its own, which has nothing in common with the library."""
        import pika

        connection = pika.BlockingConnection(pika.URLParameters(self.full_url))
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [self._program],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )


def serve(folder: Path) -> None:
    """Runs a broker for a user's own trial, until it is interrupted."""
    server = RabbitServer(folder)
    server.serve(server.full_url)
