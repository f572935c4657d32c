"""Server of fault points: holds real processes that reach a breakpoint, kills them, or lets them continue.

``with FaultPointServer() as server`` listens on this machine; the option ``fault_points=server.address`` arms the job.
A breakpoint holds the first thread that hits it until it is released or its process dies. ``slow`` delays all threads.
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
    """Breakpoint at one fault point. It holds the first matching thread; later threads pass."""

    def __init__(self, point: str, where: Where, nth: int) -> None:
        self.point, self._where, self._left = point, where, nth
        self._was_hit = threading.Event()
        self._hit: FaultPointReached | None = None
        self._connection: socket.socket | None = None

    def offer(self, reached: FaultPointReached, connection: socket.socket) -> bool:
        """Returns whether the breakpoint holds this thread, and keeps its connection. Called by the server's thread."""
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
        """Returns the thread that hit the breakpoint, if any."""
        return self._hit

    def wait(self, timeout_s: float) -> FaultPointReached:
        """Waits for a thread to hit the breakpoint. Raises TimeoutError: no thread did."""
        if not self._was_hit.wait(timeout_s):
            raise TimeoutError(f"no thread has reached {self.point!r} within {timeout_s} s")
        assert self._hit is not None, self.point
        return self._hit

    def release(self) -> None:
        """Lets the thread continue. May be called again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def kill(self, timeout_s: float) -> FaultPointReached:
        """Waits for a hit and kills the process, which has not taken another step."""
        hit = self.wait(timeout_s)
        os.kill(hit.pid, signal.SIGKILL)
        self.release()
        return hit


class FaultPointServer:
    """Server with one thread that receives the points reached."""

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
        self._thread = threading.Thread(target=self._listen, name="fault points", daemon=True)
        self._thread.start()

    def set_breakpoint(self, point: str, task: str = "", *, nth: int = 1, where: Where = lambda _: True) -> Breakpoint:
        """Sets a breakpoint for the ``nth`` thread that reaches the point from now on, in this task (empty: any)."""
        pause_point = Breakpoint(point, lambda reached: task in ("", reached.task) and where(reached), nth)
        with self._lock:
            self._breakpoints.append(pause_point)
        return pause_point

    def withdraw(self, pause_point: Breakpoint) -> None:
        """Removes a breakpoint, and lets the thread that it holds continue."""
        with self._lock:
            self._breakpoints.remove(pause_point)
        pause_point.release()

    def slow(self, points: Collection[str], pids: Collection[int], seconds: float) -> None:
        """Delays these processes (empty: all) by ``seconds`` at each of these points; 0 ends that."""
        with self._lock:
            for point in points:
                self._slow_points[point] = (frozenset(pids), seconds)

    def close(self) -> None:
        """Lets all threads continue, and stops the server."""
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
        # A report fits one packet on this machine; a process that dies here sends nothing.
        try:
            data = ready.recv(MESSAGE_BYTES_MAX)
        except ConnectionError:
            data = b""
        self._selector.unregister(ready)
        if not data or not self._is_held(data, ready):
            ready.close()

    def _release_late(self) -> float | None:
        """Releases threads whose delay has passed; returns the seconds until the next one is due."""
        now_s = time.monotonic()
        for until_s, connection in self._late:
            if until_s <= now_s:
                connection.close()
        self._late = [late for late in self._late if late[0] > now_s]
        return min((until_s - now_s for until_s, _ in self._late), default=None)

    def _is_held(self, data: bytes, connection: socket.socket) -> bool:
        try:
            reached = msgspec.json.decode(data, type=FaultPointReached)
        except msgspec.MsgspecError:  # another process, which knew this port as that of a former peer
            return False
        with self._lock:
            if any(pause_point.offer(reached, connection) for pause_point in self._breakpoints):
                return True
            pids, seconds = self._slow_points.get(reached.point, (frozenset(), 0.0))
        if seconds and (not pids or reached.pid in pids):
            self._late.append((time.monotonic() + seconds, connection))
            return True
        return False
