"""HTTP service of a scenario: a separate process that draws each answer, logs it, and fails on command.

``GET /ask?step=A&path=P&source=S&offset=N``, or ``POST``, answers ``{"answer": ...}`` with a new random number. The log
has a JSON line for each question, written before the reply: ``{step, path, source, offset, answer, status, key,
at_ns}``; status 0: no reply. ``GET /ask?by_key=K`` repeats the last answer under that key, or 404; it is not logged.

Run as ``python -m clonos_chaos.scenario.scenario_service LOG ADDRESS``. It prints its port, reads commands from its
standard input, and ends when that is closed: ``answer``, ``error``, ``hang``, ``slow MS``, each for one step when its
name follows (``slow MS STEP``), and ``down``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from clonos.core.model.errors import EnvironmentFault

HEAD_BYTES_MAX = 64 << 10
END_TIMEOUT_S = 5.0
ANSWER_BITS = 40


ALL_STEPS = "*"
LOOPBACK = "127.0.0.1"


class ScenarioService:
    """Service that answers or fails by the mode of each step."""

    def __init__(self, log_fd: int) -> None:
        self.is_down = False
        self.connections: set[ServiceConnection] = set()
        self._modes: dict[str, tuple[str, float]] = {}  # by step
        self._answers: dict[str, tuple[int, int]] = {}  # status and answer by key
        self._log_fd = log_fd
        self._draw = random.SystemRandom().getrandbits  # noqa: TID251 an external system has no seed

    def ask(self, connection: ServiceConnection, question: dict[str, Any]) -> None:
        """Answers a question by the mode of its step."""
        mode, late_s = self._modes.get(question["step"], self._modes.get(ALL_STEPS, ("answer", 0.0)))
        status = {"answer": 200, "slow": 200, "error": 500}.get(mode, 0)
        answer = self._draw(ANSWER_BITS) + 1 if status == 200 else -status
        line = {**question, "answer": answer, "status": status, "at_ns": time.time_ns()}  # noqa: TID251
        self._answers[question["key"]] = (status, answer)
        os.write(self._log_fd, json.dumps(line).encode() + b"\n")
        if late_s:
            asyncio.get_running_loop().call_later(late_s, connection.reply, status, {"answer": answer})
        elif status:
            connection.reply(status, {"answer": answer})

    def answer_by_key(self, connection: ServiceConnection, key: str) -> None:
        """Repeats the answer given under a key."""
        status, answer = self._answers.get(key, (404, 0))
        connection.reply(status, {"answer": answer})

    def execute(self, words: list[str]) -> None:
        """Executes a command of the standard input."""
        late_s = float(words.pop(1)) / 1000 if words[0] == "slow" else 0.0
        step = words[1] if len(words) > 1 else ALL_STEPS
        self._modes[step] = (words[0], late_s)
        self.is_down = words[0] == "down"
        if words[0] != "hang":
            for connection in list(self.connections):
                connection.close_if_waited_for(self.is_down)


class ServiceConnection(asyncio.Protocol):
    """Connection of one caller, with as much of HTTP/1.1 as a GET needs."""

    def __init__(self, service: ScenarioService) -> None:
        self._service = service
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._waiting_count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepts a caller, unless the service is down."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._service.connections.add(self)
        if self._service.is_down:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Forgets a caller that is gone."""
        self._service.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Handles every complete request."""
        assert self._transport is not None, "data comes after the connection"
        *heads, self._received = (self._received + data).split(b"\r\n\r\n")
        for head in heads:
            request, *fields = head.decode("latin-1").split("\r\n")
            headers = {name.strip().lower(): text.strip() for name, _, text in (f.partition(":") for f in fields)}
            asked = parse_qs(urlsplit(request.split(" ")[1]).query)
            self._waiting_count += 1
            if "by_key" in asked:
                self._service.answer_by_key(self, asked["by_key"][0])
                continue
            question = {
                "step": asked["step"][0],
                "path": asked.get("path", [""])[0],
                "source": int(asked["source"][0]),
                "offset": int(asked["offset"][0]),
                "key": headers.get("idempotency-key", ""),
            }
            self._service.ask(self, question)
        if len(self._received) > HEAD_BYTES_MAX:
            self._transport.close()

    def reply(self, status: int, body: dict[str, Any]) -> None:
        """Replies to the oldest waiting request."""
        assert self._transport is not None, "answered after the connection is made"
        if self._transport.is_closing():  # the caller has given up, or was cut off
            return
        self._waiting_count -= 1
        content = json.dumps(body).encode("utf-8")
        head = f"HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self._transport.write(head.encode("latin-1") + content)

    def close_if_waited_for(self, in_any_case: bool) -> None:
        """Closes a connection with waiting requests: a hanging call ends when the service comes back."""
        if self._transport is not None and (self._waiting_count or in_any_case):
            self._transport.abort()


async def _serve(log_fd: int, address: str) -> None:
    loop = asyncio.get_running_loop()
    service = ScenarioService(log_fd)
    server = await loop.create_server(lambda: ServiceConnection(service), address, 0, backlog=256)
    over = asyncio.Event()

    def on_input() -> None:
        line = sys.stdin.buffer.raw.readline() if hasattr(sys.stdin.buffer, "raw") else b""
        if not line:
            loop.remove_reader(sys.stdin.fileno())
            over.set()
        else:
            service.execute(line.decode("ascii").split())

    loop.add_reader(sys.stdin.fileno(), on_input)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await over.wait()
    server.close()
    for connection in list(service.connections):
        connection.close_if_waited_for(True)


def main() -> None:
    """Serves until the standard input is closed, which it is when the parent process ends."""
    log_fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    asyncio.run(_serve(log_fd, sys.argv[2]))
    os.close(log_fd)


class ServiceProcess:
    """Child process of the service."""

    def __init__(self, log: Path, environment: dict[str, str], address: str = LOOPBACK) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clonos_chaos.scenario.scenario_service", str(log), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        assert self._process.stdout is not None, "it was opened as a pipe"
        port = self._process.stdout.readline().strip()
        if not port:
            raise EnvironmentFault(f"the scenario's HTTP service did not start: exit code {self._process.wait()}.")
        self.url = f"http://{address}:{int(port)}/ask"

    def command(self, words: str) -> None:
        """Sends a command to the service."""
        assert self._process.stdin is not None, "it was opened as a pipe"
        self._process.stdin.write(f"{words}\n".encode("ascii"))
        self._process.stdin.flush()

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
