"""Lines received over TCP: ``sockets.lines``.

A socket cannot be replayed, so this is a ``PushSource``: the runtime journals complete lines before it processes
them. ``\\n`` and ``\\r\\n`` end a line, or a delimiter of the user. At the end of the stream an incomplete
line counts as complete.

Plain TCP tells the sending program nothing about what was processed: what it sent after the last journalled line is
lost if the reading process dies. With ``acknowledge=True`` the job sends, on each connection and whenever more is
journalled, the number of bytes that it holds since it first started, as a decimal number and ``\\n``; a server that
resumes there loses nothing.
"""

from __future__ import annotations

import socket
from typing import Any

from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.filesystem.line_files import check_encoding, encoding_of_text
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.model.missing_names import explains_names
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed
from clonos.operators.journal_source import END_OF_JOURNAL
from clonos.operators.lineage import Dataset, dataset_at

__all__ = ["lines", "SocketFailed", "SocketLineMalformed"]

RECEIVE_BYTES = 256 << 10
CONNECT_TIMEOUT_MS = 10_000
PORT_MAX = 65_535
LINE_BYTES_MAX = 1 << 20
LINE_END = b"\n"
DELIMITER_BYTES_MAX = 255
BMP = range(0x10000)
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
            ' Correct the server, or pass delimiter=, encoding=, errors="replace" or line_bytes_max=.'
        )


class SocketLines:
    """Description of a line server (``PushSource``); the slot of the reading task connects to it."""

    routes_malformed = True

    def __init__(
        self,
        host: str,
        port: int,
        *,
        delimiter: str | bytes,
        encoding: str,
        errors: str,
        line_bytes_max: int,
        acknowledge: bool,
    ) -> None:
        if type(port) is not int or not 0 < port <= PORT_MAX:
            raise InvalidConnector("sockets.lines", f"the port is {port!r:.80}", f"Give a port from 1 to {PORT_MAX}.")
        check_number("sockets.lines", "line_bytes_max", line_bytes_max, "bytes", LINE_BYTES_LIMIT)
        check_encoding(encoding)
        self.host = host
        self.port = port
        self.encoding = encoding_of_text(encoding)
        self.delimiter = delimiter_in(self.encoding, delimiter)
        self.errors = errors
        self.line_bytes_max = line_bytes_max
        self.acknowledges = acknowledge

    def __repr__(self) -> str:
        return f"sockets.lines({self.host!r}, {self.port})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(f"tcp://{self.address}")]

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
        delimiter = self.delimiter
        return [line + delimiter for line in data.split(delimiter)[:-1]]

    def decode(self, records: list[bytes]) -> list[Any]:
        """Decodes lines and removes their ends. A line that is not in the encoding is a ``MalformedRecord``."""
        try:
            return [self._text(record) for record in records]
        except UnicodeDecodeError:
            return PartlyMalformed(map(self._text_or_error, records))

    def _text(self, record: bytes) -> str:
        line = record.removesuffix(self.delimiter)
        if self.delimiter == LINE_END:
            line = line.removesuffix(b"\r")
        return line.decode(self.encoding, self.errors)

    def _text_or_error(self, record: bytes) -> str | MalformedRecord:
        try:
            return self._text(record)
        except UnicodeDecodeError as error:
            malformed = f"{error.object[error.start : error.end]!r}: {error.reason}"
            line = record.removesuffix(self.delimiter)
            return MalformedRecord(line, SocketLineMalformed(self.address, malformed))


class SocketFeed:
    """Connection to a line server (``ProducerConnection``)."""

    def __init__(self, description: SocketLines, offset_bytes: int) -> None:
        self._description = description
        self._delimiter = description.delimiter
        self._tail = bytearray()  # received bytes after the last line that was returned
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
        limit_bytes = self._description.line_bytes_max
        if len(self._tail) >= limit_bytes + len(self._delimiter):
            reason = f"a line of more than {limit_bytes} bytes before the delimiter {self._delimiter!r}"
            raise SocketLineMalformed(self._description.address, reason)
        self._socket.settimeout(wait_ms / 1000)
        try:
            piece = self._socket.recv(RECEIVE_BYTES)
        except (TimeoutError, BlockingIOError):
            return b""
        except OSError as error:
            raise SocketFailed(self._description.address, "receiving from", str(error)) from error
        if not piece:
            self._has_ended = True
            return self._last() if self._tail else None
        scanned_bytes = max(0, len(self._tail) - len(self._delimiter) + 1)
        self._tail += piece
        cut = self._end_of_lines(scanned_bytes, limit_bytes)
        whole = bytes(self._tail[:cut])
        del self._tail[:cut]
        return whole

    def _end_of_lines(self, scanned_bytes: int, limit_bytes: int) -> int:
        """Returns the offset after the last complete line, or before the first that is too long.

        ``scanned_bytes``: no delimiter begins before. Where delimiters overlap, the first one counts.
        """
        tail, delimiter = self._tail, self._delimiter
        if len(delimiter) == 1 and len(tail) <= limit_bytes:
            return tail.rfind(delimiter, scanned_bytes) + 1
        cut, found = 0, tail.find(delimiter, scanned_bytes)
        while 0 <= found <= cut + limit_bytes:
            cut = found + len(delimiter)
            found = tail.find(delimiter, cut)
        return cut

    def _last(self) -> bytes:
        """Returns the last line, whose delimiter did not come, or not as a whole."""
        line = bytes(self._tail) + self._delimiter
        return line[: line.find(self._delimiter)] + self._delimiter

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


@explains_calls
def lines(
    host: str,
    port: int,
    *,
    delimiter: str | bytes = "\n",
    encoding: str = "utf-8",
    errors: str = "strict",
    line_bytes_max: int = LINE_BYTES_MAX,
    acknowledge: bool = False,
) -> SocketLines:
    """Source of the lines that a TCP server sends, as str without their ends.

    The source ends when the server closes the connection. It has one task and needs ``keepers`` of at least 1.

    Args:
        host: name or address of the server.
        port: its port, 1 to 65535.
        delimiter: what ends a line, as text or bytes, and is removed. ``\\n`` also removes ``\\r`` before it.
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
        host,
        port,
        delimiter=delimiter,
        encoding=encoding,
        errors=errors,
        line_bytes_max=line_bytes_max,
        acknowledge=acknowledge,
    )


def delimiter_in(encoding: str, delimiter: str | bytes) -> bytes:
    """Returns the bytes of a delimiter.

    Raises: InvalidConnector: they cannot end a line.
    """
    try:
        found = delimiter if isinstance(delimiter, bytes) else delimiter.encode(encoding)
    except (AttributeError, UnicodeError):
        problem = f"delimiter is {delimiter!r:.80}, which is no text in {encoding}"
        raise InvalidConnector("sockets.lines", problem, "Give a text of this encoding, or bytes.") from None
    if not 0 < len(found) <= DELIMITER_BYTES_MAX:
        advice = f"Give one of 1 to {DELIMITER_BYTES_MAX} bytes."
        raise InvalidConnector("sockets.lines", f"delimiter has {len(found)} bytes", advice)
    if found.endswith(END_OF_JOURNAL):
        advice = "Let the server end lines with something else."
        raise InvalidConnector("sockets.lines", "delimiter ends with the byte 4, which ends a journal", advice)
    if found != LINE_END and isinstance(delimiter, str) and not _is_safe(encoding, found):
        problem = f"the bytes of delimiter={delimiter!r} are parts of other characters in {encoding}"
        raise InvalidConnector("sockets.lines", problem, "Let the server send UTF-8.")
    return found


def _is_safe(encoding: str, delimiter: bytes) -> bool:
    """Returns whether no byte of a delimiter is within a longer character, or the encoding can tell them apart."""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "latin-1", "iso-8859-1"):
        return True
    characters = (chr(code).encode(encoding, "ignore") for code in BMP)
    return not any(
        byte in delimiter for encoded in characters if len(encoded) > 1 and encoded not in delimiter for byte in encoded
    )


explains_names(
    __name__,
    {
        "text": "Use lines.",
        "tcp": "Use lines.",
    },
)
