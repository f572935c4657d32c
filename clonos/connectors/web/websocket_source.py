"""``web.websocket``: the messages of a WebSocket.

They cannot be read again, so this is a ``PushSource``: messages are journalled before any step sees them, the last of
those that come at once with the cursor after it. A task that takes over tells the server this cursor
(``ContinuedSource``); what a server sends again is recognised by its identity (``IdentifiedSource``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Unpack

from clonos.connectors.codecs import Codec, for_decoding, json
from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.kit.journalled_source import ContinuedForm, ContinuedJournal, IdentifiedJournal
from clonos.connectors.kit.source_options import is_bounded
from clonos.connectors.secrets import check_text
from clonos.connectors.web.web_options import FeedOptions, checked_file, checked_headers, is_path
from clonos.connectors.web.websocket_feed import (
    CONNECTOR,
    Field,
    Greeting,
    SocketEndpoint,
    SocketLimits,
    Subscription,
    WebSocketCursor,
    WebSocketFeed,
    messages_of,
)
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns
from clonos.operators.lineage import Dataset, dataset_at

MESSAGE_BYTES: Final = 1 << 20
MESSAGE_BYTES_LIMIT: Final = 16 << 20
"""Largest ``message_bytes_max``, in bytes: a message travels to the keepers in one message."""


class WebSocketSource(ContinuedJournal[WebSocketCursor]):
    """Description of a WebSocket; the slot of the reading task connects."""

    form = ContinuedForm(WebSocketCursor)

    def __init__(self, endpoint: SocketEndpoint, decode: Any) -> None:
        self.endpoint = endpoint
        self.codec: Codec[bytes, Any] = json() if decode is None else for_decoding(CONNECTOR, decode)

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.endpoint.shown_url!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(self.endpoint.url)]

    def feed(self, position: WebSocketCursor) -> WebSocketFeed:
        """Begins to receive.

        Raises: ExtraMissing.
        """
        return WebSocketFeed(self.endpoint, position, self.form.record)

    def where(self, message: bytes) -> str:
        """See ``JournalledSource``."""
        return f"a record of {self.endpoint.shown_url}"


class IdentifiedWebSocketSource(IdentifiedJournal, WebSocketSource):
    """WebSocket whose server may send a message again."""

    def __init__(self, endpoint: SocketEndpoint, decode: Any, identities_retained: int) -> None:
        super().__init__(endpoint, decode)
        self.identities_retained = identities_retained


@explains_calls
def websocket(
    url: str,
    *,
    send: Greeting | Sequence[Greeting] | Callable[[str | None], Any] | None = None,
    cursor: Field | None = None,
    parameter: str | None = None,
    identity: Field | None = None,
    until: Literal["close"] | None = None,
    subprotocols: Sequence[str] = (),
    message_bytes_max: int = MESSAGE_BYTES,
    ping: Duration = "20s",
    timeout: Duration = "10s",
    **options: Unpack[FeedOptions],
) -> WebSocketSource:
    """Source of the messages of a WebSocket. It has one task and needs ``keepers``. Needs `clonos[websocket]`.

    Args:
        url: server; ws or wss.
        send: what to send after each connection: str, bytes, dicts for JSON, a list, or a function of the cursor.
        cursor: what tells the server where to continue: a field of a message of JSON, such as "meta.sequence", or a
            function of the bytes of a message that returns a text or None. None: each connection begins anew.
        parameter: query parameter of the URL that gets the cursor.
        start: cursor of the first connection.
        identity: field or function of a message that tells it apart, for servers that send one again. None: each
            message counts.
        remember: identities that are retained to recognise repetitions.
        until: "close": the source ends when the server closes the connection with the code 1000. None: it never ends.
        headers: headers of the handshake; a value may be a secret.
        token: token of the header ``Authorization: Bearer``, preferably a secret.
        subprotocols: subprotocols in the order of preference. The server has to choose one of them.
        decode: a codec, a type or a function of the bytes of a message; None for JSON.
        message_bytes_max: longest message in bytes, 1 MiB by default and at most 16 MiB.
        ping: time without a message after which a ping is sent, and the time to answer it.
        timeout: time to connect.
        patience: how long connections may fail before the job does.
        ca: file with the certificates of the authorities to trust, in place of those of the system.

    Raises: InvalidConnector: an option cannot work.
    """
    token, decode, remember = options.get("token"), options.get("decode"), options["remember"]
    subscription = Subscription(send, cursor, parameter, options.get("start"), identity)
    _check_options(subscription, subprotocols, remember, message_bytes_max)
    endpoint = SocketEndpoint(
        url=url,
        headers=checked_headers(CONNECTOR, _as_http(url), options.get("headers"), token),
        token=token,
        subprotocols=tuple(subprotocols),
        subscription=subscription,
        is_bounded=is_bounded(CONNECTOR, until, "close"),
        limits=SocketLimits(
            message_bytes_max, duration_ns(ping), duration_ns(timeout), duration_ns(options["patience"])
        ),
        ca=checked_file(options.get("ca")),
    )
    if identity is None:
        return WebSocketSource(endpoint, decode)
    return IdentifiedWebSocketSource(endpoint, decode, remember)


def _as_http(url: str) -> str:
    """Returns the URL of the handshake. Raises: InvalidConnector: this is no URL of a WebSocket."""
    check_text(CONNECTOR, "url", url)
    scheme, mark, rest = url.partition("://")
    if scheme.lower() not in ("ws", "wss") or not mark or "#" in url or "@" in rest.partition("/")[0]:
        advice = "Give ws://host/path or wss://host/path, and credentials as token= or headers=."
        raise InvalidConnector(CONNECTOR, "the URL is none of a WebSocket", advice)
    return f"http{scheme.lower()[2:]}://{rest}"


def _check_options(subscription: Subscription, subprotocols: Any, remember: Any, message_bytes_max: Any) -> None:
    """Raises: InvalidConnector: they cannot work."""
    check_number(CONNECTOR, "remember", remember, "identities")
    check_number(CONNECTOR, "message_bytes_max", message_bytes_max, "bytes", MESSAGE_BYTES_LIMIT)
    for option, field in (("cursor", subscription.cursor), ("identity", subscription.identity)):
        if field is not None and not callable(field) and not is_path(field):
            advice = 'Give the name of a field, names with dots between them, such as "meta.id", or a function.'
            raise InvalidConnector(CONNECTOR, f"{option} is {field!r:.80}", advice)
    if isinstance(subprotocols, str):
        raise InvalidConnector(CONNECTOR, f"subprotocols is {subprotocols!r:.80}", "Give a list of names.")
    if callable(subscription.send):
        return
    messages_of(subscription.send)
    if (subscription.cursor is not None or subscription.start is not None) and subscription.parameter is None:
        advice = "Give parameter=, or a function as send= that gets the cursor."
        raise InvalidConnector(CONNECTOR, "the server is never told the cursor", advice)
