"""Relay of TCP connections that flips bits on request: Toxiproxy has no toxic for corruption.

It runs in a thread of the runner. Each process of a job sends its control port a line
``<pid> <peer's slot> <host:port>`` for each address, and gets the port to connect to instead.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Final

from clonos.core.model.errors import EnvironmentFault

CHUNK_BYTES: Final = 1 << 16
ASK_TIMEOUT_S: Final = 5.0


class ThroughRelay:
    """Address rewriter of slots and driver that connects through the relay."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._known: dict[tuple[int, str], str] = {}

    def __reduce__(self) -> tuple[type[ThroughRelay], tuple[int]]:
        return type(self), (self.port,)  # each process has its own ports

    def __call__(self, peer: int, address: str) -> str:
        if (peer, address) not in self._known:
            self._known[peer, address] = f"tcp://127.0.0.1:{self._ask(peer, address.removeprefix('tcp://'))}"
        return self._known[peer, address]

    def _ask(self, peer: int, target: str) -> int:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=ASK_TIMEOUT_S) as asked:
                asked.sendall(f"{os.getpid()} {peer} {target}\n".encode("ascii"))
                return int(asked.makefile("rb").readline())
        except (OSError, ValueError) as error:
            raise EnvironmentFault(f"the relay at port {self.port} cannot be reached: {error}.") from None


@dataclass(frozen=True, slots=True)
class Way:
    """Listening port by which ``pid`` sends to ``peer``."""

    pid: int
    peer: int
    target: tuple[str, int]


@dataclass(slots=True)
class _Stream:
    """One direction of a connection. ``until_flip``: bytes before the next flipped bit, in corruption ``turn``."""

    way: Way
    other: socket.socket
    until_flip: int = 0
    turn: int = 0


class Relay:
    """Relay that forwards all bytes; ``corrupt`` flips bits on some ways, ``heal`` ends that."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._lock = threading.Lock()
        self._pids: frozenset[int] = frozenset()
        self._peers: frozenset[int] = frozenset()
        self._every_bytes = 0
        self._turn = 0
        self.flipped = 0
        self._control = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._control.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._streams: dict[socket.socket, _Stream] = {}
        self._woken, self._wake = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._selector.register(self._control, selectors.EVENT_READ, self._open_way)
        self._thread = threading.Thread(target=self._run, name="corrupting relay", daemon=True)
        self._thread.start()

    def corrupt(self, pids: Collection[int], peers: Collection[int], every_bytes: int) -> None:
        """Flips a bit about every ``every_bytes`` bytes sent by these processes or to these peers."""
        with self._lock:
            self._pids, self._peers, self._every_bytes = frozenset(pids), frozenset(peers), max(1, every_bytes)
            self._turn += 1

    def heal(self) -> None:
        """Ends the corruption."""
        with self._lock:
            self._every_bytes = 0

    def close(self) -> None:
        """Ends the thread and all connections."""
        self._wake.send(b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket), key
            key.fileobj.close()
        self._selector.close()
        self._wake.close()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                act: Callable[[socket.socket], None] = key.data
                assert isinstance(key.fileobj, socket.socket), key
                if key.fileobj.fileno() >= 0:
                    act(key.fileobj)

    def _open_way(self, control: socket.socket) -> None:
        asker, _ = control.accept()
        with asker:
            asker.settimeout(ASK_TIMEOUT_S)
            try:
                pid, peer, target = asker.makefile("rb").readline().decode("ascii").split()
                host, _, port = target.rpartition(":")
                way = Way(int(pid), int(peer), (host, int(port)))
                listener = socket.create_server(("127.0.0.1", 0))
                asker.sendall(b"%d\n" % listener.getsockname()[1])
            except (OSError, ValueError):  # it died while it asked
                return
        self._selector.register(listener, selectors.EVENT_READ, lambda found: self._connect(found, way))

    def _connect(self, listener: socket.socket, way: Way) -> None:
        near, _ = listener.accept()
        try:
            far = socket.create_connection(way.target, timeout=ASK_TIMEOUT_S)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            one.settimeout(ASK_TIMEOUT_S)
            self._streams[one] = _Stream(way, other)
            self._selector.register(one, selectors.EVENT_READ, self._forward)

    def _forward(self, end: socket.socket) -> None:
        stream = self._streams.get(end)
        if stream is None:
            return
        try:
            data = end.recv(CHUNK_BYTES)
            stream.other.sendall(self._spoil(stream, data))
        except OSError:
            data = b""
        if not data:
            for closed in (end, stream.other):
                self._streams.pop(closed, None)
                self._selector.unregister(closed)
                closed.close()

    def _spoil(self, stream: _Stream, data: bytes) -> bytes:
        with self._lock:
            every, turn = self._every_bytes, self._turn
            if not every or (stream.way.pid not in self._pids and stream.way.peer not in self._peers):
                return data
        if stream.turn != turn:
            stream.turn, stream.until_flip = turn, self._rng.randrange(2 * every)
        spoilt = bytearray(data)
        at = stream.until_flip
        while at < len(spoilt):
            spoilt[at] ^= 1 << self._rng.randrange(8)
            self.flipped += 1
            at += self._rng.randrange(1, 2 * every)
        stream.until_flip = at - len(spoilt)
        return bytes(spoilt)
