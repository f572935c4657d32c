"""HTTP: ``web.post`` sends rows, ``web.receive`` takes requests that others send, ``web.poll`` asks for records.

``web.websocket`` receives messages.
"""

from __future__ import annotations

from clonos.connectors.web.paging import NEXT_LINK, Reply
from clonos.connectors.web.poll_source import poll
from clonos.connectors.web.posts import post
from clonos.connectors.web.request import Request
from clonos.connectors.web.web_errors import (
    AnswerMalformed,
    PollFailed,
    PollRefused,
    PortUnavailable,
    WebSocketFailed,
    WebSocketRefused,
)
from clonos.connectors.web.webhook_source import receive
from clonos.connectors.web.websocket_source import websocket
from clonos.core.model.missing_names import explains_names

__all__ = [
    "post",
    "receive",
    "poll",
    "websocket",
    "NEXT_LINK",
    "Request",
    "Reply",
    "PortUnavailable",
    "PollFailed",
    "PollRefused",
    "WebSocketFailed",
    "WebSocketRefused",
    "AnswerMalformed",
]

explains_names(
    __name__,
    {
        "get": "Use poll for a source; in a step, clonos.http.get.",
        "webhook": "Use receive for a source, post for a sink.",
        "source": "Use poll, receive or websocket.",
        "sink": "Use post.",
        "ws": "Use websocket.",
    },
)
