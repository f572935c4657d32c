"""Lies in wait at the fault points of real processes: holds who reaches one, kills it, or lets it go on.

``with Ambush() as ambush`` listens on this machine; the job is armed by ``fault_points=ambush.address``. A trap that is
laid holds the first thread that comes by, until it is let go, or its process dies. ``slow`` holds everybody, a while.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

import msgspec

from clonos.io.process.fault_points import FaultPointReached

MESSAGE_BYTES_MAX = 4_096

Where = Callable[[FaultPointReached], bool]


class Breakpoint:
    """Laid at one point. ``wait`` gives who was caught; whoever comes later passes."""

    def __init__(self, point: str, where: Where, nth: int) -> None:
        self.point, self._where, self._left = point, where, nth
        self._was_hit = threading.Event()
        self._hit: FaultPointReached | None = None
        self._connection: socket.socket | None = None

    def offer(self, reached: FaultPointReached, connection: socket.socket) -> bool:
        """Whether it takes the one who has come, and keeps the connection. Called by the ambush's thread."""
        if self._hit is not None or reached.point != self.point or not self._where(reached):
            return False
        self._left -= 1
        if self._left:
            return False
        self._hit, self._connection = reached, connection
        self._was_hit.set()
        return True

    @property
    def hit(self) -> FaultPointReached | None:
        """Who was caught, if somebody was."""
        return self._hit

    def wait(self, timeout_s: float) -> FaultPointReached:
        """Who was caught. TimeoutError: nobody has come by."""
        if not self._was_hit.wait(timeout_s):
            raise TimeoutError(f"nobody has reached {self.point!r} within {timeout_s} s")
        assert self._hit is not None, self.point
        return self._hit

    def release(self) -> None:
        """Lets it go on. May be called again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def kill(self, timeout_s: float) -> FaultPointReached:
        """Waits for somebody, and kills the process, which has not gone a step further."""
        hit = self.wait(timeout_s)
        os.kill(hit.pid, signal.SIGKILL)
        self.release()
        return hit


class FaultPointServer:
    """One thread that hears who reaches what."""

    def __init__(self) -> None:
        self._breakpoints: list[Breakpoint] = []
        self._slow_points: dict[str, tuple[frozenset[int], float]] = {}  # by point: processes (none: all), seconds
        self._late: list[tuple[float, socket.socket]] = []  # held until then
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"
        self._thread = threading.Thread(target=self._listen, name="ambush", daemon=True)
        self._thread.start()

    def set_breakpoint(self, point: str, task: str = "", *, nth: int = 1, where: Where = lambda _: True) -> Breakpoint:
        """A trap for the ``nth`` who reaches the point from now on, in this task (any, when it is empty)."""
        pause_point = Breakpoint(point, lambda reached: task in ("", reached.task) and where(reached), nth)
        with self._lock:
            self._breakpoints.append(pause_point)
        return pause_point

    def slow(self, points: Collection[str], pids: Collection[int], seconds: float) -> None:
        """From now on these processes (none: all) wait so long at each of these points; 0 ends that."""
        with self._lock:
            for point in points:
                self._slow_points[point] = (frozenset(pids), seconds)

    def close(self) -> None:
        """Lets everybody go on, and ends."""
        self._wake.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------------ the thread

    def _listen(self) -> None:
        try:
            while True:
                ready = [key.fileobj for key, _ in self._selector.select(self._release_late())]
                if self._woken in ready:
                    return
                for connection in ready:
                    assert isinstance(connection, socket.socket), connection
                    self._serve(connection)
        finally:
            for pause_point in self._breakpoints:
                pause_point.release()
            for _, connection in self._late:
                connection.close()
            for key in list(self._selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket), key
                key.fileobj.close()
            self._selector.close()

    def _serve(self, ready: socket.socket) -> None:
        if ready is self._listener:
            self._selector.register(self._listener.accept()[0], selectors.EVENT_READ)
            return
        # What is told fits one packet on this machine; a process that dies here tells nothing.
        try:
            data = ready.recv(MESSAGE_BYTES_MAX)
        except ConnectionError:
            data = b""
        self._selector.unregister(ready)
        if not data or not self._is_held(data, ready):
            ready.close()

    def _release_late(self) -> float | None:
        """Those whose time is over; seconds until the next one's is."""
        now_s = time.monotonic()
        for until_s, connection in self._late:
            if until_s <= now_s:
                connection.close()
        self._late = [late for late in self._late if late[0] > now_s]
        return min((until_s - now_s for until_s, _ in self._late), default=None)

    def _is_held(self, data: bytes, connection: socket.socket) -> bool:
        try:
            reached = msgspec.json.decode(data, type=FaultPointReached)
        except msgspec.MsgspecError:  # somebody else: a process that knew this port as that of a peer which is gone
            return False
        with self._lock:
            if any(pause_point.offer(reached, connection) for pause_point in self._breakpoints):
                return True
            pids, seconds = self._slow_points.get(reached.point, (frozenset(), 0.0))
        if seconds and (not pids or reached.pid in pids):
            self._late.append((time.monotonic() + seconds, connection))
            return True
        return False
