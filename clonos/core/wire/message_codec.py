"""Codec of messages: one decoder for the closed union, which checks types and limits (protocol 4)."""

from __future__ import annotations

import msgspec

from clonos.core.model.errors import MessageMalformed
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.messages import Message

MESSAGE_BYTES_MAX = 512 << 20
"""Maximum size of an encoded message without its payload."""

WIRE_FORMAT = 8
"""Format number of the messages. The coordinator refuses the registration of a slot with another one."""

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)

encode_message = msgspec.msgpack.Encoder().encode


def decode_message(data: bytes | memoryview, peer: str) -> Message:
    """Returns the message in ``data``; ``peer`` is the name of its sender, for the error.

    Raises: MessageMalformed, if the bytes are no message or more than ``MESSAGE_BYTES_MAX``.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageMalformed(peer, f"{len(data)} bytes, the limit is {MESSAGE_BYTES_MAX}")
    try:
        return _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise MessageMalformed(peer, str(error)) from None
