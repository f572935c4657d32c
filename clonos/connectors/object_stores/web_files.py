"""Files at ``https://`` and ``http://``: read by ranges where the server has them, else from the start.

urllib3 and not fsspec: its retries know ``Retry-After``, back-off and redirects, each reply can be compared with the
version that was opened, and it needs neither an event loop nor another package.

What a server without ranges sends is kept in an unnamed file in the temporary folder, so that any order of reads
transfers the file once.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import tempfile
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import IO, Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError

from clonos.connectors.object_stores.netrc_logins import login_of
from clonos.io.store.object_status import ObjectReplaced, ObjectStatus
from clonos.io.system import wall_clock

PIECE_BYTES: Final = 256 << 10
CONNECT_S: Final = 10.0
READ_S: Final = 30.0
"""Time without a byte after which a request counts as broken."""

PAUSE_S: Final = 0.2
PAUSE_S_MAX: Final = 5.0
RETRY_AFTER_S_MAX: Final = 20
"""A task that waits longer than this looks dead."""

RETRIES_MAX: Final = 5
"""Repetitions of a request. A reply that breaks counts only if it brought nothing."""

REDIRECTS_MAX: Final = 5
TRANSIENT: Final = (408, 429, 500, 502, 503, 504)
CONTENT_RANGE: Final = re.compile(r"bytes (?:\d+-\d+|\*)/(\d+)")
OK, PARTIAL, RANGE_REFUSED = 200, 206, 416


class WebFile:
    """File of a web server. ``has_ranges``: the server sends parts of it."""

    def __init__(self, url: str) -> None:
        """Asks for the status. Raises: OSError: the file cannot be read."""
        self._url = url
        self._host = urlsplit(url).hostname or ""
        self._is_private = url.startswith("https:") or _is_loopback(self._host)
        retries = urllib3.Retry(
            RETRIES_MAX + REDIRECTS_MAX,
            connect=RETRIES_MAX,
            read=RETRIES_MAX,
            status=RETRIES_MAX,
            redirect=REDIRECTS_MAX,
            status_forcelist=TRANSIENT,
            backoff_factor=PAUSE_S,
            backoff_max=PAUSE_S_MAX,
            retry_after_max=RETRY_AFTER_S_MAX,
            raise_on_status=False,
        )
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        self._pools = urllib3.PoolManager(retries=retries, timeout=timeout)
        self._headers = {"Accept-Encoding": "identity"}
        self._received: IO[bytes] | None = None
        self._pieces: Iterator[bytes] = iter(())
        try:
            if self._is_private and (login := login_of(self._host)) is not None:
                self._headers |= urllib3.make_headers(basic_auth=f"{login.user}:{login.password}")
            self.status, self.has_ranges = self._status()
        except BaseException:
            self.close()
            raise

    def read(self, begin: int, end: int) -> bytes:
        """Returns the bytes from ``begin`` to ``end`` of the version that was opened.

        Raises: ObjectReplaced: it has another version now. OSError: the server fails.
        """
        if self.has_ranges:
            return b"".join(self._transfer(begin, end))
        if self._received is None:
            self._received = tempfile.TemporaryFile(prefix="clonos-")  # noqa: SIM115  open until close
            self._pieces = self._transfer(0, self.status.size_bytes)
        at = self._received.seek(0, 2)
        while at < end:
            at += self._received.write(next(self._pieces))
        self._received.seek(begin)
        return self._received.read(end - begin)

    def close(self) -> None:
        """Closes the connections."""
        getattr(self._pieces, "close", lambda: None)()
        self._pools.clear()
        if self._received is not None:
            self._received.close()

    def _status(self) -> tuple[ObjectStatus, bool]:
        """Asks for one byte: the reply shows also whether the server has ranges, and HEAD is not allowed everywhere."""
        reply = self._open({"Range": "bytes=0-0"})
        try:
            self._check(reply)
            has_ranges = reply.status != OK
            whole = CONTENT_RANGE.fullmatch(reply.headers.get("Content-Range", "")) if has_ranges else None
            length = whole[1] if whole else "" if has_ranges else reply.headers.get("Content-Length", "")
            if not length.isdecimal():
                raise OSError(errno.ENOTSUP, "the server does not say how long it is; download it first")
            modified, e_tag = _version(reply)
            if not modified and not e_tag:
                reason = "the server sends neither ETag nor Last-Modified, so that a changed file would not be noticed"
                raise OSError(errno.ENOTSUP, f"{reason}; download it first")
            if has_ranges:
                reply.drain_conn()
            return ObjectStatus(int(length), modified, e_tag), has_ranges
        finally:
            reply.close()

    def _check(self, reply: urllib3.BaseHTTPResponse) -> None:
        """Raises: OSError: the reply is an error, or does not have the bytes of the file."""
        if reply.status in (401, 403, 407):
            raise PermissionError(errno.EACCES, self._refusal(reply.status))
        if reply.status in (404, 410):
            raise FileNotFoundError(errno.ENOENT, f"the server has no such file (status {reply.status})")
        if reply.status not in (OK, PARTIAL, RANGE_REFUSED):
            raise OSError(errno.EIO, f"the server answers with the status {reply.status}")
        encoding = reply.headers.get("Content-Encoding", "identity").lower()
        is_of_file = urlsplit(self._url).path.endswith((".gz", ".bz2", ".xz", ".zst", ".lz4"))
        if encoding != "identity" and not is_of_file:
            raise OSError(errno.ENOTSUP, f"the server encodes it as {encoding[:40]!r}, which it was asked not to do")

    def _refusal(self, status: int) -> str:
        if "authorization" in self._headers:
            return f"the server refuses the user and password of the netrc file for {self._host} (status {status})"
        reason = f"the server refuses access (status {status})"
        if not self._is_private:
            return f"{reason}; clonos sends user and password by https:// only"
        return f"{reason}; clonos takes user and password for {self._host} from a netrc file, which has none"

    def _transfer(self, begin: int, end: int) -> Iterator[bytes]:
        """Yields the bytes in pieces. Goes on after the last one when the connection breaks.

        Raises: ObjectReplaced, OSError: see ``read``.
        """
        position, failures = begin, 0
        while position < end:
            try:
                for piece in self._reply(position, end):
                    position, failures = position + len(piece), 0
                    yield piece
            except (HTTPError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                failures += 1
                if failures > RETRIES_MAX:
                    reason = f"the reply broke {failures} times at byte {position} of {self.status.size_bytes}"
                    raise OSError(errno.EIO, reason) from error
                wall_clock.sleep_s(min(PAUSE_S * 2**failures, PAUSE_S_MAX))

    def _reply(self, begin: int, end: int) -> Iterator[bytes]:
        """Yields what one reply has of the bytes. Raises: HTTPError: it ends too early."""
        reply = self._open({"Range": f"bytes={begin}-{end - 1}"} if self.has_ranges else {})
        left, skipped = end - begin, 0 if self.has_ranges else begin
        try:  # closed at its end, which leaves a connection in the pool if the reply was read to its end
            self._check_version(reply, begin)
            while skipped or left:
                piece = reply.read(min(PIECE_BYTES, skipped or left), decode_content=False)
                if not piece:
                    raise ProtocolError("the reply is too short")
                if skipped:
                    skipped -= len(piece)
                    continue
                left -= len(piece)
                yield piece
        finally:
            reply.close()

    def _check_version(self, reply: urllib3.BaseHTTPResponse, begin: int) -> None:
        """Raises: ObjectReplaced: the reply is of another version. OSError: it is no usable reply."""
        self._check(reply)
        whole = CONTENT_RANGE.fullmatch(reply.headers.get("Content-Range", ""))
        length = whole[1] if whole else reply.headers.get("Content-Length", "")
        if _version(reply) != self.status[1:] or (reply.status != OK and length != str(self.status.size_bytes)):
            raise ObjectReplaced(errno.ESTALE, "it has been replaced")
        if (reply.status == PARTIAL) is not self.has_ranges:
            raise OSError(errno.EIO, f"the server answers a request from byte {begin} with the status {reply.status}")

    def _open(self, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        """Sends a request, repeated within limits. Raises: OSError: there is no reply."""
        try:
            return self._pools.request("GET", self._url, headers=self._headers | headers, preload_content=False)
        except MaxRetryError as error:
            cause = error.reason if error.reason is not None else error
            raise OSError(errno.EIO, f"the server cannot be reached: {_text(cause)}") from None
        except HTTPError as error:
            raise OSError(errno.EIO, _text(error)) from None


def _version(reply: urllib3.BaseHTTPResponse) -> tuple[int, str]:
    """Returns what tells versions apart: Last-Modified in nanoseconds, 0 if missing, and the ETag, "" if missing."""
    try:
        modified = parsedate_to_datetime(reply.headers["Last-Modified"])
    except (KeyError, ValueError):
        return 0, reply.headers.get("ETag", "")
    return int(modified.timestamp()) * 1_000_000_000, reply.headers.get("ETag", "")


def _text(error: Any) -> str:
    text = str(error)
    return text.rpartition(": ")[2][:200] or type(error).__name__


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
