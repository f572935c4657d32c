"""HTTP server of the demo: a separate process that draws each answer at random and logs it.

``GET /banned?word=...&identity=...`` returns ``{"banned": true}`` or ``{"banned": false}``, independently of earlier
answers, so a repeated request may get another answer. Before it is sent, each answer is logged as a JSON line
``{"word", "identity", "banned", "key"}``, where the key is the caller's Idempotency-Key.

Run it as ``python -m clonos.demo.demo_server LOG``; it prints its port, and ends when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from clonos.core.model.errors import EnvironmentFault

BANNED_SHARE = 0.3
HEAD_BYTES_MAX = 64 << 10
END_TIMEOUT_S = 5.0


class BannedWords:
    """Random answers, each logged before it is returned."""

    def __init__(self, log_fd: int) -> None:
        self._log_fd = log_fd
        self._draw = random.SystemRandom().random  # noqa: TID251 it plays an external system, which has no seed

    def answer(self, word: str, identity: str, key: str) -> bool:
        """Draws and logs an answer, by one write to a file in append mode, so that lines cannot mix."""
        banned = self._draw() < BANNED_SHARE
        line = json.dumps({"word": word, "identity": identity, "banned": banned, "key": key}, ensure_ascii=False)
        os.write(self._log_fd, line.encode("utf-8") + b"\n")
        return banned


class DemoConnection(asyncio.Protocol):
    """Keep-alive connection of a caller, with as much HTTP/1.1 as a GET needs."""

    def __init__(self, words: BannedWords) -> None:
        self._words = words
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers every complete request."""
        assert self._transport is not None, "data comes after the connection"
        *heads, self._received = (self._received + data).split(b"\r\n\r\n")
        for head in heads:
            self._transport.write(self._reply(head.decode("latin-1")))
        if len(self._received) > HEAD_BYTES_MAX:
            self._transport.close()

    def _reply(self, head: str) -> bytes:
        request, *fields = head.split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in fields)}
        method, _, rest = request.partition(" ")
        url = urlsplit(rest.rpartition(" ")[0])
        asked = parse_qs(url.query)
        if method != "GET" or url.path != "/banned" or not {"word", "identity"} <= asked.keys():
            return _response("404 Not Found", {"error": "GET /banned?word=...&identity=..."})
        banned = self._words.answer(asked["word"][0], asked["identity"][0], headers.get("idempotency-key", ""))
        return _response("200 OK", {"banned": banned})


def _response(status: str, body: dict[str, object]) -> bytes:
    content = json.dumps(body).encode("utf-8")
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode("latin-1") + content


async def _serve(log_fd: int) -> None:
    loop = asyncio.get_running_loop()
    words = BannedWords(log_fd)
    server = await loop.create_server(lambda: DemoConnection(words), "127.0.0.1", 0, backlog=256)
    stdin_ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), stdin_ended.set)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await stdin_ended.wait()
    server.close()


def main() -> None:
    """Serves until standard input ends, as it does when the parent process ends."""
    log_fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    asyncio.run(_serve(log_fd))
    os.close(log_fd)


class DemoServerProcess:
    """Server as a child process. ``url`` is the address of the service without a query.

    Raises: EnvironmentFault: the server does not start.
    """

    def __init__(self, log: Path, module: str = "clonos.demo.demo_server", path: str = "/banned") -> None:
        """``module``: run with the log as its argument; it prints its port. ``path``: that of the service."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None, "it was opened as a pipe"
        port = self._process.stdout.readline().strip()
        if not port:
            raise EnvironmentFault(f"the demo's HTTP server did not start: exit code {self._process.wait()}.")
        self.url = f"http://127.0.0.1:{int(port)}{path}"

    def close(self) -> None:
        """Ends the process and waits for it."""
        assert self._process.stdin is not None, "it was opened as a pipe"
        assert self._process.stdout is not None, "it was opened as a pipe"
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


if __name__ == "__main__":
    main()
