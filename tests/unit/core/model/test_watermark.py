"""Watermarks as bytes: every instant of an int64, idle and active; any other payload is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.model.errors import Blame
from clonos.core.model.watermark import (
    ACTIVE,
    END_OF_TIME_NS,
    IDLE,
    INSTANT_NS_MIN,
    Watermark,
    WatermarkMalformed,
    decode_watermark,
    encode_watermark,
    is_watermark,
)

WATERMARKS = st.one_of(st.integers(INSTANT_NS_MIN, END_OF_TIME_NS), st.sampled_from((IDLE, ACTIVE)))


@given(WATERMARKS)
def test_a_watermark_reads_back_as_it_was_written(watermark: Watermark) -> None:
    payload = encode_watermark(watermark)
    assert is_watermark(payload)
    assert decode_watermark(payload) == watermark
    assert decode_watermark(memoryview(payload)) == watermark


@given(st.binary(max_size=12))
def test_a_payload_is_accepted_only_if_it_can_be_decoded(payload: bytes) -> None:
    try:
        assert encode_watermark(decode_watermark(payload)) == payload
        assert is_watermark(payload)
    except WatermarkMalformed:
        assert not is_watermark(payload)


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x00\x00", bytes(7), bytes(9)])
def test_a_malformed_watermark_blames_the_peer_and_shows_its_bytes(payload: bytes) -> None:
    with pytest.raises(WatermarkMalformed, match=f"the bytes {payload.hex()} are no watermark") as caught:
        decode_watermark(payload)
    assert caught.value.blame is Blame.PEER


def test_an_instant_beyond_64_bits_is_no_watermark() -> None:
    for instant in (INSTANT_NS_MIN - 1, END_OF_TIME_NS + 1):
        with pytest.raises(OverflowError):
            encode_watermark(instant)
