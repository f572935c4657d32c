"""Watermarks: how far event time has come in a stream, and whether the stream is idle (protocol 2 and 4).

A watermark is the content of one element of a channel. Its payload is the instant as eight bytes, or one byte for a
change between idle and active. Only the task reads it; slots carry it like any payload.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from clonos.core.model.errors import PeerError

INSTANT_NS_MIN: Final = -(1 << 63)
END_OF_TIME_NS: Final = (1 << 63) - 1
"""Watermark of a stream that has ended, for which its end stands: no element of its own carries it."""

Instant = Annotated[int, msgspec.Meta(ge=INSTANT_NS_MIN, le=END_OF_TIME_NS)]
"""Point of event time, in nanoseconds since the Unix epoch; negative before it."""


class Activity(Enum):
    """Change of a stream between idle and active."""

    IDLE = b"\x00"  # its watermark does not count until it is active again
    ACTIVE = b"\x01"  # goes before the next element of a stream that was idle


IDLE: Final = Activity.IDLE
ACTIVE: Final = Activity.ACTIVE

Watermark: TypeAlias = int | Literal[Activity.IDLE, Activity.ACTIVE]
"""Content of a watermark element: no element with a timestamp below the instant follows, or a change of activity."""

_INSTANT_BYTES: Final = 8
_ACTIVITIES: Final = {activity.value: activity for activity in Activity}


class WatermarkMalformed(PeerError):
    """Error for the payload of a watermark element that is neither an instant nor a change of activity."""

    payload: str

    def __str__(self) -> str:
        return (
            f"the bytes {self.payload} are no watermark: expected {_INSTANT_BYTES} bytes of an instant, or one byte for"
            " idle or active. The sender runs another version of clonos, or memory is damaged."
        )


def encode_watermark(watermark: Watermark) -> bytes:
    """Returns the payload of a watermark element."""
    if isinstance(watermark, Activity):
        return watermark.value
    return watermark.to_bytes(_INSTANT_BYTES, "big", signed=True)


def is_watermark(payload: bytes | memoryview) -> bool:
    """Returns whether ``decode_watermark`` can decode the payload."""
    return len(payload) == _INSTANT_BYTES or bytes(payload[:2]) in _ACTIVITIES


def decode_watermark(payload: bytes | memoryview) -> Watermark:
    """Returns the watermark in a payload.

    Raises: WatermarkMalformed, if the payload is none.
    """
    if len(payload) == _INSTANT_BYTES:
        return int.from_bytes(payload, "big", signed=True)
    found = _ACTIVITIES.get(bytes(payload[:2]))
    if found is None:
        raise WatermarkMalformed(bytes(payload[:16]).hex())
    return found
