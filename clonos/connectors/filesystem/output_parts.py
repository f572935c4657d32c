"""Part files of an output and the manifests that make them visible: their names, content and records."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec

from clonos.connectors.connector_errors import OutputCorrupt
from clonos.connectors.filesystem.durable_files import WRITING, DurableFile
from clonos.core.model.errors import InternalError
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.operators.connector_contract import WriterContext

OUTPUT_FORMAT = 1
PARTS = "parts"
MANIFESTS = "manifests"
OWNER = "owner"
PREPARED = ".prepared"
"""Suffix of part files that are not committed: no pattern of data files, such as ``*.parquet``, matches it."""
PART_NAME = re.compile(r"part-(?P<checkpoint>[0-9]{10,20})-[A-Za-z0-9_.]+(-[0-9]+){3}\.[a-z]+")
MANIFEST_NAME = re.compile(r"(?P<checkpoint>[0-9]{20})\.manifest")
VERTEX_CHARACTERS_MAX = 80


PartName = Annotated[str, msgspec.Meta(max_length=255, pattern=rf"^{PART_NAME.pattern}\Z")]
"""File name of a committed part, without any folder. It begins with a letter, because readers skip ``_`` and ``.``."""


def state_folder(output: str) -> str:
    """Returns the hidden folder beside an output. It has what readers of the output must not see."""
    parent, name = os.path.split(os.path.realpath(output))
    return os.path.join(parent, f".{name}.clonos")


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """Prepared part file.

    ``name`` is that of the committed file. ``checkpoint`` is that of the barrier at which it was prepared; a later one
    may commit it. ``advice`` is what the user should know of it, "" for nothing.
    """

    format: int
    name: PartName
    task: str
    generation: int
    incarnation: int
    checkpoint: int
    rows: int
    size_bytes: int
    xxh3: str
    advice: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """Part files that one checkpoint made visible."""

    format: int
    job_id: str
    checkpoint: int
    parts: tuple[Part, ...]


class Owner(msgspec.Struct, frozen=True):
    """Job that owns an output. ``is_single``: its parts become a single file when the job has ended."""

    format: int
    job_id: str
    is_single: bool = False


_part_decoder = msgspec.json.Decoder(Part)


def decode_part(data: bytes, output: str) -> Part:
    """Decodes and checks the result of ``PartsWriter.prepare``.

    Raises: InternalError: these bytes are not a part, or of a newer version.
    """
    try:
        part = _part_decoder.decode(data)
    except DECODE_ERRORS as error:
        raise InternalError(f"{data[:80]!r} is not a prepared part of {output}: {error}") from None
    if part.format > OUTPUT_FORMAT:
        raise InternalError(f"the prepared part {part.name!r} of {output} has a format that this clonos does not know")
    return part


def decode_record(data: bytes, record_type: Any, path: str) -> Any:
    """Decodes a manifest or owner.

    Raises: OutputCorrupt: the file is damaged, or of a newer version.
    """
    try:
        record = msgspec.json.decode(data, type=record_type)
    except DECODE_ERRORS as error:
        raise OutputCorrupt(path, "JSON written by clonos", str(error)) from None
    if record.format > OUTPUT_FORMAT:
        raise OutputCorrupt(path, f"at most format {OUTPUT_FORMAT} (update clonos)", f"format {record.format}")
    return record


def manifest_name(checkpoint: int) -> str:
    """Returns the name of a manifest; names sort as their checkpoints do."""
    return f"{checkpoint:020}.manifest"


def part_name(context: WriterContext, checkpoint: int, suffix: str) -> str:
    """Returns the name of a part file; names sort by checkpoint first, as ``cat *`` reads them."""
    return f"part-{checkpoint:010}-{_writer_name(context)}.{suffix}"


def _writer_name(context: WriterContext) -> str:
    """Returns the part of file names that is unique for each incarnation of a task."""
    vertex = re.sub(r"[^A-Za-z0-9_.]", "_", context.task_name.removesuffix(f"/{context.index}"))
    return f"{vertex[:VERTEX_CHARACTERS_MAX] or '_'}-{context.index}-{context.generation}-{context.incarnation}"


def rename_once(path: str, final_path: str) -> None:
    """Renames a part file, which another driver may have done in the meantime.

    Raises: OSError: it cannot be renamed, or neither name exists.
    """
    try:
        os.rename(path, final_path)
    except FileNotFoundError:
        if not os.path.exists(final_path):
            raise


class RowsFile(Protocol):
    """Part file that is being written in some format."""

    def rows(self, rows: list[Any]) -> None:
        """Appends rows.

        Raises: RowNotWritable: the format cannot hold a row.
        """

    def columns(self, batch: Any) -> None:
        """Appends a ``pyarrow.RecordBatch``.

        Raises: RowNotWritable: the format cannot hold a row.
        """

    def finish(self) -> None:
        """Writes the footer of the format."""

    def abandon(self) -> None:
        """Releases resources without a footer, because the file will be discarded."""


class RowsFormat(Protocol):
    """Format of part files; it travels to the slots."""

    suffix: str

    def start(self, file: DurableFile) -> RowsFile:
        """Begins a part file."""

    def join(self, paths: Sequence[str], file: DurableFile) -> None:
        """Writes the rows of part files into one file.

        Raises: OutputCorrupt, OutputFailed: a part file cannot be read. RowNotWritable: the parts do not fit together.
        """


class PartsWriter:
    """Transactional writer of every file sink: one part file per checkpoint with output."""

    def __init__(self, folder: str, rows_format: RowsFormat) -> None:
        self._folder = f"{state_folder(folder)}/{PARTS}"
        self._format = rows_format
        self._context: WriterContext | None = None
        self._file: DurableFile | None = None
        self._rows_file: RowsFile | None = None
        self._rows = 0

    def open(self, context: WriterContext) -> None:
        """Takes the names of the task."""
        self._context = context

    def write(self, rows: list[Any]) -> None:
        """Appends rows to the current part file.

        Raises: RowNotWritable: the format cannot hold a row. OutputFailed: the disk fails.
        """
        if rows:
            self._part().rows(rows)
            self._rows += len(rows)

    def write_columns(self, batch: Any) -> None:
        """Appends a ``pyarrow.RecordBatch`` to the current part file.

        Raises: RowNotWritable: the format cannot hold a row. OutputFailed: the disk fails.
        """
        if batch.num_rows:
            self._part().columns(batch)
            self._rows += batch.num_rows

    def prepare(self, checkpoint: int) -> bytes | None:
        """Publishes the current part file and describes it; later rows go into a new one. Returns None without rows."""
        if self._file is None or self._rows_file is None:
            return None
        assert self._context is not None, "a writer is opened before it writes"
        self._rows_file.finish()
        name = part_name(self._context, checkpoint, self._format.suffix)
        xxh3 = self._file.publish(f"{self._folder}/{name}{PREPARED}")
        context, file, rows = self._context, self._file, self._rows
        advice = getattr(self._rows_file, "advice", "")
        self._file, self._rows_file, self._rows = None, None, 0
        return msgspec.json.encode(
            Part(
                format=OUTPUT_FORMAT,
                name=name,
                task=context.task_name,
                generation=context.generation,
                incarnation=context.incarnation,
                checkpoint=checkpoint,
                rows=rows,
                size_bytes=file.size_bytes,
                xxh3=xxh3,
                advice=advice,
            )
        )

    def close(self) -> None:
        """Discards the current part file, which no checkpoint will commit."""
        if self._rows_file is not None:
            self._rows_file.abandon()
        if self._file is not None:
            self._file.discard()
        self._file = self._rows_file = None

    def _part(self) -> RowsFile:
        if self._rows_file is None:
            assert self._context is not None, "a writer is opened before it writes"
            self._file = DurableFile(f"{self._folder}/{_writer_name(self._context)}{WRITING}")
            self._rows_file = self._format.start(self._file)
        return self._rows_file
