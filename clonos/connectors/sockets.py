"""Lines that somebody sends over TCP: ``sockets.lines``.

What a socket sent cannot be read again: this is a ``PushedSource``, whose whole lines the runtime keeps in a journal
before anybody sees them. Rules: only \\n and \\r\\n end a line; a line is taken when its end has come, and the last one
at the end of the stream also without it.

Plain TCP has no acknowledgement that the sender's program would see: what it sent behind the last kept line is lost
with the process that read it. With ``acknowledge=True`` the job says on each connection, and whenever more is kept, how
many bytes it has since it first started, as a decimal number and \\n; a server that begins there anew loses nothing.
"""

from __future__ import annotations

import socket

from clonos.connectors.connector_errors import ConnectorMisused
from clonos.connectors.filesystem.line_files import check_encoding, encoding_of_text
from clonos.core.model.errors import EnvironmentFault, JobError

RECEIVE_BYTES = 256 << 10
CONNECT_TIMEOUT_MS = 10_000
PORT_MAX = 65_535
LINE_BYTES_MAX = 1 << 20
LINE_BYTES_LIMIT = 16 << 20
"""The longest line that ``line_bytes_max`` may allow: a line travels to the keepers in one message."""


class SocketFailed(EnvironmentFault):
    """A server of lines cannot be reached, or the connection to it broke."""

    address: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.doing} {self.address} failed: {self.reason}. Start the server that sends the lines, and see that"
            " every machine of the job reaches it."
        )


class SocketLineMalformed(JobError):
    """What a server sent is no line of text."""

    address: str
    reason: str

    def __str__(self) -> str:
        return (
            f'{self.address} sent {self.reason}. Mend the server, or pass encoding=, errors="replace", line_bytes_max=.'
        )


class SocketLines:
    """A server of lines (``PushedSource``). It travels to the slots; the connection is made in that of its task."""

    def __init__(
        self, host: str, port: int, *, encoding: str, errors: str, line_bytes_max: int, acknowledge: bool
    ) -> None:
        if not 0 < port <= PORT_MAX:
            raise ConnectorMisused("sockets.lines", f"the port is {port}", f"Give one from 1 to {PORT_MAX}.")
        if not 0 < line_bytes_max <= LINE_BYTES_LIMIT:
            problem = f"line_bytes_max is {line_bytes_max}"
            raise ConnectorMisused("sockets.lines", problem, f"Give a number from 1 to {LINE_BYTES_LIMIT}.")
        check_encoding(encoding)
        self.host = host
        self.port = port
        self.encoding = encoding_of_text(encoding)
        self.errors = errors
        self.line_bytes_max = line_bytes_max
        self.acknowledges = acknowledge

    @property
    def address(self) -> str:
        """As people write it."""
        return f"{self.host}:{self.port}"

    def feed(self, offset_bytes: int) -> SocketFeed:
        """Connects. Raises ``SocketFailed``."""
        return SocketFeed(self, offset_bytes)

    def cut(self, data: bytes) -> list[bytes]:
        """Lines with their ends."""
        return [line + b"\n" for line in data.split(b"\n")[:-1]]

    def decode(self, records: list[bytes]) -> list[str]:
        """Lines without their ends. Raises ``SocketLineMalformed``."""
        try:
            return [record[:-1].removesuffix(b"\r").decode(self.encoding, self.errors) for record in records]
        except UnicodeDecodeError as error:
            malformed = f"{error.object[error.start : error.end]!r}: {error.reason}"
            raise SocketLineMalformed(self.address, malformed) from None


class SocketFeed:
    """One connection. ``_tail``: what has come of a line that is not whole yet."""

    def __init__(self, description: SocketLines, offset_bytes: int) -> None:
        self._description = description
        self._tail = bytearray()
        self._has_ended = False
        try:
            address = (description.host, description.port)
            self._socket = socket.create_connection(address, timeout=CONNECT_TIMEOUT_MS / 1000)
            # A server that dies without a word is noticed by it, though nothing is sent to it.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            raise SocketFailed(description.address, "connecting to", str(error)) from error
        try:
            self.acknowledge(offset_bytes)
        except SocketFailed:
            self.close()
            raise

    def receive(self, wait_ms: int) -> bytes | None:
        """Whole lines, as soon as there are any; b"" if none became whole within ``wait_ms``; None at the end."""
        if self._has_ended:
            return None
        self._socket.settimeout(wait_ms / 1000)
        try:
            piece = self._socket.recv(RECEIVE_BYTES)
        except (TimeoutError, BlockingIOError):
            return b""
        except OSError as error:
            raise SocketFailed(self._description.address, "receiving from", str(error)) from error
        if not piece:
            self._has_ended = True
            return bytes(self._tail) + b"\n" if self._tail else None
        cut = len(self._tail) + piece.rfind(b"\n") + 1 if b"\n" in piece else 0
        self._tail += piece
        whole = bytes(self._tail[:cut])
        del self._tail[:cut]
        if len(self._tail) > self._description.line_bytes_max:
            reason = f"a line of more than {self._description.line_bytes_max} bytes"
            raise SocketLineMalformed(self._description.address, reason)
        return whole

    def acknowledge(self, offset_bytes: int) -> None:
        """Tells the server how many of its bytes are kept, if it is to be told."""
        if not self._description.acknowledges:
            return
        self._socket.settimeout(CONNECT_TIMEOUT_MS / 1000)
        try:
            self._socket.sendall(b"%d\n" % offset_bytes)
        except OSError as error:
            raise SocketFailed(self._description.address, "acknowledging to", str(error)) from error

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


def lines(
    host: str,
    port: int,
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    line_bytes_max: int = LINE_BYTES_MAX,
    acknowledge: bool = False,
) -> SocketLines:
    """Lines that a server sends to whoever connects, as str without their ends (\\\\n or \\\\r\\\\n), until it closes.

    ``acknowledge``: the server is told how many bytes of its stream are kept, and starts there on each connection.
    """
    return SocketLines(
        host, port, encoding=encoding, errors=errors, line_bytes_max=line_bytes_max, acknowledge=acknowledge
    )
