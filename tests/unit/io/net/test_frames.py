"""Frames of messages on a socket: an altered one is never accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId
from clonos.io.net.frames import HAS_LARGE_PAYLOAD, HEAD_BYTES, IS_PIECE, LARGE_PAYLOAD_BYTES, flags_of, pack, unpack

SENDER = SlotId(0x0123456789ABCDEF)


@given(some.binary(max_size=100), some.binary(max_size=100), some.integers(0, 1), some.integers(0, 0xFFFF))
def test_a_packed_frame_is_unpacked_unchanged(message: bytes, payload: bytes, flags: int, pieces: int) -> None:
    frame = pack(SENDER, message, payload, flags, pieces)
    assert unpack(frame, payload) == (flags, pieces, SENDER)
    assert frame[HEAD_BYTES:] == message


@given(some.data())
def test_one_altered_bit_is_detected(data: some.DataObject) -> None:
    frame = bytearray(pack(SENDER, b"a message", b"and its payload"))
    payload = bytearray(b"and its payload")
    changed = data.draw(some.sampled_from([frame, payload]))
    changed[data.draw(some.integers(0, len(changed) - 1))] ^= 1 << data.draw(some.integers(0, 7))
    with pytest.raises(MessageMalformed):
        unpack(bytes(frame), bytes(payload))


def test_a_lost_payload_frame_is_detected() -> None:
    with pytest.raises(MessageMalformed, match="checksum"):
        unpack(pack(SENDER, b"message", b"payload"), b"")


def test_a_frame_shorter_than_its_header_is_malformed() -> None:
    assert flags_of(b"short") == 0
    with pytest.raises(MessageMalformed, match="5 bytes"):
        unpack(b"short", b"")


def test_another_wire_format_is_named() -> None:
    frame = b"\xff" + pack(SENDER, b"message", b"")[1:]
    with pytest.raises(MessageMalformed, match="wire format 255, expected 8"):
        unpack(frame, b"")


def test_a_large_payload_is_announced_by_a_flag() -> None:
    assert flags_of(pack(SENDER, b"", bytes(LARGE_PAYLOAD_BYTES), IS_PIECE)) == IS_PIECE | HAS_LARGE_PAYLOAD
    assert flags_of(pack(SENDER, b"", bytes(LARGE_PAYLOAD_BYTES - 1))) == 0
