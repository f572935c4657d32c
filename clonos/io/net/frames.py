"""Frames of a message on a socket: a head with its checksum and the message, and the bulk payload as a second frame.

``[head | message] [payload]``. A message or a payload longer than ``PIECE_BYTES`` is sent as several socket messages,
so that a socket can refuse long frames: first pieces of the message, then pieces of the payload (``[head] [piece]``),
then ``[head | rest of the message] [rest of the payload]``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.values.value_limits import BATCH_BYTES_MAX
from clonos.core.wire.message_codec import MESSAGE_BYTES_MAX, WIRE_FORMAT

PIECE_BYTES = 8 << 20
"""Bytes of a message, and of a payload, that one socket message has at most."""

FRAME_BYTES_MAX = PIECE_BYTES + (1 << 20)
"""Length of a frame at which a listening socket closes the connection, also before the peer is authenticated."""

PIECES_MAX = (MESSAGE_BYTES_MAX + BATCH_BYTES_MAX) // PIECE_BYTES
"""Pieces of one message and its payload before the last one: 192, which is 1.5 GiB."""

LARGE_PAYLOAD_BYTES = 32 << 10
"""Payloads of at least this length are received without a copy."""

IS_PIECE = 1
HAS_LARGE_PAYLOAD = 2
OF_MESSAGE = 4
"""Flag of a piece that belongs to the message, not to the payload."""

Packet = tuple[bytes, bytes | memoryview]
"""One socket message: the frame of head and message, and the payload frame."""

_HEAD = struct.Struct("<BBHQQ")  # format, flags, pieces before this one, sender, checksum
HEAD_BYTES = _HEAD.size


class Head(NamedTuple):
    """Head of a received frame, after its checksum was verified."""

    flags: int
    pieces_before: int
    sender: SlotId


def slot_name(slot: int) -> str:
    """Returns the name of a slot for messages to users."""
    return "the coordinator" if slot == COORDINATOR else f"slot {slot:016x}"


def pack_in_pieces(
    sender: SlotId,
    message: bytes,
    payload: bytes | memoryview,
    last_flags: int = 0,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> list[Packet]:
    """Returns the packets of a message whose encoding or payload exceeds one packet. ``last_flags``: flags of the last
    packet."""
    packets: list[Packet] = []
    rests = []
    for flags, whole in ((IS_PIECE | OF_MESSAGE, memoryview(message)), (IS_PIECE, memoryview(payload))):
        while len(whole) > piece_bytes:
            piece, whole = whole[:piece_bytes], whole[piece_bytes:]
            packets.append((pack(sender, b"", piece, flags, len(packets)), piece))
        rests.append(whole)
    rest, payload = rests
    packets.append((pack(sender, bytes(rest), payload, last_flags, len(packets)), payload))
    return packets


def pack(sender: SlotId, message: bytes, payload: bytes | memoryview, flags: int = 0, pieces_before: int = 0) -> bytes:
    """Returns the first frame of a socket message. ``payload`` is the second frame, and only enters the checksum
    here."""
    if len(payload) >= LARGE_PAYLOAD_BYTES:
        flags |= HAS_LARGE_PAYLOAD
    checksum = _checksum(sender, message, payload, flags, pieces_before)
    return _HEAD.pack(WIRE_FORMAT, flags, pieces_before, sender, checksum) + message


def flags_of(frame: bytes | memoryview) -> int:
    """Returns the flags of a frame that is not verified yet."""
    return frame[1] if len(frame) >= HEAD_BYTES else 0


def unpack(frame: bytes | memoryview, payload: bytes | memoryview) -> Head:
    """Verifies format and checksum; the message follows after ``HEAD_BYTES``.

    Raises: MessageMalformed when the frame is too short, of another format, or damaged.
    """
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
