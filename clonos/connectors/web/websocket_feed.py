"""Connections of ``web.websocket``: one at a time, made again when it breaks, silent ones noticed by a ping."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.web.paging import field_at, url_after
from clonos.connectors.web.web_errors import WebSocketFailed, WebSocketRefused
from clonos.connectors.web.web_options import TRANSIENT, WebServer
from clonos.core.model.errors import ExtraMissing
from clonos.io.system import wall_clock
from clonos.operators.event_time.durations import NANOSECONDS, duration_text

logger = logging.getLogger("clonos.slot")

CONNECTOR: Final = "web.websocket"
RECEIVE_BYTES: Final = 256 << 10
PAUSE_NS_FIRST: Final = 100_000_000
PAUSE_NS_MAX: Final = 60 * NANOSECONDS["s"]
STEADY_NS: Final = 10 * NANOSECONDS["s"]
"""Time for which a connection without messages has to last, so that its end is not another failure of a series."""

CLOSE_S: Final = 2.0
NORMAL: Final = 1000
TOO_BIG: Final = 1009

Field = str | Callable[[bytes], Any]
Greeting = str | bytes | Mapping[str, Any]


class WebSocketCursor(msgspec.Struct, frozen=True, array_like=True):
    """Cursor of the last message that has one."""

    cursor: str | None = None


class Subscription(msgspec.Struct, frozen=True):
    """Messages to send to a server, and fields of those that it sends; see ``web.websocket``."""

    send: Any
    cursor: Field | None
    parameter: str | None
    start: str | None
    identity: Field | None


class SocketLimits(msgspec.Struct, frozen=True):
    """Limits of connections."""

    message_bytes_max: int
    ping_ns: int
    timeout_ns: int
    patience_ns: int


class SocketEndpoint(WebServer, frozen=True):
    """Server and how it is spoken to; see ``web.websocket``."""

    subprotocols: tuple[str, ...]
    subscription: Subscription
    is_bounded: bool
    limits: SocketLimits


def messages_of(given: Any) -> list[str | bytes]:
    """Returns the messages that ``send`` or its function gives.

    Raises: InvalidConnector: it gives what is no message.
    """
    each = given if isinstance(given, list | tuple) else [] if given is None else [given]
    return [_message(message) for message in each]


def _message(given: Any) -> str | bytes:
    if isinstance(given, str | bytes):
        return given
    if isinstance(given, Mapping):
        return msgspec.json.encode(given).decode()
    problem = f"send= gives a message of the type {type(given).__name__}"
    raise InvalidConnector(CONNECTOR, problem, "Give a str, bytes, or a dict that becomes JSON.")


def value_at(data: bytes, field: Field | None) -> Any:
    """Returns what a function makes of a message, or its field of JSON: a text or the digits of a number."""
    if field is None or callable(field):
        return None if field is None else field(data)
    found = field_at(data, field)
    if found is None:
        return None
    value = msgspec.json.decode(found)
    return value if type(value) is str else found.decode("utf-8")


class WebSocketFeed:
    """Messages of a server over one connection after another (``ProducerConnection``)."""

    def __init__(
        self,
        endpoint: SocketEndpoint,
        position: WebSocketCursor,
        journalled: Callable[[bytes, Any, WebSocketCursor | None], bytes],
        monotonic: Callable[[], int] = wall_clock.monotonic_ns,
        sleep: Callable[[float], None] = wall_clock.sleep_s,
    ) -> None:
        self._endpoint, self._journalled = endpoint, journalled
        self._position = position if position != WebSocketCursor() else WebSocketCursor(endpoint.subscription.start)
        self._monotonic, self._sleep = monotonic, sleep
        try:
            self._client, self._errors = import_module("websockets.sync.client"), import_module("websockets.exceptions")
        except ImportError:
            raise ExtraMissing(CONNECTOR, "websockets", "websocket") from None
        self._stack = ExitStack()
        self._connection: Any = None
        self.pong: threading.Event | None = None  # set when the ping that was sent last is answered
        self._due_ns = self._connected_ns = self._received_ns = monotonic()
        self._failing_ns: int | None = None  # since when
        self._pause_ns = PAUSE_NS_FIRST

    def receive(self, wait_ms: int) -> bytes | None:
        """Returns the messages that have come, b"" if there are none within ``wait_ms``.

        Returns None when a bounded source has ended.

        Raises: WebSocketFailed, WebSocketRefused, SecretMissing, InvalidConnector.
        """
        if self._connection is None:
            left_ns = self._due_ns - self._monotonic()
            if left_ns > 0:
                self._sleep(min(left_ns / NANOSECONDS["s"], wait_ms / 1000))
            if self._due_ns > self._monotonic() or not self._connect():
                return b""
        messages: list[bytes] = []
        size_bytes = 0
        try:
            while size_bytes < RECEIVE_BYTES:
                messages.append(self._connection.recv(0 if messages else wait_ms / 1000, decode=False))
                size_bytes += len(messages[-1])
        except TimeoutError:
            if not messages:
                self._check_silence()
        except self._errors.ConnectionClosed as error:
            if not messages:
                return self._on_closed(error)
        return self._journal(messages)

    def acknowledge(self, offset_bytes: int) -> None:
        """Does nothing: the next connection has the cursor."""

    def close(self) -> None:
        """Closes the connection."""
        self._connection = self.pong = None
        self._stack.close()

    # ------------------------------------------------------------------ connections

    def _connect(self) -> bool:
        """Connects and sends the first messages; returns False if it has to be tried again.

        Raises: WebSocketRefused, WebSocketFailed, SecretMissing, InvalidConnector.
        """
        endpoint = self._endpoint
        send = endpoint.subscription.send
        greetings = messages_of(send(self._position.cursor) if callable(send) else send)
        try:
            connection = self._stack.enter_context(self._open())
            for greeting in greetings:
                connection.send(greeting)
        except self._errors.InvalidStatus as error:
            self._refused(error.response)
        except (self._errors.InvalidMessage, self._errors.ConnectionClosed, OSError, EOFError) as error:
            self._back_off(f"connecting failed: {error}")
        except self._errors.WebSocketException as error:
            advice = "Check that a WebSocket server is there, and correct subprotocols=."
            raise WebSocketRefused(endpoint.shown_url, endpoint.clean(f"{error}"), advice) from error
        except ValueError as error:  # the library does not follow a redirect on a given socket
            if not isinstance(error.__cause__, self._errors.InvalidStatus):
                raise
            self._refused(error.__cause__.response)
        else:
            if endpoint.subprotocols and connection.subprotocol is None:
                reason = f"it speaks none of the subprotocols {', '.join(endpoint.subprotocols)}"
                raise WebSocketRefused(endpoint.shown_url, reason, "Correct subprotocols=.")
            self._connection, self._connected_ns = connection, self._monotonic()
            self._received_ns = self._connected_ns
            return True
        return False

    def _open(self) -> Any:
        """Returns a connection as a context.

        Raises what the library raises, and OSError.
        """
        endpoint = self._endpoint
        url = endpoint.url
        if endpoint.subscription.parameter is not None:
            url = url_after(url, self._position.cursor, endpoint.subscription.parameter)
        parts = urlsplit(url)
        is_secure = parts.scheme == "wss"
        context = self._authorities() if is_secure else None
        headers = endpoint.revealed_headers()
        address = (parts.hostname or "", parts.port or (443 if is_secure else 80))
        # With a socket of ours, the library does not follow a redirect, which would take the headers elsewhere.
        timeout_s = endpoint.limits.timeout_ns / NANOSECONDS["s"]
        connected = socket.create_connection(address, timeout_s)
        self._stack.callback(connected.close)
        connected.settimeout(None)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return self._client.connect(
            url,
            sock=connected,
            ssl=context,
            additional_headers=headers,
            subprotocols=list(endpoint.subprotocols) or None,
            max_size=endpoint.limits.message_bytes_max,
            open_timeout=timeout_s,
            close_timeout=CLOSE_S,
            ping_interval=None,
        )

    def _authorities(self) -> ssl.SSLContext:
        """Raises: InvalidConnector: the file of ``ca`` is not there or has no certificates."""
        ca = self._endpoint.ca
        try:
            return ssl.create_default_context(cafile=ca)
        except OSError as error:
            advice = "Give a file of certificates in PEM on each machine."
            raise InvalidConnector(CONNECTOR, f"ca={ca!r} cannot be used: {error}", advice) from None

    def _refused(self, response: Any) -> None:
        """Backs off after an answer in place of a connection. Raises: WebSocketRefused: another would be the same."""
        text = self._endpoint.answer_text(bytes(response.body or b""))
        status = self._endpoint.clean(f"it answered {response.status_code} {response.reason_phrase}".rstrip())
        reason = f"{status}: {text}" if text else status
        if response.status_code not in TRANSIENT:
            advice = "Correct the URL, and resume the job."
            if response.status_code in (401, 403):
                advice = "Correct token= or headers=, and resume the job."
            raise WebSocketRefused(self._endpoint.shown_url, reason, advice)
        asked = response.headers.get("Retry-After", "").strip()
        self._back_off(reason, int(asked) * NANOSECONDS["s"] if asked.isascii() and asked.isdigit() else 0)

    def _on_closed(self, error: Any) -> bytes | None:
        """Returns None if a bounded source ends here, else b"" and plans the next connection.

        Raises: WebSocketRefused: a message is too long. WebSocketFailed.
        """
        endpoint, sent, received = self._endpoint, error.sent, error.rcvd
        if sent is not None and sent.code == TOO_BIG and not error.rcvd_then_sent:
            reason = f"it sent a message of more than {endpoint.limits.message_bytes_max} bytes"
            raise WebSocketRefused(endpoint.shown_url, reason, "Raise message_bytes_max=.")
        if endpoint.is_bounded and received is not None and received.code == NORMAL:
            return None
        self._lost(f"the connection ended: {error}")
        return b""

    def _lost(self, reason: str) -> None:
        """Plans the next connection. Raises: WebSocketFailed."""
        try:
            self._connection.socket.shutdown(socket.SHUT_RDWR)  # the server does not answer a closing handshake
        except OSError:
            pass  # the connection is closed
        self.close()
        if self._monotonic() - self._connected_ns >= STEADY_NS:
            self._recover()
        self._back_off(reason)

    def _back_off(self, reason: str, asked_ns: int = 0) -> None:
        """Plans the next connection. Raises: WebSocketFailed: there was none for too long."""
        self._stack.close()
        endpoint, now_ns = self._endpoint, self._monotonic()
        reason = endpoint.clean(reason)  # that of a closed connection is the server's
        if self._failing_ns is None:
            self._failing_ns = now_ns
            logger.warning("%s has no connection, and tries again: %s", endpoint.shown_url, reason)
        if now_ns - self._failing_ns >= max(endpoint.limits.patience_ns, asked_ns):
            raise WebSocketFailed(endpoint.shown_url, duration_text(endpoint.limits.patience_ns), reason)
        self._due_ns = now_ns + max(asked_ns, self._pause_ns)
        self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)

    def _recover(self) -> None:
        self._failing_ns, self._pause_ns = None, PAUSE_NS_FIRST

    def _check_silence(self) -> None:
        """Sends a ping when nothing was heard for a while, and gives the connection up without an answer.

        Called when no message waits: while messages wait, the library may leave pongs unread after them.
        """
        now_ns = self._monotonic()
        if self.pong is not None and self.pong.is_set():
            self.pong, self._received_ns = None, now_ns
        silent_ns = now_ns - self._received_ns
        if self.pong is not None and silent_ns >= 2 * self._endpoint.limits.ping_ns:
            self._lost(f"it has not answered a ping for {duration_text(self._endpoint.limits.ping_ns)}")
        elif self.pong is None and silent_ns >= self._endpoint.limits.ping_ns:
            self._received_ns = (
                now_ns - self._endpoint.limits.ping_ns
            )  # the pong has its time, however late the ping is
            try:
                self.pong = self._connection.ping()
            except self._errors.ConnectionClosed:
                pass  # the next receive says why

    # ------------------------------------------------------------------ messages

    def _journal(self, messages: list[bytes]) -> bytes:
        """Returns the journalled form of messages, the last of which has the position after them."""
        if not messages:
            return b""
        self._recover()
        self.pong, self._received_ns = None, self._monotonic()
        subscription = self._endpoint.subscription
        if subscription.cursor is not None:
            cursors = (value_at(message, subscription.cursor) for message in reversed(messages))
            found = next((cursor for cursor in cursors if cursor is not None), None)
            self._position = self._position if found is None else WebSocketCursor(str(found))
        last = len(messages) - 1
        return b"".join(
            self._journalled(
                message, value_at(message, subscription.identity), self._position if index == last else None
            )
            for index, message in enumerate(messages)
        )
