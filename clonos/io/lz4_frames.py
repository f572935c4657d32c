"""LZ4 frames of a known length: a claimed length is checked before memory is allocated."""

from __future__ import annotations

from typing import Final

import lz4.frame

RATIO_MAX: Final = 255
"""Bytes of content that one byte of LZ4 can represent at most."""


class FrameDamaged(Exception):
    """The bytes are not an LZ4 frame of this length. The caller catches it and raises an error that names the file or
    object."""


def compress(content: bytes) -> bytes:
    """Returns a frame without its content length, which the caller stores."""
    frame: bytes = lz4.frame.compress(content, store_size=False)
    return frame


def decompress(frame: bytes | memoryview, length_bytes: int) -> bytes:
    """Returns the content of exactly one frame.

    Raises: FrameDamaged when ``frame`` is damaged, or its content does not have ``length_bytes`` bytes.
    """
    if length_bytes > len(frame) * RATIO_MAX:
        raise FrameDamaged(f"{len(frame)} bytes cannot hold {length_bytes}")
    context = lz4.frame.create_decompression_context()
    try:
        # One byte more than expected, whatever length the frame's header claims: a longer content is detected.
        found: tuple[bytes, int, bool] = lz4.frame.decompress_chunk(context, frame, max_length=length_bytes + 1)
    except RuntimeError as error:
        raise FrameDamaged(str(error)) from None
    content, read_bytes, is_whole = found
    if not is_whole or read_bytes != len(frame) or len(content) != length_bytes:
        raise FrameDamaged(f"{read_bytes} of {len(frame)} bytes hold {len(content)}, expected {length_bytes}")
    return content
