"""An HTTP service that draws each answer and writes it into a file: a process that tests kill."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.connectors.servers.server_process import ServerProcess


class RateService(ServerProcess):
    """The service. It keeps its port over a kill. ``GET /rate/7`` answers a new random number."""

    name = "the rate service"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    @property
    def url(self) -> str:
        """Address of the service."""
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether the service takes a connection."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
            return True
        return False

    def given(self) -> set[tuple[int, int]]:
        """All answers that were given: number and rate."""
        lines = (self.folder / "answers.jsonl").read_text("ascii").splitlines()
        return {(int(n), rate) for n, rate in map(json.loads, lines)}

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, __file__, str(self.port), str(self.folder / "answers.jsonl")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )


class Handler(BaseHTTPRequestHandler):
    """Writes each answer before it gives it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer, in two packets, waits 40 ms for an acknowledgement
    answers_fd: int

    def do_GET(self) -> None:
        """Answers with a new number."""
        rate = secrets.randbits(30)
        os.write(self.answers_fd, json.dumps([self.path.rpartition("/")[2], rate]).encode() + b"\n")
        body = str(rate).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Writes no log of requests."""


def main(port: str, answers: str) -> None:
    """Serves until the process is killed."""
    Handler.answers_fd = os.open(answers, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with ThreadingHTTPServer(("127.0.0.1", int(port)), Handler) as server:
        server.daemon_threads = True
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
