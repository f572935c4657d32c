"""Lines received over TCP: ``sockets.lines``.

A socket cannot be replayed, so this is a ``PushSource``: the runtime journals complete lines before it processes
them. Only ``\\n`` and ``\\r\\n`` end a line; at the end of the stream an incomplete line counts as complete.

Plain TCP tells the sending program nothing about what was processed: what it sent after the last journalled line is
lost if the reading process dies. With ``acknowledge=True`` the job sends, on each connection and whenever more is
journalled, the number of bytes that it holds since it first started, as a decimal number and ``\\n``; a server that
resumes there loses nothing.
"""

from __future__ import annotations

import socket
from typing import Any

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.filesystem.line_files import check_encoding, encoding_of_text
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed

__all__ = ["lines", "SocketFailed", "SocketLineMalformed"]

RECEIVE_BYTES = 256 << 10
CONNECT_TIMEOUT_MS = 10_000
PORT_MAX = 65_535
LINE_BYTES_MAX = 1 << 20
LINE_BYTES_LIMIT = 16 << 20
"""Largest ``line_bytes_max``, in bytes: a line travels to the keepers in one message."""


class SocketFailed(EnvironmentFault):
    """A line server cannot be reached, or the connection to it broke."""

    address: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.doing} {self.address} failed: {self.reason}. Start the server that sends the lines, and check that"
            " every machine of the job reaches it."
        )


class SocketLineMalformed(JobError):
    """A server sent bytes that are not a line of text."""

    address: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.address} sent {self.reason}."
            ' Correct the server, or pass encoding=, errors="replace" or line_bytes_max=.'
        )


class SocketLines:
    """Description of a line server (``PushSource``); the slot of the reading task connects to it."""

    routes_malformed = True

    def __init__(
        self, host: str, port: int, *, encoding: str, errors: str, line_bytes_max: int, acknowledge: bool
    ) -> None:
        if not 0 < port <= PORT_MAX:
            raise InvalidConnector("sockets.lines", f"the port is {port}", f"Give a port from 1 to {PORT_MAX}.")
        if not 0 < line_bytes_max <= LINE_BYTES_LIMIT:
            problem = f"line_bytes_max is {line_bytes_max}"
            raise InvalidConnector("sockets.lines", problem, f"Give a number from 1 to {LINE_BYTES_LIMIT}.")
        check_encoding(encoding)
        self.host = host
        self.port = port
        self.encoding = encoding_of_text(encoding)
        self.errors = errors
        self.line_bytes_max = line_bytes_max
        self.acknowledges = acknowledge

    def __repr__(self) -> str:
        return f"sockets.lines({self.host!r}, {self.port})"

    @property
    def address(self) -> str:
        """Host and port, with a colon between them."""
        return f"{self.host}:{self.port}"

    def connect(self, offset_bytes: int) -> SocketFeed:
        """Connects to the server. ``offset_bytes`` is the number of bytes of its stream that are journalled.

        Raises:
            SocketFailed: the connection fails.
        """
        return SocketFeed(self, offset_bytes)

    def cut(self, data: bytes) -> list[bytes]:
        """Splits bytes into lines with their ends."""
        return [line + b"\n" for line in data.split(b"\n")[:-1]]

    def decode(self, records: list[bytes]) -> list[Any]:
        """Decodes lines and removes their ends. A line that is not in the encoding is a ``MalformedRecord``."""
        try:
            return [self._text(record) for record in records]
        except UnicodeDecodeError:
            return PartlyMalformed(map(self._text_or_error, records))

    def _text(self, record: bytes) -> str:
        return record[:-1].removesuffix(b"\r").decode(self.encoding, self.errors)

    def _text_or_error(self, record: bytes) -> str | MalformedRecord:
        try:
            return self._text(record)
        except UnicodeDecodeError as error:
            malformed = f"{error.object[error.start : error.end]!r}: {error.reason}"
            return MalformedRecord(record[:-1], SocketLineMalformed(self.address, malformed))


class SocketFeed:
    """Connection to a line server (``ProducerConnection``)."""

    def __init__(self, description: SocketLines, offset_bytes: int) -> None:
        self._description = description
        self._tail = bytearray()  # received bytes of an incomplete line
        self._has_ended = False
        try:
            address = (description.host, description.port)
            self._socket = socket.create_connection(address, timeout=CONNECT_TIMEOUT_MS / 1000)
            # Keep-alive detects a server that vanished, although nothing is sent to it.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            raise SocketFailed(description.address, "connecting to", str(error)) from error
        try:
            self.acknowledge(offset_bytes)
        except SocketFailed:
            self.close()
            raise

    def receive(self, wait_ms: int) -> bytes | None:
        """Returns complete lines as soon as there are any, b"" if there are none within ``wait_ms``, None at the end.

        Raises:
            SocketFailed: the connection broke.
            SocketLineMalformed: a line exceeds ``line_bytes_max``.
        """
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
        """Sends the server the number of its bytes that are journalled, if ``acknowledge`` is set.

        Raises:
            SocketFailed: the connection broke.
        """
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
    """Source of the lines that a TCP server sends, as str without the line ends ``\\n`` and ``\\r\\n``.

    The source ends when the server closes the connection. It has one task and needs ``keepers`` of at least 1.

    Args:
        host: name or address of the server.
        port: its port, 1 to 65535.
        encoding: encoding of the text, in which the byte 10 must be a line end.
        errors: treatment of undecodable bytes, as for ``bytes.decode``.
        line_bytes_max: longest line in bytes, 1 MiB by default and at most 16 MiB.
        acknowledge: True to send the server the number of bytes of its stream that are held, as a decimal number and
            ``\\n``. A server that resumes its stream there on each connection loses nothing.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(sockets.lines("localhost", 9999))
    """
    return SocketLines(
        host, port, encoding=encoding, errors=errors, line_bytes_max=line_bytes_max, acknowledge=acknowledge
    )
