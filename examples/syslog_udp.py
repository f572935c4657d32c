"""Receive log messages over UDP, which cannot be asked for again.

Gives each message that arrived, as JSON lines. A message is in a journal in another process before any step sees it, so
the death of the receiving task loses none that the job has counted. What arrives while no process listens is lost: that
is UDP. The job runs until it is stopped.

    clonos run examples/syslog_udp.py
    logger --udp --server localhost --port 5514 "hello"
"""

from __future__ import annotations

import os
import socket

from clonos import EnvironmentFault, Job, files

PORT = int(os.environ.get("SYSLOG_PORT", "5514"))  # read where the job is built, so the same in all processes


class Syslog:
    """Source of UDP datagrams: in the journal each is a line."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self, offset_bytes: int) -> Datagrams:
        return Datagrams(self.port)

    def cut(self, data: bytes) -> list[bytes]:
        return [line + b"\n" for line in data.split(b"\n")[:-1]]

    def decode(self, records: list[bytes]) -> list[str]:
        return [record[:-1].decode("utf-8", "replace") for record in records]


class Datagrams:
    """Connection to whatever sends to the port."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.bind(("localhost", port))
        except OSError as error:
            self.socket.close()
            raise EnvironmentFault(f"UDP port {port} cannot be opened: {error}") from error

    def receive(self, wait_ms: int) -> bytes | None:
        self.socket.settimeout(wait_ms / 1000)
        try:
            return self.socket.recv(65_536).replace(b"\n", b" ") + b"\n"
        except (TimeoutError, BlockingIOError):
            return b""

    def acknowledge(self, offset_bytes: int) -> None:
        """Does nothing: a sender of UDP does not listen."""

    def close(self) -> None:
        self.socket.close()


job = Job("syslog_udp", checkpoint_every="1s")
job.source(Syslog(PORT), name="syslog").sink(files.jsonl("out/syslog"), name="messages")
