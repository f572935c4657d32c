"""Part files of an output and the manifests that make them visible: their names, content and records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

from clonos.connectors.connector_errors import InvalidConnector, OutputCorrupt, OutputNameTaken
from clonos.connectors.filesystem.durable_files import WRITING
from clonos.connectors.filesystem.file_splits import PREPARED as PREPARED
from clonos.connectors.filesystem.output_files import OutputFile, OutputFiles, files_of
from clonos.connectors.filesystem.output_files import state_folder as state_folder
from clonos.core.model.errors import InternalError
from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import WriterContext

OUTPUT_FORMAT = 1
PARTS = "parts"
MANIFESTS = "manifests"
OWNER = "owner"
LAST = "last"
NO_CHECKPOINT = 0
"""Number in the file ``LAST`` while there is no manifest."""

PART_NAME = re.compile(
    r"part-(?P<checkpoint>[0-9]{10,20})-[A-Za-z0-9_.]+-[0-9]+-(?P<generation>[0-9]+)(-[0-9]+){1,2}(\.[a-z0-9]+){1,2}"
)
"""The fourth number counts the part files of a task and a checkpoint, if it may write several."""
MANIFEST_NAME = re.compile(r"(?P<checkpoint>[0-9]{20})\.manifest")
VERTEX_CHARACTERS_MAX = 80
FULL_PARTS_MAX = 500
"""Complete part files of a task that may wait for the barrier; each is an open file."""


PartName = Annotated[str, msgspec.Meta(max_length=255, pattern=rf"^{PART_NAME.pattern}\Z")]
"""File name of a committed part, without any folder. It begins with a letter, because readers skip ``_`` and ``.``."""
FolderName = Annotated[str, msgspec.Meta(pattern=r"^([^/=\x00]+=[^/\x00]+(/[^/=\x00]+=[^/\x00]+)*)?\Z")]
"""Folders ``column=value`` within the output, or ""."""


ShownName = Annotated[str, msgspec.Meta(pattern=r"^(?!.*(^|/)\.{0,2}(/|\Z))[^/\x00][^\x00]*\Z|^\Z")]
"""Path within the output that a record has chosen, or ""."""


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """Form of a text file, which its readers must know. ``columns`` are those of CSV without a header."""

    delimiter: str = ","
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """Prepared part file.

    ``name`` is that of the committed file, and ``folder`` where in the output it will be. ``checkpoint`` is that of the
    barrier at which it was prepared; a later one may commit it. ``advice`` is what the user should know of it, "" for
    nothing. ``shown_as`` is the path of the committed file within the output if its record has chosen one.
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
    folder: FolderName = ""
    layout: Layout = Layout()
    shown_as: ShownName = ""

    @property
    def place(self) -> str:
        """Returns the path of the committed file within the output."""
        if self.shown_as:
            return self.shown_as
        return f"{self.folder}/{self.name}" if self.folder else self.name


class Manifest(msgspec.Struct, frozen=True):
    """Part files that one checkpoint made visible. ``previous``: checkpoint of the manifest before, None for the first.

    So a reader notices that a manifest is missing.
    """

    format: int
    job_id: str
    checkpoint: int
    previous: int | None
    parts: tuple[Part, ...]


class LastManifest(msgspec.Struct, frozen=True):
    """Checkpoint whose manifest is the last one, or the one before if the driver died between the two."""

    format: int
    checkpoint: int


class Owner(msgspec.Struct, frozen=True):
    """Job that owns an output. ``is_single``: its parts become a single file when the job has ended."""

    format: int
    job_id: str
    is_single: bool


_parts_decoder = msgspec.json.Decoder(tuple[Part, ...])


def decode_parts(data: bytes, output: str) -> tuple[Part, ...]:
    """Decodes and checks the parts that a writer has prepared.

    Raises: InternalError: these bytes are not parts. FormatUnknown: another version wrote them.
    """
    try:
        parts = _parts_decoder.decode(data)
    except DECODE_ERRORS as error:
        raise InternalError(f"{data[:80]!r} is not a prepared part of {output}: {error}") from None
    for part in parts:
        check_format(f"the prepared part {part.name!r} of {output}", part.format, OUTPUT_FORMAT)
    return parts


def decode_record(data: bytes, record_type: Any, path: str) -> Any:
    """Decodes a manifest or owner.

    Raises: OutputCorrupt: the file is damaged. FormatUnknown: another version wrote it.
    """
    try:
        record = msgspec.json.decode(data, type=record_type)
    except DECODE_ERRORS as error:
        raise OutputCorrupt(path, "JSON written by clonos", str(error)) from None
    check_format(path, record.format, OUTPUT_FORMAT)
    return record


def manifest_name(checkpoint: int) -> str:
    """Returns the name of a manifest; names sort as their checkpoints do."""
    return f"{checkpoint:020}.manifest"


def part_name(context: WriterContext, checkpoint: int, end: str) -> str:
    """Returns the name of a part file with this end; names sort by checkpoint first, as ``cat *`` reads them."""
    return f"part-{checkpoint:010}-{writer_name(context)}{end}"


def writer_name(context: WriterContext) -> str:
    """Returns the part of file names that is unique for each incarnation of a task."""
    vertex = re.sub(r"[^A-Za-z0-9_.]", "_", context.task_name.removesuffix(f"/{context.index}"))
    return f"{vertex[:VERTEX_CHARACTERS_MAX] or '_'}-{context.index}-{context.generation}-{context.incarnation}"


def is_part(name: str) -> bool:
    """Returns whether a file has the name of a part file."""
    return part_match(name) is not None


def part_match(name: str) -> re.Match[str] | None:
    """Matches the name of a part file, also after the folders of its partition."""
    return PART_NAME.fullmatch(name.rpartition("/")[2].removesuffix(PREPARED))


def part_order(part: Part) -> tuple[int, str, str]:
    """Returns what the parts of a manifest are sorted by."""
    return part.checkpoint, part.task, part.name


class RowsFile(Protocol):
    """Part file that is being written in some format."""

    @property
    def gathered_rows(self) -> int:
        """Returns how many rows are in memory and not in the file yet."""

    def rows(self, rows: list[Any]) -> None:
        """Appends rows.

        Raises: RowNotWritable: the format cannot hold a row.
        """

    def columns(self, batch: RecordBatch) -> None:
        """Appends a ``pyarrow.RecordBatch``.

        Raises: RowNotWritable: the format cannot hold a row.
        """

    def flush(self) -> None:
        """Writes the rows that are in memory."""

    def finish(self) -> None:
        """Writes the footer of the format."""

    def abandon(self) -> None:
        """Releases resources without a footer, because the file will be discarded."""


class RowsFormat(Protocol):
    """Format of part files; it travels to the slots."""

    suffix: str

    def start(self, file: OutputFile) -> RowsFile:
        """Begins a part file."""

    def join(self, paths: Sequence[str], file: OutputFile) -> None:
        """Writes the rows of part files into one file.

        Raises: OutputCorrupt, OutputFailed: a part file cannot be read. RowNotWritable: the parts do not fit together.
        """


class OpenPart:
    """Part file that is being written, under a temporary name."""

    def __init__(self, files: OutputFiles, parts_folder: str, name: str, rows_format: RowsFormat) -> None:
        self._parts_folder = parts_folder
        self._suffix = rows_format.suffix
        self._file = files.new_file(f"{parts_folder}/{name}{WRITING}")
        self.rows_file = rows_format.start(self._file)
        self.rows = 0
        self._is_complete = False

    @property
    def size_bytes(self) -> int:
        """Returns how many bytes are in the file. Some rows may be in memory still."""
        return self._file.size_bytes

    def write(self, rows: list[Any]) -> None:
        """Appends rows."""
        self.rows_file.rows(rows)
        self.rows += len(rows)

    def write_columns(self, batch: RecordBatch) -> None:
        """Appends a ``pyarrow.RecordBatch``."""
        self.rows_file.columns(batch)
        self.rows += batch.num_rows

    def complete(self) -> None:
        """Writes what ends the file. No row may follow."""
        self.rows_file.finish()
        self._is_complete = True

    def publish(self, context: WriterContext, checkpoint: int, folder: str = "", number: str = "") -> Part:
        """Completes the file under the name of a prepared part. ``number`` is its end."""
        if not self._is_complete:
            self.complete()
        name = part_name(context, checkpoint, f"{number}.{self._suffix}")
        xxh3 = self._file.publish(f"{self._parts_folder}/{name}{PREPARED}")
        return Part(
            format=OUTPUT_FORMAT,
            name=name,
            task=context.task_name,
            generation=context.generation,
            incarnation=context.incarnation,
            checkpoint=checkpoint,
            rows=self.rows,
            size_bytes=self._file.size_bytes,
            xxh3=xxh3,
            advice=getattr(self.rows_file, "advice", ""),
            folder=folder,
            layout=getattr(self.rows_file, "layout", Layout()),
        )

    def discard(self) -> None:
        """Removes the file unless it is published."""
        if not self._is_complete:
            self.rows_file.abandon()
        self._file.discard()


class Rolling(NamedTuple):
    """Rows and bytes after which a part file ends and the next one begins; None for no limit."""

    part_rows: int | None = None
    part_bytes: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.part_rows is not None or self.part_bytes is not None

    def is_full(self, part: OpenPart) -> bool:
        """Returns whether a part file has reached a limit."""
        return (self.part_rows is not None and part.rows >= self.part_rows) or (
            self.part_bytes is not None and part.size_bytes >= self.part_bytes
        )


class PartsWriter:
    """Transactional writer of every file sink: a part file per checkpoint with output, or several of limited size."""

    def __init__(self, folder: str, rows_format: RowsFormat, rolling: Rolling | None = None) -> None:
        self._files, path = files_of(folder)
        self._folder = f"{self._files.state_folder(path)}/{PARTS}"
        self._format = rows_format
        self._context: WriterContext | None = None
        self._rolling = rolling or Rolling()
        self._part: OpenPart | None = None
        self._full: list[OpenPart] = []

    def open(self, context: WriterContext) -> None:
        """Takes the names of the task."""
        self._context = context

    def write(self, rows: list[Any]) -> None:
        """Appends rows to the current part file.

        Raises: RowNotWritable: the format cannot hold a row. OutputFailed: the disk fails.
        """
        if rows:
            self._begun().write(rows)
            self._roll()

    def write_columns(self, batch: RecordBatch) -> None:
        """Appends a ``pyarrow.RecordBatch`` to the current part file.

        Raises: RowNotWritable: the format cannot hold a row. OutputFailed: the disk fails.
        """
        if batch.num_rows:
            self._begun().write_columns(batch)
            self._roll()

    def prepare(self, checkpoint: int) -> bytes | None:
        """Publishes the part files and describes them; later rows go into new ones. Returns None without rows."""
        if self._part is not None and not self._part.rows:  # all its rows were refused
            self._part.discard()
            self._part = None
        open_parts = [*self._full, *([] if self._part is None else [self._part])]
        if not open_parts:
            return None
        assert self._context is not None, "a writer is opened before it writes"
        prepared = [
            part.publish(self._context, checkpoint, number=f"-{number:03}" if self._rolling.is_set else "")
            for number, part in enumerate(open_parts)
        ]
        self._part, self._full = None, []
        return msgspec.json.encode(prepared)

    def close(self) -> None:
        """Discards the current part file, which no checkpoint will commit."""
        for part in (*self._full, *(() if self._part is None else (self._part,))):
            part.discard()
        self._part, self._full = None, []

    def _roll(self) -> None:
        """Completes the current part file if it is full. It becomes visible with the others."""
        if self._part is None or not self._rolling.is_full(self._part):
            return
        self._part.complete()
        self._full.append(self._part)
        self._part = None
        if len(self._full) >= FULL_PARTS_MAX:
            problem = f"part_rows= or part_bytes= gives a task more than {FULL_PARTS_MAX} files between two checkpoints"
            raise InvalidConnector(self._folder, problem, "Give a larger limit, or checkpoint more often.")

    def _begun(self) -> OpenPart:
        if self._part is None:
            assert self._context is not None, "a writer is opened before it writes"
            end = f"-{len(self._full):03}" if self._rolling.is_set else ""
            self._part = OpenPart(self._files, self._folder, f"{writer_name(self._context)}{end}", self._format)
        return self._part


def check_names_free(files: OutputFiles, output: str, checkpoint: int, parts: list[Part]) -> None:
    """Checks that no part whose record has chosen its name takes the place of another file or folder.

    The manifest of such parts comes before the files, because only a manifest tells them from files of others. A
    commit that was cut off is repeated by the resume.

    Raises: OutputNameTaken: one does.
    """
    places = {part.place for part in parts}
    if len(places) < len(parts):
        found = [part.place for part in parts]
        twice = next(place for place in found if found.count(place) > 1)
        raise OutputNameTaken(output, checkpoint, twice, "two records of the checkpoint have this name")
    folders = {folder for place in places for folder in folders_of(place)}
    if both := sorted(folders & places):
        raise OutputNameTaken(output, checkpoint, both[0], "it is the name of a file and of a folder")
    for place in sorted(places):
        if files.exists(f"{output}/{place}"):
            raise OutputNameTaken(output, checkpoint, place, "it is there already")
    for folder in sorted(folders):
        if files.is_file(f"{output}/{folder}"):
            raise OutputNameTaken(output, checkpoint, folder, "it is a file, and a record needs a folder of this name")


def folders_of(place: str) -> list[str]:
    """Returns the folders above a place, the innermost first."""
    found = []
    while place := place.rpartition("/")[0]:
        found.append(place)
    return found


def still_hidden(files: OutputFiles, parts_folder: str, parts: Iterable[Part]) -> list[Part]:
    """Returns the parts with chosen names that a commit has not moved yet."""
    named = [part for part in parts if part.shown_as]
    there = set(files.names(parts_folder)) if named else set()
    return [part for part in named if f"{part.name}{PREPARED}" in there]
