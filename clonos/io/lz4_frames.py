"""LZ4 frames of a known length: what a frame claims to hold is looked at before memory is taken for it."""

from __future__ import annotations

from typing import Final

import lz4.frame

RATIO_MAX: Final = 255
"""A byte of LZ4 stands for at most so many bytes of content."""


class FrameDamaged(Exception):
    """Bytes are no LZ4 frame of this length; the text says why. Caught where it is known what they should have been."""


def compress(content: bytes) -> bytes:
    """A frame that does not tell its length: whoever stores it does."""
    frame: bytes = lz4.frame.compress(content, store_size=False)
    return frame


def decompress(frame: bytes | memoryview, length_bytes: int) -> bytes:
    """The content of exactly one frame. FrameDamaged."""
    if length_bytes > len(frame) * RATIO_MAX:
        raise FrameDamaged(f"{len(frame)} bytes cannot hold {length_bytes}")
    context = lz4.frame.create_decompression_context()
    try:
        # As much as is expected and a byte more, whatever the head of the frame says.
        found: tuple[bytes, int, bool] = lz4.frame.decompress_chunk(context, frame, max_length=length_bytes + 1)
    except RuntimeError as error:
        raise FrameDamaged(str(error)) from None
    content, read_bytes, is_whole = found
    if not is_whole or read_bytes != len(frame) or len(content) != length_bytes:
        raise FrameDamaged(f"{read_bytes} of {len(frame)} bytes hold {len(content)}, expected {length_bytes}")
    return content
