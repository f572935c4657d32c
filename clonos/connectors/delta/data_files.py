"""Data files of a Delta table as splits, and the reader of one: it gives the columns that the table has.

A data file lacks the columns by which the table is partitioned, and those that were added later. It may have types of
fewer bits than the table, and instants without a zone, which are in UTC.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow
from pyarrow import types

from clonos.connectors.columns.batch_files import reading_input
from clonos.connectors.columns.narrowed_source import NarrowedSource
from clonos.connectors.columns.parquet_batches import metadata_of
from clonos.connectors.columns.parquet_files import ParquetReader
from clonos.connectors.connector_errors import InputMalformed, InputUnreadable, SplitMalformed
from clonos.connectors.delta.delta_errors import DataFileGone
from clonos.connectors.filesystem.file_splits import FileSplit
from clonos.connectors.object_stores.urls import is_url, split_url
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.kernels.record_batch import RecordBatch

WHOLE: Final = 0
"""End of a split that has all row groups of its file, which the driver has not counted."""


class DataFileSplit(FileSplit, frozen=True, array_like=True):
    """Row groups of a data file. ``schema``: that of the table, compressed. ``partition``: texts of the log."""

    version: int
    partition: dict[str, str | None]
    schema: bytes


_decoder: Final = msgspec.msgpack.Decoder(DataFileSplit)
encode_data_file: Final = msgspec.msgpack.Encoder().encode


def decode_data_file(split: bytes) -> DataFileSplit:
    """Decodes a split.

    Raises: SplitMalformed: it is none.
    """
    try:
        return _decoder.decode(split)
    except DECODE_ERRORS as error:
        raise SplitMalformed("split of a Delta table", split, str(error)) from None


def packed_schema(schema: Any) -> bytes:
    """Returns a ``pyarrow.Schema`` as a split has it."""
    return zlib.compress(schema.serialize().to_pybytes(), 9)


def unpacked_schema(data: bytes) -> Any:
    """Returns the ``pyarrow.Schema`` of a split.

    Raises: SplitMalformed: it is none.
    """
    try:
        return pyarrow.ipc.read_schema(pyarrow.py_buffer(zlib.decompress(data)))
    except (pyarrow.ArrowException, OSError, zlib.error) as error:
        raise SplitMalformed("split of a Delta table", data, f"its schema is not one: {error}") from None


def place_of(table: str, path: str) -> str:
    """Returns the path or URL of a data file, by its path in the log of the table.

    Raises: InputUnreadable: the table was cloned, and the file is in another one.
    """
    below = unquote(path)
    if "://" in path or path.startswith(("/", "file:")):
        raise InputUnreadable(path, f"the table {table} was cloned, and has this file of another one")
    if not is_url(table):
        return os.path.join(table, below)
    url = split_url(table)
    return url.of(f"{url.key.strip('/')}/{below}")


def partition_scalar(path: str, name: str, text: str | None, kind: Any) -> Any:
    """Returns the value by which a data file is partitioned, of its text in the log. An empty text is null there.

    Raises: InputMalformed: it is not of the type of the column.
    """
    if not text:
        return pyarrow.scalar(None, kind)
    try:
        if types.is_timestamp(kind) and kind.tz is not None and not _has_offset(text):
            return pyarrow.scalar(text).cast(pyarrow.timestamp(kind.unit)).cast(kind)
        return pyarrow.scalar(text).cast(kind)
    except pyarrow.ArrowException as error:
        reason = f"the table is partitioned by {name}, of which it has {text!r:.80} as {kind}: {error}"
        raise InputMalformed(path, 0, reason, "Repair the table.") from None


def _has_offset(text: str) -> bool:
    return text.endswith("Z") or "+" in text or "-" in text[11:]


class DataFileReader(ParquetReader):
    """Reader of one data file. ``added``: columns beside those of the table, with the value that all rows have."""

    def __init__(self, **options: Any) -> None:
        super().__init__(None, **options)
        self.added: Mapping[str, Any] = {}
        self._schema: Any = None
        self._scalars: dict[str, Any] = {}
        self._is_empty = False

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark.

        Raises: DataFileGone: it is not there any more. Otherwise what a ``BatchReader`` raises.
        """
        part = decode_data_file(split)
        self._schema = unpacked_schema(part.schema)
        self._scalars = {
            field.name: partition_scalar(part.path, field.name, part.partition[field.name], field.type)
            for field in self._schema
            if field.name in part.partition
        } | dict(self.added)
        try:
            end = part.end
            if end == WHOLE:
                with reading_input(part.path, self.kind):
                    end = metadata_of(part.path, part.size_bytes, part.mtime_ns).num_row_groups
            self._is_empty = not end
            if end:
                plain = FileSplit(part.format, part.path, part.size_bytes, part.mtime_ns, part.begin, end)
                super().open(msgspec.msgpack.encode(plain), mark)
        except InputUnreadable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise DataFileGone(part.path, part.version) from None
            raise

    def read(self, records_max: int) -> Any | None:
        """Returns the next batch of at most ``records_max`` rows, None at the end."""
        return None if self._is_empty else super().read(records_max)

    def _given_names(self) -> list[str]:
        """Returns the columns that a batch has; all of the table if a step uses another column."""
        names = [*self._schema.names, *(name for name in self.added if name not in self._schema.names)]
        if self._used is None or not self._used.issubset(names):
            return names
        return [name for name in names if name in self._used]

    def _names_of(self, names: Sequence[str]) -> list[str] | None:
        stored = set(self._given_names()) - self._scalars.keys()
        return [name for name in names if name in stored] or list(names[:1])

    def _batches_of(self, groups: list[int]) -> Iterator[Any]:
        for batch in super()._batches_of(groups):
            yield self._as_in_table(batch)

    def _as_in_table(self, batch: RecordBatch) -> Any:
        columns, fields = [], []
        for name in self._given_names():
            if name in self._scalars:
                column = pyarrow.repeat(self._scalars[name], batch.num_rows)
            else:
                kind = self._schema.field(name).type
                found = batch.schema.get_field_index(name)
                column = pyarrow.nulls(batch.num_rows, kind) if found < 0 else _as_type(batch.column(found), kind)
            columns.append(column)
            fields.append(pyarrow.field(name, column.type))
        if not columns:  # no step uses any: one has the number of rows
            return batch
        return pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields))


def _as_type(column: Any, kind: Any) -> Any:
    """Returns a column of the type of the table; as it is if a value does not fit, which is an error of its row."""
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pyarrow.ArrowException:
        return column


class DataFileSource(NarrowedSource):
    """Base of sources of data files."""

    def file_reader(self) -> DataFileReader:
        """Creates a reader of data files."""
        return DataFileReader(bounds=self.bounds, used=self.used, planned=self.planned_schema)
