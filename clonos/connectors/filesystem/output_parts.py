"""Part files of an output and the manifests that make them visible: their names, their content, their records."""

from __future__ import annotations

import re
from typing import Annotated, Any, Protocol

import msgspec

from clonos.connectors.connector_errors import OutputCorrupt
from clonos.connectors.filesystem.durable_files import WRITING, DurableFile
from clonos.core.model.errors import InternalError
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.operators.connector_contract import WriterContext

OUTPUT_FORMAT = 1
PARTS = ".parts"
MANIFESTS = "_manifests"
OWNER = "owner.json"
PART_NAME = re.compile(r"[A-Za-z0-9_.]+(-[0-9]+){3}-(?P<checkpoint>[0-9]{20})\.[a-z]+")
MANIFEST_NAME = re.compile(r"(?P<checkpoint>[0-9]{20})\.json")
VERTEX_CHARACTERS_MAX = 80


PartName = Annotated[str, msgspec.Meta(max_length=255, pattern=rf"^{PART_NAME.pattern}\Z")]
"""Of a file in ``PARTS``: it leads nowhere else."""


class Part(msgspec.Struct, frozen=True):
    """A prepared file. ``checkpoint``: at whose barrier it was prepared; a later one may commit it."""

    format: int
    name: PartName
    task: str
    generation: int
    incarnation: int
    checkpoint: int
    rows: int
    size_bytes: int
    xxh3: str


class Manifest(msgspec.Struct, frozen=True):
    """What one checkpoint made visible."""

    format: int
    job_id: str
    checkpoint: int
    parts: tuple[Part, ...]


class Owner(msgspec.Struct, frozen=True):
    """Whose output a folder holds."""

    format: int
    job_id: str


_part_decoder = msgspec.json.Decoder(Part)


def decode_part(data: bytes, output: str) -> Part:
    """What ``PartsWriter.prepare`` answered, checked."""
    try:
        part = _part_decoder.decode(data)
    except DECODE_ERRORS as error:
        raise InternalError(f"{data[:80]!r} is no prepared part of {output}: {error}") from None
    if part.format > OUTPUT_FORMAT:
        raise InternalError(f"the prepared part {part.name!r} of {output} has a format that this clonos does not know")
    return part


def decode_record(data: bytes, record_type: Any, path: str) -> Any:
    """A manifest or owner from its file."""
    try:
        record = msgspec.json.decode(data, type=record_type)
    except DECODE_ERRORS as error:
        raise OutputCorrupt(path, "the JSON of clonos", str(error)) from None
    if record.format > OUTPUT_FORMAT:
        raise OutputCorrupt(path, f"at most format {OUTPUT_FORMAT} (update clonos)", f"format {record.format}")
    return record


def manifest_name(checkpoint: int) -> str:
    """The names sort as the checkpoints do."""
    return f"{checkpoint:020}.json"


def part_stem(context: WriterContext) -> str:
    """The beginning of a part's name: unique for each life of a task."""
    vertex = re.sub(r"[^A-Za-z0-9_.]", "_", context.task_name.removesuffix(f"/{context.index}"))
    return f"{vertex[:VERTEX_CHARACTERS_MAX] or '_'}-{context.index}-{context.generation}-{context.incarnation}"


class RowsFile(Protocol):
    """One part file being written in some format."""

    def rows(self, rows: list[Any]) -> None:
        """Appends rows. Raises ``RowNotWritable``."""

    def columns(self, batch: Any) -> None:
        """Appends a ``pyarrow.RecordBatch``."""

    def finish(self) -> None:
        """Writes what the format demands at the end."""

    def abandon(self) -> None:
        """Called instead: the file will be discarded."""


class RowsFormat(Protocol):
    """How rows become bytes; a description that travels to the slots."""

    suffix: str

    def start(self, file: DurableFile) -> RowsFile:
        """Begins a part."""


class PartsWriter:
    """The transactional writer of every file sink: one part file for each checkpoint with output."""

    def __init__(self, folder: str, rows_format: RowsFormat) -> None:
        self._folder = f"{folder}/{PARTS}"
        self._format = rows_format
        self._context: WriterContext | None = None
        self._file: DurableFile | None = None
        self._rows_file: RowsFile | None = None
        self._rows = 0

    def open(self, context: WriterContext) -> None:
        """Whose life this is."""
        self._context = context

    def write(self, rows: list[Any]) -> None:
        """Raises ``RowNotWritable`` and ``OutputFailed``."""
        if rows:
            self._part().rows(rows)
            self._rows += len(rows)

    def write_columns(self, batch: Any) -> None:
        """The same for a ``pyarrow.RecordBatch``."""
        if batch.num_rows:
            self._part().columns(batch)
            self._rows += batch.num_rows

    def prepare(self, checkpoint: int) -> bytes | None:
        """Gives the part its name. What is written from now on goes into another."""
        if self._file is None or self._rows_file is None:
            return None
        assert self._context is not None, "a writer is opened before it writes"
        self._rows_file.finish()
        name = f"{part_stem(self._context)}-{checkpoint:020}.{self._format.suffix}"
        xxh3 = self._file.publish(f"{self._folder}/{name}")
        context, file, rows = self._context, self._file, self._rows
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
            )
        )

    def close(self) -> None:
        """Drops what is not prepared: no checkpoint will ever commit it."""
        if self._rows_file is not None:
            self._rows_file.abandon()
        if self._file is not None:
            self._file.discard()
        self._file = self._rows_file = None

    def _part(self) -> RowsFile:
        if self._rows_file is None:
            assert self._context is not None, "a writer is opened before it writes"
            self._file = DurableFile(f"{self._folder}/{part_stem(self._context)}{WRITING}")
            self._rows_file = self._format.start(self._file)
        return self._rows_file
