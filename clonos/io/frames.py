"""How a message looks on a socket: a head with its checksum, and the bulk payload as a frame of its own.

``[head | message] [payload]``. A payload longer than ``PIECE_BYTES`` travels as several socket messages, so that no
frame is unbounded: the first ones are pieces (``[head] [piece]``), the last is the message itself with the rest.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from clonos.core.errors import MessageMalformed
from clonos.core.ids import COORDINATOR, SlotId
from clonos.core.wire import MESSAGE_BYTES_MAX, WIRE_FORMAT

PIECE_BYTES = 8 << 20
"""Longest payload frame."""

FRAME_BYTES_MAX = MESSAGE_BYTES_MAX + (1 << 20)
"""What a socket refuses to receive: it drops the connection."""

PIECES_MAX = 1 << 12
"""Pieces before the last one: a payload has at most 32 GiB."""

LARGE_PAYLOAD_BYTES = 32 << 10
"""From here on a payload is worth a frame that is read in place instead of copied."""

IS_PIECE = 1
HAS_LARGE_PAYLOAD = 2

_HEAD = struct.Struct("<BBHQQ")  # format, flags, pieces before this one, sender, checksum
HEAD_BYTES = _HEAD.size


class Head(NamedTuple):
    """The head of a received frame, its checksum verified."""

    flags: int
    pieces_before: int
    sender: SlotId


def slot_name(slot: int) -> str:
    """A slot as people read it."""
    return "the coordinator" if slot == COORDINATOR else f"slot {slot:016x}"


def pack(sender: SlotId, message: bytes, payload: bytes | memoryview, flags: int = 0, pieces_before: int = 0) -> bytes:
    """The first frame of a socket message; ``payload`` is the second one and only counts for the checksum here."""
    if len(payload) >= LARGE_PAYLOAD_BYTES:
        flags |= HAS_LARGE_PAYLOAD
    checksum = _checksum(sender, message, payload, flags, pieces_before)
    return _HEAD.pack(WIRE_FORMAT, flags, pieces_before, sender, checksum) + message


def flags_of(frame: bytes | memoryview) -> int:
    """The flags of a frame that is not verified yet."""
    return frame[1] if len(frame) >= HEAD_BYTES else 0


def unpack(frame: bytes | memoryview, payload: bytes | memoryview) -> Head:
    """Verifies format and checksum; the message itself lies behind ``HEAD_BYTES``."""
    if len(frame) < HEAD_BYTES:
        raise MessageMalformed("an unknown peer", f"{len(frame)} bytes where a head of {HEAD_BYTES} was expected")
    wire_format, flags, pieces_before, sender, checksum = _HEAD.unpack_from(frame)
    if wire_format != WIRE_FORMAT:
        raise MessageMalformed(slot_name(sender), f"wire format {wire_format}, expected {WIRE_FORMAT}")
    actual = _checksum(sender, memoryview(frame)[HEAD_BYTES:], payload, flags, pieces_before)
    if actual != checksum:
        raise MessageMalformed(slot_name(sender), f"checksum {actual:016x}, expected {checksum:016x}")
    return Head(flags, pieces_before, SlotId(sender))


def _checksum(
    sender: int, message: bytes | memoryview, payload: bytes | memoryview, flags: int, pieces_before: int
) -> int:
    head_bits = sender ^ flags << 16 ^ pieces_before
    return xxh3_64_intdigest(payload, xxh3_64_intdigest(message, head_bits & 0xFFFFFFFFFFFFFFFF))
