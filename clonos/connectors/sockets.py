"""Lines that somebody sends over TCP: ``sockets.lines``.

What a socket sent cannot be read again. So this is no ``Source`` yet: the runtime writes each batch that ``receive``
gives to a journal, and reads that. What was sent after the last kept line and before a death of the process is lost,
since plain TCP has no acknowledgement that the sender's program would see.
"""

from __future__ import annotations

import socket

from clonos.connectors.faults import ConnectorMisused
from clonos.connectors.line_files import LINE_BYTES_MAX, check_encoding, encoding_of_text
from clonos.core.errors import EnvironmentFault, JobError

RECEIVE_BYTES = 256 << 10
CONNECT_TIMEOUT_MS = 10_000
PORT_MAX = 65_535


class SocketFailed(EnvironmentFault):
    """A server of lines cannot be reached, or the connection to it broke."""

    def __init__(self, address: str, doing: str, reason: str) -> None:
        super().__init__(address, doing, reason)
        self.address = address
        self.doing = doing
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.doing} {self.address} failed: {self.reason}. Start the server that sends the lines, and see that"
            " every machine of the job reaches it."
        )


class SocketLineMalformed(JobError):
    """What a server sent is no line of text."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return (
            f'{self.address} sent {self.reason}. Mend the server, or pass encoding=, errors="replace", line_bytes_max=.'
        )


class SocketLines:
    """Description of a server of lines. It travels to the slots; connections are made there."""

    def __init__(self, host: str, port: int, *, encoding: str, errors: str, line_bytes_max: int) -> None:
        if not 0 < port <= PORT_MAX:
            raise ConnectorMisused("sockets.lines", f"the port is {port}", f"Give one from 1 to {PORT_MAX}.")
        check_encoding(encoding)
        self.host = host
        self.port = port
        self.encoding = encoding_of_text(encoding)
        self.errors = errors
        self.line_bytes_max = line_bytes_max

    @property
    def address(self) -> str:
        """As people write it."""
        return f"{self.host}:{self.port}"

    def connect(self) -> SocketFeed:
        """Raises ``SocketFailed``."""
        return SocketFeed(self)


class SocketFeed:
    """One connection. ``_tail``: what has come of a line that is not whole yet."""

    def __init__(self, description: SocketLines) -> None:
        self._description = description
        self._tail = bytearray()
        self._has_ended = False
        try:
            address = (description.host, description.port)
            self._socket = socket.create_connection(address, timeout=CONNECT_TIMEOUT_MS / 1000)
        except OSError as error:
            raise SocketFailed(description.address, "connecting to", str(error)) from error

    def receive(self, wait_ms: int) -> list[str] | None:
        """Whole lines, as soon as there are any; [] if none became whole within ``wait_ms``; None at the end.

        The rest without an end of line, which the server may send last, is a line too.
        """
        if self._has_ended:
            return None
        self._socket.settimeout(wait_ms / 1000)
        try:
            piece = self._socket.recv(RECEIVE_BYTES)
        except (TimeoutError, BlockingIOError):
            return []
        except OSError as error:
            raise SocketFailed(self._description.address, "receiving from", str(error)) from error
        if not piece:
            self._has_ended = True
            rest = bytes(self._tail)
            self._tail.clear()
            return self._decode([rest]) if rest else None
        cut = len(self._tail) + piece.rfind(b"\n") + 1 if b"\n" in piece else 0
        self._tail += piece
        whole = bytes(self._tail[:cut])
        del self._tail[:cut]
        if len(self._tail) > self._description.line_bytes_max:
            reason = f"a line of more than {self._description.line_bytes_max} bytes"
            raise SocketLineMalformed(self._description.address, reason)
        return self._decode([line.removesuffix(b"\r") for line in whole.split(b"\n")[:-1]])

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def _decode(self, lines: list[bytes]) -> list[str]:
        try:
            return [line.decode(self._description.encoding, self._description.errors) for line in lines]
        except UnicodeDecodeError as error:
            raise SocketLineMalformed(
                self._description.address, f"{error.object[error.start : error.end]!r}: {error.reason}"
            ) from None


def lines(
    host: str, port: int, *, encoding: str = "utf-8", errors: str = "strict", line_bytes_max: int = LINE_BYTES_MAX
) -> SocketLines:
    """Lines that a server sends to whoever connects, as str without their ends (\\\\n or \\\\r\\\\n)."""
    return SocketLines(host, port, encoding=encoding, errors=errors, line_bytes_max=line_bytes_max)
