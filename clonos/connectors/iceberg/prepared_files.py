"""Data files of an Iceberg table that wait for the commit of their checkpoint, as a part of it says."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from clonos.connectors.connector_errors import OutputCorrupt
from clonos.core.wire.decoding import DECODE_ERRORS

FORMAT: Final = 1


class PreparedFile(msgspec.Struct, frozen=True, array_like=True):
    """File that is in the store, for the table of this identity. ``spec``: number of the partitioning, whose values
    ``partition`` has."""

    table: str
    path: str
    size_bytes: int
    spec: int
    partition: list[Any]
    statistics: dict[str, Any]


class _Part(msgspec.Struct, frozen=True, array_like=True):
    format: int
    files: list[PreparedFile]


_decoder: Final = msgspec.msgpack.Decoder(_Part)


def encode_files(files: Sequence[PreparedFile]) -> bytes:
    """Returns a part of a checkpoint."""
    return msgspec.msgpack.encode(_Part(FORMAT, list(files)))


def decode_files(part: bytes, place: str) -> list[PreparedFile]:
    """Returns the files of a part.

    Raises: OutputCorrupt: it is none.
    """
    try:
        return _decoder.decode(part).files
    except DECODE_ERRORS as error:
        raise OutputCorrupt(place, "a part of a checkpoint", str(error)) from None


def packed_values(values: Sequence[Any]) -> list[Any]:
    """Returns values of a partition as a part has them, in which decimals and UUIDs have their kind."""
    return [{type(value).__name__: str(value)} if isinstance(value, Decimal | UUID) else value for value in values]


def _unpacked(value: Any) -> Any:
    if type(value) is not dict:
        return value
    ((kind, text),) = value.items()
    return Decimal(text) if kind == Decimal.__name__ else UUID(text)


def data_file_of(file: PreparedFile) -> Any:
    """Returns the entry of a file in a manifest, of the class of pyiceberg."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*map(_unpacked, file.partition)),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=file.spec,
        equality_ids=None,
        key_metadata=None,
        **file.statistics,
    )
