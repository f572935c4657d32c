"""LZ4 frames of stored objects and spilled segments: a false length allocates no memory."""

from __future__ import annotations

import lz4.frame
import pytest
import xxhash

from clonos.io.local.spill import SegmentDamaged, decode_segment, encode_segment
from clonos.io.lz4_frames import FrameDamaged, compress, decompress
from clonos.io.store.envelope import ObjectCorrupt, seal, seal_pieces, unseal, unseal_pieces

CONTENT = b"some words " * 100


def claiming(length_bytes: int) -> bytes:
    """A frame of ``CONTENT`` whose header, with a valid checksum, states the given length."""
    frame = bytearray(lz4.frame.compress(CONTENT, store_size=True))
    frame[6:14] = length_bytes.to_bytes(8, "little")
    frame[14] = xxhash.xxh32_intdigest(bytes(frame[4:14])) >> 8 & 0xFF
    assert lz4.frame.get_frame_info(bytes(frame))["content_size"] == length_bytes
    return bytes(frame)


@pytest.mark.parametrize("content", [b"", b"x", CONTENT, bytes(1 << 20)])
def test_a_frame_is_decompressed_to_its_content(content: bytes) -> None:
    assert decompress(memoryview(compress(content)), len(content)) == content


@pytest.mark.parametrize("length_bytes", [0, len(CONTENT) - 1, len(CONTENT) + 1, 1 << 33, 1 << 62])
def test_a_frame_with_a_wrong_length_is_damaged(length_bytes: int) -> None:
    with pytest.raises(FrameDamaged):
        decompress(compress(CONTENT), length_bytes)


@pytest.mark.parametrize(
    "frame", [b"", b"\x00", compress(CONTENT)[:-1], compress(CONTENT) + b"x", compress(CONTENT) * 2]
)
def test_bytes_that_are_not_a_single_frame_are_damaged(frame: bytes) -> None:
    with pytest.raises(FrameDamaged):
        decompress(frame, len(CONTENT))


@pytest.mark.parametrize("length_bytes", [1 << 40, (1 << 64) - 1])
def test_a_false_length_in_a_frame_header_allocates_no_memory(length_bytes: int) -> None:
    with pytest.raises(FrameDamaged):
        decompress(claiming(length_bytes), len(CONTENT))


def test_an_object_with_a_false_length_is_corrupt() -> None:
    facts, label = seal(CONTENT, "job")[:16], b"\x03\0job"
    assert facts[7] == 1, "it is compressed"
    digest = xxhash.xxh3_128(facts)
    digest.update(label + claiming(1 << 62))
    with pytest.raises(ObjectCorrupt, match="the object job of the checkpoint store is corrupt"):
        unseal(facts + digest.digest() + label + claiming(1 << 62), "job")


def test_a_piece_with_a_false_length_is_corrupt() -> None:
    start, head, stored = list(seal_pieces([CONTENT], "snapshot"))[:3]
    frame = claiming(1 << 62)
    facts = head[:1] + len(frame).to_bytes(4, "little") + head[5:9]
    checksum = xxhash.xxh3_64_intdigest(frame, xxhash.xxh3_64_intdigest(facts, 0)).to_bytes(8, "little")
    assert stored != frame
    with pytest.raises(ObjectCorrupt):
        list(unseal_pieces(start + facts + checksum + frame, "snapshot"))


@pytest.mark.parametrize("length_bytes", [0, 11, 1 << 33, 1 << 62])
def test_a_segment_with_a_false_length_is_damaged(length_bytes: int) -> None:
    body = length_bytes.to_bytes(8, "little") + claiming(1 << 62)
    with pytest.raises(SegmentDamaged):
        decode_segment(3, xxhash.xxh3_64_intdigest(body).to_bytes(8, "little") + body, "file")


@pytest.mark.parametrize(
    "content",
    [
        b"\x02\x00\x00\x00",
        b"\x02\x00\x00\x00" + (3).to_bytes(8, "little") + b"\xff\xff\xff\xff",
        b"\x02\x00\x00\x00" + (3).to_bytes(8, "little") + b"\x01\x00\x00\x00" + b"\x09\x00\x00\x00" + b"four",
        b"\x02\x00\x00\x00" + (3).to_bytes(8, "little") + b"\x00\x00\x00\x00" + b"more",
    ],
    ids=["no head", "more payloads than bytes", "a payload longer than what is there", "bytes after the last payload"],
)
def test_a_segment_with_contradicting_lengths_is_damaged(content: bytes) -> None:
    body = len(content).to_bytes(8, "little") + compress(content)
    with pytest.raises(SegmentDamaged):
        decode_segment(3, xxhash.xxh3_64_intdigest(body).to_bytes(8, "little") + body, "file")


def test_a_segment_is_decoded_unchanged() -> None:
    assert decode_segment(3, b"".join(encode_segment(3, [b"", CONTENT])), "file") == [b"", CONTENT]
