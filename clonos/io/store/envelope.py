"""Encoding of the store's objects: a head with format and checksum, the object's name, then the content, compressed if
that makes it smaller.

The name says what the content is: for a snapshot the task, the checkpoint and the incarnation. So an object that was
put in the place of another one is not taken for it, although it is whole. An object of the same name from another store
has another digest than the metadata of the checkpoint says.

A snapshot is a sequence of pieces and an end marker, each with a checksum that covers its position. It is written while
it is encoded, and read without a copy of the whole.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator

from xxhash import xxh3_64_intdigest, xxh3_128

from clonos.core.model.errors import EnvironmentFault
from clonos.core.wire.decoding import check_format
from clonos.io.lz4_frames import FrameDamaged, compress, decompress

OBJECT_FORMAT = 3
OBJECT_BYTES_MAX = 16 << 30
_MAGIC = b"clonos"
_FACTS = struct.Struct("<6sBBQ")  # magic, format, compression, length of the uncompressed content
_CHECKSUM_BYTES = 16  # of the facts, the name and of the stored bytes after the checksum
_HEAD_BYTES = _FACTS.size + _CHECKSUM_BYTES
_PLAIN, _LZ4, _END = 0, 1, 2

OBJECT_OF_PIECES_FORMAT = 4
_ROW = struct.Struct("<6sB")  # magic, format; then the name, its checksum, and the pieces
_NAME = struct.Struct("<H")  # length of the name
_PLACE_OF_NAME = (1 << 64) - 1
# Compression or end marker, stored bytes, content bytes; of the end marker: 0, number of pieces.
_PIECE = struct.Struct("<BII")
_PIECE_CHECKSUM = struct.Struct("<Q")
_INCOMPRESSIBLE_PIECES = 15
"""Pieces that skip compression after a piece that shrank by less than 1/16."""
_COMPRESSED_FROM_BYTES = 512

_DIGEST_AT_END = re.compile(r"\.[0-9a-f]{16}\Z")
_DIGEST_CHARACTERS = 17


class ObjectCorrupt(EnvironmentFault):
    """An object of the store does not have the content that was written to it."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the object {self.name} of the checkpoint store is corrupt: {self.reason}."
            " Restore it from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


def seal(content: bytes, name: str) -> bytes:
    """Returns the object ``name`` that holds ``content``."""
    stored, compression = content, _PLAIN
    if len(content) >= _COMPRESSED_FROM_BYTES:
        compressed = compress(content)
        if len(compressed) < len(content):
            stored, compression = compressed, _LZ4
    facts = _FACTS.pack(_MAGIC, OBJECT_FORMAT, compression, len(content))
    stored = _label(name) + stored
    return b"".join((facts, _checksum(facts, stored), stored))


def unseal(data: bytes, name: str) -> bytes:
    """Returns the content of the object ``name``.

    Raises: ObjectCorrupt when it is damaged, or another object. FormatUnknown: another version wrote it.
    """
    if len(data) < _HEAD_BYTES:
        raise ObjectCorrupt(name, f"it has {len(data)} bytes, but its head alone needs {_HEAD_BYTES}")
    magic, found, compression, length_bytes = _FACTS.unpack_from(data)
    _check_magic(magic, name)
    check_format(f"the object {name}", found, OBJECT_FORMAT)
    stored, checksum = memoryview(data)[_HEAD_BYTES:], data[_FACTS.size : _HEAD_BYTES]
    if (actual := _checksum(data[: _FACTS.size], stored)) != checksum:
        raise ObjectCorrupt(name, f"checksum {actual.hex()}, expected {checksum.hex()}")
    stored = stored[_check_label(stored, name) :]
    if compression not in (_PLAIN, _LZ4) or length_bytes > OBJECT_BYTES_MAX:
        raise ObjectCorrupt(name, f"compression {compression}, {length_bytes} bytes")
    if compression == _LZ4:
        return _decompressed(stored, length_bytes, name)
    if len(stored) != length_bytes:
        raise ObjectCorrupt(name, f"{len(stored)} bytes, expected {length_bytes}")
    return bytes(stored)


class ObjectDigest:
    """Digest of an object of pieces: of their checksums, so that it costs nothing."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, checksum: bytes) -> bytes:
        """Adds the checksum of the next piece, and returns it."""
        self.value = xxh3_64_intdigest(checksum, self.value)
        return checksum

    def __str__(self) -> str:
        return f"{self.value:016x}"


def name_of_object(stored_as: str) -> str:
    """Returns the name of an object, without the digest that the metadata of a checkpoint has after it."""
    return stored_as[:-_DIGEST_CHARACTERS] if _DIGEST_AT_END.search(stored_as) else stored_as


def digest_of_object(stored_as: str) -> str:
    """Returns the digest that the metadata of a checkpoint has after the name of an object; "" for none."""
    return stored_as.removeprefix(name_of_object(stored_as)).removeprefix(".")


def seal_pieces(pieces: Iterable[bytes], name: str, digest: ObjectDigest | None = None) -> Iterator[bytes]:
    """Returns the parts of the object ``name`` that holds these pieces; ``digest`` takes their checksums."""
    digest = digest or ObjectDigest()
    row, label = _ROW.pack(_MAGIC, OBJECT_OF_PIECES_FORMAT), _label(name)
    yield row + label + _PIECE_CHECKSUM.pack(_piece_checksum(row, label, _PLACE_OF_NAME))
    count = untried = 0
    for piece in pieces:
        stored, compression = piece, _PLAIN
        if untried:
            untried -= 1
        elif len(piece) >= _COMPRESSED_FROM_BYTES:
            compressed = compress(piece)
            if len(compressed) < len(piece):
                stored, compression = compressed, _LZ4
            if len(compressed) > len(piece) // 16 * 15:
                untried = _INCOMPRESSIBLE_PIECES
        facts = _PIECE.pack(compression, len(stored), len(piece))
        yield facts + digest.add(_PIECE_CHECKSUM.pack(_piece_checksum(facts, stored, count)))
        yield stored
        count += 1
    facts = _PIECE.pack(_END, 0, count)
    yield facts + digest.add(_PIECE_CHECKSUM.pack(_piece_checksum(facts, b"", count)))


def unseal_pieces(
    data: bytes, name: str, expected: str = "", reached: Callable[[float], object] = float
) -> Iterator[bytes | memoryview]:
    """Returns the pieces of the object ``name``, each verified when it is reached.

    ``expected``: its digest, compared at its end; "" if that is not known. ``reached`` is called with the share of the
    object that has been read, before each piece.

    Raises: ObjectCorrupt when a piece is damaged, or the object is another one, truncated or has bytes after its end.
    FormatUnknown: another version wrote it.
    """
    if len(data) < _ROW.size:
        raise ObjectCorrupt(name, f"it has {len(data)} bytes, but its head alone needs {_ROW.size}")
    magic, found = _ROW.unpack_from(data)
    _check_magic(magic, name)
    check_format(f"the object {name}", found, OBJECT_OF_PIECES_FORMAT)
    whole, count, digest = memoryview(data), 0, ObjectDigest()
    at = _ROW.size + _check_label(whole[_ROW.size :], name)
    label, begin = whole[_ROW.size : at], at + _PIECE_CHECKSUM.size
    if whole[at:begin] != _PIECE_CHECKSUM.pack(_piece_checksum(whole[: _ROW.size], label, _PLACE_OF_NAME)):
        raise ObjectCorrupt(name, "its head is damaged")
    at = begin
    while True:
        begin = at + _PIECE.size + _PIECE_CHECKSUM.size
        if begin > len(data):
            raise ObjectCorrupt(name, f"it is truncated after {count} pieces")
        facts = whole[at : at + _PIECE.size]
        compression, stored_bytes, content_bytes = _PIECE.unpack(facts)
        (checksum,) = _PIECE_CHECKSUM.unpack_from(whole, at + _PIECE.size)
        stored = whole[begin : begin + stored_bytes]
        if (actual := _piece_checksum(facts, stored, count)) != checksum:
            raise ObjectCorrupt(name, f"checksum {actual:016x} of piece {count}, expected {checksum:016x}")
        digest.add(_PIECE_CHECKSUM.pack(checksum))
        at = begin + stored_bytes
        if compression == _END:
            if at != len(data):
                raise ObjectCorrupt(name, f"{len(data) - at} bytes after its end")
            if expected and str(digest) != expected:
                raise ObjectCorrupt(name, f"it is another object of this name: digest {digest}, expected {expected}")
            return
        if compression not in (_PLAIN, _LZ4):
            raise ObjectCorrupt(name, f"compression {compression} of piece {count}")
        reached(at / len(data))
        yield stored if compression == _PLAIN else _decompressed(stored, content_bytes, name)
        count += 1


def _check_magic(found: bytes, name: str) -> None:
    if found != _MAGIC:
        raise ObjectCorrupt(name, "it does not begin with the magic bytes of a checkpoint store")


def _label(name: str) -> bytes:
    encoded = name.encode()
    return _NAME.pack(len(encoded)) + encoded


def _check_label(stored: memoryview, name: str) -> int:
    """Checks which object this is, and returns the length of what says so. Raises: ObjectCorrupt."""
    length_bytes = _NAME.size + int.from_bytes(stored[: _NAME.size], "little")
    found = stored[:length_bytes]
    if found != _label(name):
        other = found[_NAME.size :].tobytes().decode(errors="replace")
        raise ObjectCorrupt(name, f"another object is in its place, which says that it is {other!r}")
    return length_bytes


def _decompressed(stored: memoryview, content_bytes: int, name: str) -> bytes:
    try:
        return decompress(stored, content_bytes)
    except FrameDamaged as damaged:
        raise ObjectCorrupt(name, str(damaged)) from None


def _piece_checksum(facts: bytes | memoryview, stored: bytes | memoryview, place: int) -> int:
    return xxh3_64_intdigest(stored, xxh3_64_intdigest(facts, place))


def _checksum(facts: bytes, stored: bytes | memoryview) -> bytes:
    digest = xxh3_128(facts)
    digest.update(stored)
    return digest.digest()
