"""Form in which records of a ``PushSource`` are journalled: a length, the digest of an identity, the data."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

IDENTITY_BYTES: Final = 16
_HEAD: Final = struct.Struct(f">I?{IDENTITY_BYTES}s")
_END: Final = b"\n"
"""Last byte of a record, because no record may end with the byte 4."""


def record_of(data: bytes, identity: object) -> bytes:
    """Returns the journalled form of data; ``identity`` tells it from others, None if nothing does."""
    digest = b"" if identity is None else blake2b(str(identity).encode(), digest_size=IDENTITY_BYTES).digest()
    return _HEAD.pack(len(data), identity is not None, digest) + data + _END


def identity_in(record: bytes) -> bytes | None:
    """Returns the digest of the identity in a record."""
    _, has_identity, digest = _HEAD.unpack_from(record)
    return digest if has_identity else None


def data_in(record: bytes) -> memoryview:
    """Returns the data of a record."""
    return memoryview(record)[_HEAD.size : -len(_END)]


def cut_records(data: bytes) -> list[bytes]:
    """Splits bytes of the journal into records."""
    records, start = [], 0
    while start < len(data):
        end = start + _HEAD.size + _HEAD.unpack_from(data, start)[0] + len(_END)
        records.append(data[start:end])
        start = end
    return records
