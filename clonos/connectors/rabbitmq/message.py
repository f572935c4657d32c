"""Messages of RabbitMQ as the source gives them, and the form in which they are journalled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from clonos.connectors.journal_records import data_in, record_of
from clonos.core.values import register


@register(name="clonos.rabbitmq.Message")
class Message(msgspec.Struct, frozen=True):
    """Message of a queue.

    ``timestamp`` is in seconds since the Unix epoch, as the publisher set it. ``redelivered``: the broker has delivered
    the message before, and has not heard that it was journalled.
    """

    body: bytes
    routing_key: str
    exchange: str
    redelivered: bool
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    app_id: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    timestamp: int | None = None
    priority: int | None = None
    headers: dict[str, Any] = {}


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=str)
_decoder: Final = msgspec.msgpack.Decoder(Message)


def message_of(method: Any, properties: Any, body: bytes) -> Message:
    """Returns a delivery of pika as a message."""
    return Message(
        body,
        method.routing_key,
        method.exchange,
        bool(method.redelivered),
        properties.message_id,
        properties.correlation_id,
        properties.reply_to,
        properties.type,
        properties.app_id,
        properties.content_type,
        properties.content_encoding,
        properties.timestamp,
        properties.priority,
        _plain(properties.headers or {}),
    )


def journalled(message: Message, identity: object) -> bytes:
    """Returns the journalled form of a message; ``identity`` tells it from others, None if nothing does."""
    return record_of(_encoder.encode(message), identity)


def message_in(record: bytes) -> Message:
    """Returns the message of a record."""
    return _decoder.decode(data_in(record))


def _plain(value: Any) -> Any:
    """Returns a header with values that can be journalled: pika has times without a zone, which are in UTC."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return value
