"""A Mosquitto broker on loopback: Debian's package, one process, its data in a folder of the test."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.connectors.servers.certificates import Authority
from tests.connectors.servers.fetch import install
from tests.connectors.servers.server_process import PortServer

NAME = "Mosquitto"
USER, PASSWORD, READER = "shop", "p4ss-of-the-topics", "reader"
CONFIGURATION = """listener {port} 127.0.0.1
user {account}
allow_anonymous false
password_file {folder}/passwords
acl_file {folder}/rights
persistence true
persistence_location {folder}/
max_queued_messages 0
max_inflight_messages 0
max_packet_size 1000000
"""
RIGHTS = f"user {USER}\ntopic readwrite #\nuser {READER}\ntopic read #\n"
TLS = """certfile {certificate}
keyfile {key}
cafile {ca}
require_certificate {asks}
"""
ANSWER_S = 10.0


def program() -> str | None:
    """The server's program."""
    return shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")


def is_there() -> bool:
    """Whether a server is installed."""
    return program() is not None


def fetch() -> None:
    """Installs Debian's package; its service is not started."""
    install("mosquitto", "The tests of connectors start Mosquitto", RUNLEVEL="1")


class MosquittoServer(PortServer):
    """A broker that writes its sessions when it ends in good order. It keeps its port.

    With an ``authority`` it has a certificate, and with ``asks_client`` it takes clients with a certificate only.
    """

    name, scheme, user, password = NAME, "mqtt", USER, PASSWORD
    arguments = ("-c", "mosquitto.conf")

    def __init__(self, folder: Path, authority: Authority | None = None, asks_client: bool = False) -> None:
        super().__init__(folder, program())
        text = CONFIGURATION.format(port=self.port, folder=folder, account=getpass.getuser())
        self._authority = authority
        if authority is not None:
            certificate, key = authority.server()
            asks = str(asks_client).lower()
            text += TLS.format(certificate=certificate, key=key, ca=authority.ca, asks=asks)
            self.scheme = "mqtts"
        (folder / "rights").write_text(RIGHTS, "utf-8")
        passwords = folder / "passwords"
        passwords.touch(0o600)
        for user in (USER, READER):
            subprocess.run(["mosquitto_passwd", "-b", str(passwords), user, PASSWORD], check=True, capture_output=True)
        (folder / "mosquitto.conf").write_text(text, "utf-8")

    def answers(self) -> bool:
        """Whether the broker takes a connection."""
        with suppress(OSError, TimeoutError), self.client("probe"):
            return True
        return False

    def end(self) -> None:
        """Ends the broker in good order."""
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        process.terminate()
        process.wait()

    @contextmanager
    def client(self, name: str) -> Iterator[Any]:
        """A connected client, which has nothing in common with the library. Its thread runs until the end."""
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        client.username_pw_set(USER, PASSWORD)
        if self._authority is not None:
            certificate = self._authority.client("tests")
            client.tls_set(str(self._authority.ca), str(certificate), str(certificate))
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            if not connected.wait(ANSWER_S):
                raise TimeoutError
            yield client
        finally:
            client.disconnect()
            client.loop_stop()


def serve(folder: Path) -> None:
    """Runs a broker for a user's own trial, until it is interrupted."""
    server = MosquittoServer(folder)
    server.serve(server.full_url)
