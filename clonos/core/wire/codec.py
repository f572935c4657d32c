"""A message as bytes and back: one decoder for the closed union, limits and types checked."""

from __future__ import annotations

import msgspec

from clonos.core.model.errors import MessageMalformed
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.messages import Message

MESSAGE_BYTES_MAX = 512 << 20
"""Limit of an encoded message without its payload."""

WIRE_FORMAT = 2
"""Format number of the messages: a slot with another one is refused at registration."""

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)

encode_message = msgspec.msgpack.Encoder().encode


def decode_message(data: bytes | memoryview, peer: str) -> Message:
    """The message in ``data``, or ``MessageMalformed`` that names ``peer``."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageMalformed(peer, f"{len(data)} bytes, the limit is {MESSAGE_BYTES_MAX}")
    try:
        return _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise MessageMalformed(peer, str(error)) from None
