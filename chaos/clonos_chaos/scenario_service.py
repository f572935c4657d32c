"""The HTTP service of a scenario: a process of its own that draws each answer, logs what it said, and fails when told.

``GET /ask?source=S&offset=N`` answers ``{"answer": ...}``, another one each time. The log has a JSON line for each
question, written before anything is on the wire: ``{source, offset, answer, status, key, at_ns}``; status 0: no answer.

Run as ``python -m clonos_chaos.scenario_service LOG``. It prints its port, takes words on its standard input, and ends
when that ends: ``answer``, ``error``, ``hang``, ``down``, ``hold N`` (the Nth call from now waits for ``release``, and
``held PORT`` of its caller is printed), ``tell N`` (the same, but it is answered at once), ``release``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from clonos.core.errors import EnvironmentFault

HEAD_BYTES_MAX = 64 << 10
END_TIMEOUT_S = 5.0
ANSWER_BITS = 40


class Service:
    """Answers, or does what its ``mode`` says."""

    def __init__(self, log_fd: int) -> None:
        self.mode = "answer"
        self.connections: set[Connection] = set()
        self._log_fd = log_fd
        self._draw = random.SystemRandom().getrandbits  # noqa: TID251 it plays the outside world, which has no seed
        self._watched_in = 0  # calls until one is told of; 0: none
        self._is_holding = False
        self._held: list[Callable[[], None]] = []

    def ask(self, connection: Connection, source: int, offset: int, key: str) -> None:
        """One question, as the mode has it."""
        caller, is_held = connection.caller_port, False
        if self._watched_in:
            self._watched_in -= 1
            is_held = not self._watched_in
        if is_held and self._is_holding:
            self._held.append(lambda: self._answer(connection, source, offset, key))
        else:
            self._answer(connection, source, offset, key)
        if is_held:
            _say(f"held {caller}")

    def _answer(self, connection: Connection, source: int, offset: int, key: str) -> None:
        status = {"answer": 200, "error": 500}.get(self.mode, 0)
        answer = self._draw(ANSWER_BITS) + 1 if status == 200 else -status
        line = {"source": source, "offset": offset, "answer": answer, "status": status, "key": key}
        os.write(self._log_fd, json.dumps({**line, "at_ns": time.time_ns()}).encode() + b"\n")  # noqa: TID251
        if status:
            connection.reply(status, {"answer": answer})

    def obey(self, words: list[str]) -> None:
        """A line of the standard input."""
        if words[0] in ("hold", "tell"):
            self._watched_in, self._is_holding = int(words[1]), words[0] == "hold"
        elif words[0] == "release":
            held, self._held = self._held, []
            for answer in held:
                answer()
        else:
            self.mode = words[0]
            if self.mode != "hang":
                for connection in list(self.connections):
                    connection.close_if_waited_for(self.mode == "down")


class Connection(asyncio.Protocol):
    """One caller's connection. Just as much HTTP/1.1 as a GET needs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._waiting_count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connects."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._service.connections.add(self)
        if self._service.mode == "down":
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The caller is gone."""
        self._service.connections.discard(self)

    @property
    def caller_port(self) -> int:
        """By which the caller's process can be found."""
        assert self._transport is not None, "asked after the connection is made"
        return int(self._transport.get_extra_info("peername")[1])

    def data_received(self, data: bytes) -> None:
        """Takes every question that is complete."""
        assert self._transport is not None, "data comes after the connection"
        *heads, self._received = (self._received + data).split(b"\r\n\r\n")
        for head in heads:
            request, *fields = head.decode("latin-1").split("\r\n")
            headers = {name.strip().lower(): text.strip() for name, _, text in (f.partition(":") for f in fields)}
            asked = parse_qs(urlsplit(request.split(" ")[1]).query)
            self._waiting_count += 1
            key = headers.get("idempotency-key", "")
            self._service.ask(self, int(asked["source"][0]), int(asked["offset"][0]), key)
        if len(self._received) > HEAD_BYTES_MAX:
            self._transport.close()

    def reply(self, status: int, body: dict[str, Any]) -> None:
        """Answers the question that has waited longest."""
        assert self._transport is not None, "answered after the connection is made"
        self._waiting_count -= 1
        content = json.dumps(body).encode("utf-8")
        head = f"HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self._transport.write(head.encode("latin-1") + content)

    def close_if_waited_for(self, in_any_case: bool) -> None:
        """A call that hangs ends when the service comes back."""
        if self._transport is not None and (self._waiting_count or in_any_case):
            self._transport.abort()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _serve(log_fd: int) -> None:
    loop = asyncio.get_running_loop()
    service = Service(log_fd)
    server = await loop.create_server(lambda: Connection(service), "127.0.0.1", 0, backlog=256)
    over = asyncio.Event()

    def hear() -> None:
        line = sys.stdin.buffer.raw.readline() if hasattr(sys.stdin.buffer, "raw") else b""
        if not line:
            loop.remove_reader(sys.stdin.fileno())
            over.set()
        else:
            service.obey(line.decode("ascii").split())

    loop.add_reader(sys.stdin.fileno(), hear)
    _say(str(server.sockets[0].getsockname()[1]))
    await over.wait()
    server.close()
    for connection in list(service.connections):
        connection.close_if_waited_for(True)


def main() -> None:
    """Serves until the standard input ends, which it does when whoever started this is gone."""
    log_fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    asyncio.run(_serve(log_fd))
    os.close(log_fd)


class ServiceProcess:
    """The service as a child process. ``output_fd`` has its words, to be read without waiting."""

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clonos_chaos.scenario_service", str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        assert self._process.stdout is not None, "it was opened as a pipe"
        port = self._process.stdout.readline().strip()
        if not port:
            raise EnvironmentFault(f"the scenario's HTTP service did not start: exit code {self._process.wait()}.")
        self.url = f"http://127.0.0.1:{int(port)}/ask"
        os.set_blocking(self._process.stdout.fileno(), False)

    def tell(self, words: str) -> None:
        """What it shall do from now on."""
        assert self._process.stdin is not None, "it was opened as a pipe"
        self._process.stdin.write(f"{words}\n".encode("ascii"))
        self._process.stdin.flush()

    def held_port(self) -> int | None:
        """The port of the caller whose call is held or was told of, if there is news."""
        assert self._process.stdout is not None, "it was opened as a pipe"
        line = self._process.stdout.readline()
        return int(line.split()[1]) if line else None

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
