"""An object of the store as bytes: a head with format and checksum, then the content, compressed where it pays."""

from __future__ import annotations

import struct

import lz4.frame
from xxhash import xxh3_128_digest

from clonos.core.errors import EnvironmentFault

OBJECT_FORMAT = 1
OBJECT_BYTES_MAX = 16 << 30
_MAGIC = b"clonos"
_HEAD = struct.Struct("<6sBBQ16s")  # magic, format, compression, length of the content as it was, checksum of the rest
_PLAIN, _LZ4 = 0, 1
_COMPRESSED_FROM_BYTES = 512


class ObjectCorrupt(EnvironmentFault):
    """An object of the store is not what was written."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the object {self.name} of the checkpoint store is corrupt: {self.reason}."
            " Restore it from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


def seal(content: bytes) -> bytes:
    """The object that holds ``content``."""
    stored, compression = content, _PLAIN
    if len(content) >= _COMPRESSED_FROM_BYTES:
        compressed: bytes = lz4.frame.compress(content, store_size=False)
        if len(compressed) < len(content):
            stored, compression = compressed, _LZ4
    return _HEAD.pack(_MAGIC, OBJECT_FORMAT, compression, len(content), xxh3_128_digest(stored)) + stored


def unseal(data: bytes, name: str) -> bytes:
    """The content of an object; ``ObjectCorrupt`` names it."""
    if len(data) < _HEAD.size:
        raise ObjectCorrupt(name, f"it has {len(data)} bytes, its head alone has {_HEAD.size}")
    magic, found, compression, length_bytes, checksum = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ObjectCorrupt(name, "it does not begin as an object of a checkpoint store")
    if found > OBJECT_FORMAT:
        raise ObjectCorrupt(name, f"format {found} is newer than {OBJECT_FORMAT}: update clonos")
    stored = memoryview(data)[_HEAD.size :]
    if xxh3_128_digest(stored) != checksum:
        raise ObjectCorrupt(name, f"checksum {xxh3_128_digest(stored).hex()}, expected {checksum.hex()}")
    if compression not in (_PLAIN, _LZ4) or length_bytes > OBJECT_BYTES_MAX:
        raise ObjectCorrupt(name, f"compression {compression}, {length_bytes} bytes")
    try:
        content = bytes(stored) if compression == _PLAIN else lz4.frame.decompress(stored)
    except RuntimeError as error:
        raise ObjectCorrupt(name, str(error)) from None
    if len(content) != length_bytes:
        raise ObjectCorrupt(name, f"{len(content)} bytes, expected {length_bytes}")
    return content
