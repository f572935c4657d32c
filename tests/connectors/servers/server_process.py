"""A server of the tests as a process: its start, its signals, its end, and what it has written."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil

from tests.connectors.servers.fetch import BrokerMissing
from tests.speed import scaled

START_LIMIT_S = scaled(90.0)


class ServerProcess:
    """Base of the servers. A class gives ``_spawn`` and ``answers``; ``name`` is that of its errors."""

    name: str
    folder: Path
    _process: subprocess.Popen[bytes] | None = None

    def _spawn(self) -> subprocess.Popen[bytes]:
        raise AssertionError("each server has its command")

    def answers(self) -> bool:
        """Whether the server takes a connection now."""
        raise AssertionError("each server has its client")

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        self.launch()
        self.wait()

    def ensure_started(self) -> None:
        """Starts the server if it was killed."""
        if self._process is None:
            self.start()

    def launch(self) -> None:
        """Starts the server."""
        assert self._process is None, "it runs already"
        self._process = self._spawn()

    def wait(self) -> None:
        """Waits until the server answers."""
        deadline, pause = time.monotonic() + START_LIMIT_S, threading.Event()
        while not self.answers():
            assert self._process is not None, "it has not been launched"
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self.log()[-3000:]}")
            pause.wait(0.05)

    def kill(self) -> None:
        """Ends the server and its children by SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            children = []
            with suppress(psutil.NoSuchProcess):  # it may have ended
                children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            process.wait()
            psutil.wait_procs(children, timeout=START_LIMIT_S)

    def close(self) -> None:
        """Ends the server; its data belongs to the test."""
        self.kill()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """The server, started, until the block ends."""
        try:
            self.start()
            yield self
        finally:
            self.close()

    def serve(self, place: str) -> None:
        """Runs the server for a user's own trial, until it is interrupted. ``place``: where it listens."""
        with self.running():
            print(f"{self.name} listens on {place}. Its data is in {self.folder}. Ctrl-C ends it.", flush=True)
            signal.sigwait({signal.SIGINT, signal.SIGTERM})

    def pause(self) -> None:
        """Stops all processes: connections stay, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def unpause(self) -> None:
        """Lets a paused server go on."""
        self._signal(signal.SIGCONT)

    def log(self) -> str:
        """What the server has written."""
        return (self.folder / "server.log").read_text("utf-8", "replace")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "it does not run"
        parent = psutil.Process(self._process.pid)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


class PortServer(ServerProcess):
    """Base of the servers of one program with a configuration, which keep their port on loopback over a kill."""

    scheme: str
    user: str
    password: str
    arguments: tuple[str, ...]

    def __init__(self, folder: Path, program: str | None) -> None:
        if program is None:
            raise BrokerMissing(self.name)
        self._program, self.folder = program, folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    @property
    def place(self) -> str:
        """Host and port, as in a URL."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """URL with the user and without a password."""
        return f"{self.scheme}://{self.user}@{self.place}"

    @property
    def full_url(self) -> str:
        """URL with the user and the password."""
        return f"{self.scheme}://{self.user}:{self.password}@{self.place}"

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self.folder / "server.log").open("ab") as log:
            command = [self._program, *self.arguments]
            return subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
