"""HTTP server of ``web.receive``: a thread per connection, with limits of connections, time and bytes.

Each request is checked before its body is read, and answered when a keeper holds it. What is refused is answered with a
sentence. The token is compared by its digest and is in no text.
"""

from __future__ import annotations

import io
import logging
import re
import socket
from hashlib import blake2b
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, Final, NamedTuple

from clonos.connectors.web.receipts import Receipts
from clonos.connectors.web.request import CREDENTIAL_HEADERS, Request, journalled, shown_headers
from clonos.io.net.admitting_threads import AdmittingThreads
from clonos.io.net.connection_admission import AdmissionLimits, Owed
from clonos.io.system import wall_clock

CONNECTIONS_MAX: Final = 256
IDLE_S: Final = 60.0
"""Time that a connection may be without a request."""

REQUEST_S: Final = 30.0
"""Time in which a request has to arrive whole."""

LINGER_S: Final = 2.0
LINGER_BYTES_MAX: Final = 32 << 20
"""Time and bytes for which the rest of a refused request is read, so that its sender sees the answer."""

ID_CHARACTERS_MAX: Final = 255
PIECE_BYTES: Final = 64 << 10
RETRY_AFTER: Final = {"Retry-After": "1"}
NANOSECONDS: Final = 1_000_000_000

logger = logging.getLogger("clonos.slot")


class Rules(NamedTuple):
    """Which requests are taken. ``token``: digest of the token, None without one."""

    path: str
    identity: str | None
    token: bytes | None
    token_header: str
    body_bytes_max: int
    answer_s: float
    connections_max: int = CONNECTIONS_MAX
    request_s: float = REQUEST_S


class Refusal(Exception):
    """A request is not taken."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


def digest_of(token: bytes) -> bytes:
    """Returns what is compared in place of a token."""
    return blake2b(token).digest()


class Incoming(io.RawIOBase):
    """Bytes of a connection, which have to come before a deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline_ns = 0

    def allow(self, seconds: float) -> None:
        """Sets the deadline."""
        self._deadline_ns = wall_clock.monotonic_ns() + int(seconds * NANOSECONDS)

    def readable(self) -> bool:
        """See ``io.RawIOBase``."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads what has come.

        Raises: TimeoutError: nothing comes before the deadline.
        """
        left_ns = self._deadline_ns - wall_clock.monotonic_ns()
        if left_ns <= 0:
            raise TimeoutError
        self._connection.settimeout(left_ns / NANOSECONDS)
        return self._connection.recv_into(buffer)


class WebhookServer(AdmittingThreads, HTTPServer):
    """Server of one source. It serves from ``start`` until ``close``."""

    def __init__(self, host: str, port: int, rules: Rules, receipts: Receipts) -> None:
        """Opens the port.

        Raises: OSError.
        """
        self.rules, self.receipts = rules, receipts
        self.begin(AdmissionLimits(rules.connections_max, rules.connections_max), "web.receive request")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        self._thread = Thread(target=self.serve_forever, args=(0.05,), name=f"web.receive {port}", daemon=True)
        self._thread.start()

    def server_bind(self) -> None:
        """Binds without the name lookup of the base class."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "web.receive", self.socket.getsockname()[1]

    def close(self) -> None:
        """Closes the port and all connections, and waits for their threads."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        self.end_connections()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "clonos", ""
    error_message_format = "%(message)s\n"
    error_content_type = "text/plain; charset=utf-8"
    server: WebhookServer

    def setup(self) -> None:
        """Puts deadlines on what comes in."""
        super().setup()
        self.rfile.close()
        self._incoming = Incoming(self.connection)
        self.rfile = self._arriving = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        """Waits for a request, and answers it."""
        self.close_connection = True
        try:
            self.server.owes(self.connection, Owed.HEAD)
            self._incoming.allow(IDLE_S)
            if self._arriving.peek(1):
                self._is_unread = True
                self._incoming.allow(self.server.rules.request_s)
                super().handle_one_request()
        except (TimeoutError, ConnectionError) as error:
            self.close_connection = True
            logger.debug("a connection of web.receive has ended: %r", error)

    def parse_request(self) -> bool:
        """Refuses what is not a POST."""
        if not super().parse_request():
            return False
        if self.command != "POST":
            self._refuse(Refusal(405, "Send a POST request.", {"Allow": "POST"}))
            return False
        return True

    def handle_expect_100(self) -> bool:
        """Refuses a request before its sender has sent the body."""
        try:
            self._check_head()
        except Refusal as refused:
            self._refuse(refused)
            return False
        return super().handle_expect_100()

    def do_POST(self) -> None:
        """Takes a request, or refuses it."""
        try:
            self._take(*self._check_head())
        except Refusal as refused:
            self._refuse(refused)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Logs nothing, because requests may have secrets in them."""

    # ------------------------------------------------------------------ checks

    def _check_head(self) -> tuple[int, str | None]:
        """Returns the length of the body and the id of the request.

        Raises: Refusal.
        """
        rules = self.server.rules
        self._check_sender(rules)
        if self.path.partition("?")[0] != rules.path:
            raise Refusal(404, "Nothing is received at this path.")
        length = self._length()
        if length > rules.body_bytes_max:
            raise Refusal(413, f"The body has {length} bytes; at most {rules.body_bytes_max} are taken.")
        return length, self._name(rules.identity)

    def _check_sender(self, rules: Rules) -> None:
        """Raises: Refusal: the token is missing or wrong, or the request comes from a web page."""
        if rules.token is None:
            if "Origin" in self.headers:
                raise Refusal(403, "Requests of web pages are not taken without a token.")
            return
        given = self._only(rules.token_header) or ""
        if rules.token_header.lower() == "authorization":
            scheme, _, given = given.partition(" ")
            given = given.strip() if scheme.lower() == "bearer" else ""
        if not compare_digest(digest_of(given.encode("latin-1", "replace")), rules.token):
            raise Refusal(401, f"The header {rules.token_header} has no valid token.", {"WWW-Authenticate": "Bearer"})
        self.server.owes(self.connection, Owed.BODY)

    def _length(self) -> int:
        """Raises: Refusal: the head does not say how long the body is."""
        if "Transfer-Encoding" in self.headers:
            raise Refusal(411, "Send the body in one piece, with the header Content-Length.")
        given = self._only("Content-Length")
        if given is None:
            raise Refusal(411, "The header Content-Length is missing.")
        if not re.fullmatch(r"[0-9]{1,15}", given):
            raise Refusal(400, "The header Content-Length is not a number.")
        return int(given)

    def _name(self, identity: str | None) -> str | None:
        """Raises: Refusal: the header that tells requests apart is missing or too long."""
        if identity is None:
            return None
        given = (self._only(identity) or "").strip()
        if not given:
            raise Refusal(
                400,
                f"The header {identity} is missing. Give each event an id there, and the same id when it is resent.",
            )
        if len(given) > ID_CHARACTERS_MAX:
            raise Refusal(400, f"The header {identity} has more than {ID_CHARACTERS_MAX} characters.")
        return given

    def _only(self, name: str) -> str | None:
        """Raises: Refusal: the header is there several times."""
        found = self.headers.get_all(name) or []
        if len(found) > 1:
            raise Refusal(400, f"The header {name} is there {len(found)} times.")
        return str(found[0]) if found else None

    # ------------------------------------------------------------------ answers

    def _take(self, length: int, name: str | None) -> None:
        """Reads a body and waits until a keeper holds the request.

        Raises: Refusal: the job is busy, or no keeper holds the request in time. TimeoutError: the body does not come.
        """
        receipts = self.server.receipts
        if not receipts.reserve(length):
            raise Refusal(503, "The job is busy. Send the request again.", RETRY_AFTER)
        try:
            body = self._arriving.read(length)
            if len(body) < length:  # the sender has died
                self.close_connection = True
                return
            self._is_unread = False
            self.server.owes(self.connection, Owed.NOTHING)
            if not receipts.hold(self._record(body, name), self.server.rules.answer_s):
                raise Refusal(503, "The request is not safe yet. Send it again.", RETRY_AFTER)
        finally:
            receipts.release(length)
        self._answer(200, "", {})

    def _record(self, body: bytes, name: str | None) -> bytes:
        """Returns what is journalled: without credentials."""
        rules = self.server.rules
        path, _, query = self.path.partition("?")
        secret = CREDENTIAL_HEADERS if rules.token is None else CREDENTIAL_HEADERS | {rules.token_header.lower()}
        headers = shown_headers(self.headers.items(), secret)
        return journalled(Request(body, name, wall_clock.wall_ns(), path, query, headers))

    def _refuse(self, refused: Refusal) -> None:
        """Answers. A connection with an unread body ends after what its sender is still sending."""
        if not self._is_unread:
            self._answer(refused.status, refused.sentence, refused.headers)
            return
        self.close_connection = True
        self._answer(refused.status, refused.sentence, {**refused.headers, "Connection": "close"})
        self.connection.shutdown(socket.SHUT_WR)
        self._incoming.allow(LINGER_S)
        for _ in range(LINGER_BYTES_MAX // PIECE_BYTES):
            if not self._arriving.read1(PIECE_BYTES):
                break

    def _answer(self, status: int, sentence: str, headers: dict[str, str]) -> None:
        content = f"{sentence}\n".encode() if sentence else b""
        self.connection.settimeout(self.server.rules.request_s)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        if content:
            self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
