"""Messages of NATS as the source gives them."""

from __future__ import annotations

from typing import Any

import msgspec

from clonos.core.values import register


@register(name="clonos.nats.Message")
class Message(msgspec.Struct, frozen=True):
    """Message of a stream.

    ``timestamp`` is the time at which the stream got it, in nanoseconds since the Unix epoch.
    """

    subject: str
    sequence: int
    timestamp: int
    data: bytes
    headers: dict[str, str] = {}


def message_of(raw: Any, reply: list[str]) -> Message:
    """Returns the message of one of nats-py; ``reply`` are the parts of its subject for an acknowledgement."""
    at = 5 if len(reply) == 9 else 7
    headers = {str(name): str(value) for name, value in (raw.headers or {}).items()}
    return Message(raw.subject, int(reply[at]), int(reply[at + 2]), raw.data, headers)


def pending_after(reply: list[str]) -> int:
    """Returns how many messages the consumer will still get of those that are in the stream."""
    return int(reply[8 if len(reply) == 9 else 10])


def consumer_sequence(reply: list[str]) -> int:
    """Returns the number of a message among those that its consumer has got, from 1."""
    return int(reply[6 if len(reply) == 9 else 8])
