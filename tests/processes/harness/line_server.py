"""A server of numbered lines that restarts where the job asks, and sends only the lines that the test released."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from types import TracebackType

from tests.speed import scaled

LIMIT_S = scaled(40.0)


class LineServer:
    """Serves one connection after another: reads where to begin, sends from there, hears what is kept."""

    def __init__(self) -> None:
        self.reported_bytes = 0  # the last offset that the job acknowledged
        self.connections = 0
        self.complaints: list[str] = []
        self._data = bytearray()
        self._has_ended = self._is_closed = False
        self._moved = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="line server")

    def __enter__(self) -> LineServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._moved:
            self._is_closed = True
            self._moved.notify_all()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LIMIT_S)

    def let_out(self, numbers: Sequence[int], has_ended: bool = False) -> None:
        """These lines may be sent, and whether they are the last."""
        with self._moved:
            self._data += b"".join(b"%d\n" % number for number in numbers)
            self._has_ended = has_ended
            self._moved.notify_all()

    def wait_until_all_is_acknowledged(self) -> None:
        """Waits until the job has said so of all that was let out."""
        with self._moved:
            is_acknowledged = self._moved.wait_for(
                lambda: self.reported_bytes >= len(self._data) or self.complaints, LIMIT_S
            )
            assert is_acknowledged, (self.reported_bytes, len(self._data))
            assert not self.complaints

    # ------------------------------------------------------------------ its threads

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            with connection:
                over = threading.Event()  # the other end is gone
                hearing = threading.Thread(target=self._read_from, args=(connection, over), name="line server hears")
                try:
                    place = self._begin(connection)
                    hearing.start()
                    self._send(connection, place, over)
                except OSError:
                    over.set()  # the process at the other end was killed: another one will come
                if hearing.ident is not None:
                    hearing.join(LIMIT_S)

    def _begin(self, connection: socket.socket) -> int:
        """Reads the offset at which the job wants to continue."""
        text = b""
        while not text.endswith(b"\n"):
            byte = connection.recv(1)
            if not byte:
                raise ConnectionResetError
            text += byte
        place = int(text)
        with self._moved:
            if place < self.reported_bytes:
                self.complaints.append(f"it goes back to {place}, having said that it has {self.reported_bytes}")
            self.reported_bytes = place
            self._moved.notify_all()
        return place

    def _send(self, connection: socket.socket, place: int, over: threading.Event) -> None:
        while True:
            with self._moved:
                while len(self._data) == place and not (self._has_ended or self._is_closed or over.is_set()):
                    self._moved.wait()
                data, is_last, is_closed = bytes(self._data[place:]), self._has_ended, self._is_closed
            if is_closed:
                connection.shutdown(socket.SHUT_RDWR)
            if is_closed or over.is_set():
                return
            connection.sendall(data)
            place += len(data)
            if is_last:
                connection.shutdown(socket.SHUT_WR)
                return

    def _read_from(self, connection: socket.socket, over: threading.Event) -> None:
        """Reads acknowledged offsets until the other end closes or dies."""
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    with self._moved:
                        self.reported_bytes = max(self.reported_bytes, int(line))
                        self._moved.notify_all()
        except OSError:
            pass  # reset: it was killed
        over.set()
        with self._moved:
            self._moved.notify_all()
