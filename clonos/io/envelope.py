"""An object of the store as bytes: a head with format and checksum, then the content, compressed where it pays."""

from __future__ import annotations

import struct

import lz4.frame
from xxhash import xxh3_128

from clonos.core.errors import EnvironmentFault

OBJECT_FORMAT = 1
OBJECT_BYTES_MAX = 16 << 30
_MAGIC = b"clonos"
_FACTS = struct.Struct("<6sBBQ")  # magic, format, compression, length of the content as it was
_CHECKSUM_BYTES = 16  # of the facts and of what is stored behind the checksum
_HEAD_BYTES = _FACTS.size + _CHECKSUM_BYTES
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
    facts = _FACTS.pack(_MAGIC, OBJECT_FORMAT, compression, len(content))
    return b"".join((facts, _checksum(facts, stored), stored))


def unseal(data: bytes, name: str) -> bytes:
    """The content of an object; ``ObjectCorrupt`` names it."""
    if len(data) < _HEAD_BYTES:
        raise ObjectCorrupt(name, f"it has {len(data)} bytes, its head alone has {_HEAD_BYTES}")
    magic, found, compression, length_bytes = _FACTS.unpack_from(data)
    if magic != _MAGIC:
        raise ObjectCorrupt(name, "it does not begin as an object of a checkpoint store")
    if found > OBJECT_FORMAT:
        raise ObjectCorrupt(name, f"format {found} is newer than {OBJECT_FORMAT}: update clonos")
    stored, checksum = memoryview(data)[_HEAD_BYTES:], data[_FACTS.size : _HEAD_BYTES]
    if (actual := _checksum(data[: _FACTS.size], stored)) != checksum:
        raise ObjectCorrupt(name, f"checksum {actual.hex()}, expected {checksum.hex()}")
    if compression not in (_PLAIN, _LZ4) or length_bytes > OBJECT_BYTES_MAX:
        raise ObjectCorrupt(name, f"compression {compression}, {length_bytes} bytes")
    try:
        content = bytes(stored) if compression == _PLAIN else lz4.frame.decompress(stored)
    except RuntimeError as error:
        raise ObjectCorrupt(name, str(error)) from None
    if len(content) != length_bytes:
        raise ObjectCorrupt(name, f"{len(content)} bytes, expected {length_bytes}")
    return content


def _checksum(facts: bytes, stored: bytes | memoryview) -> bytes:
    digest = xxh3_128(facts)
    digest.update(stored)
    return digest.digest()
