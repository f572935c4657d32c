"""Whole files: the source and sink ``files.whole``, of which each record is a file: (name, content).

The sink writes each record to a file of its own, which has the name that the record gives. Until the barrier contents
are in one temporary file; at the barrier each becomes a prepared part with the name ``shown_as``.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from clonos.connectors.connector_errors import (
    InputMalformed,
    InvalidConnector,
    SplitMalformed,
    check_number,
    row_not_writable,
)
from clonos.connectors.filesystem.byte_feed import ByteReader
from clonos.connectors.filesystem.durable_files import WRITING
from clonos.connectors.filesystem.file_sinks import paths_of
from clonos.connectors.filesystem.file_splits import (
    SPLIT_FORMAT,
    FileSplit,
    decode_split,
    encode_split,
    regular_status,
)
from clonos.connectors.filesystem.files_by_path import FilesByPath
from clonos.connectors.filesystem.output_files import files_of
from clonos.connectors.filesystem.output_parts import (
    OUTPUT_FORMAT,
    PART_NAME,
    PARTS,
    PREPARED,
    Part,
    RowsFormat,
    part_name,
    writer_name,
)
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values.column_rows import rows_of_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed, WriterContext
from clonos.operators.event_time.durations import duration_ns

CONNECTOR: Final = "files.whole"
FILE_BYTES_MAX: Final = 64 << 20
FILES_MAX: Final = 10_000
"""Files that a task may write between two checkpoints; each is synced to the disk at the barrier."""

MEMORY_BYTES: Final = 4 << 20
NAME_BYTES_MAX: Final = 255
PATH_BYTES_MAX: Final = 1_000
READ, UNREAD = b"\x01", b"\x00"


class WholeFiles(FilesByPath):
    """Whole files as records (path, content): as a source, by path, folder or pattern; as a sink, one folder."""

    routes_malformed = True
    routes_refused = True

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        encoding: str | None = None,
        file_bytes_max: int = FILE_BYTES_MAX,
        discovery_interval_ns: int = 0,
    ) -> None:
        super().__init__(CONNECTOR, patterns)
        if not patterns:
            raise InvalidConnector(CONNECTOR, "no path is given", "Name at least one file, folder or pattern.")
        check_number(CONNECTOR, "file_bytes_max", file_bytes_max, "bytes")
        try:
            "".encode(encoding or "utf-8")
        except LookupError:
            raise InvalidConnector(CONNECTOR, f"the encoding {encoding!r} is unknown", "Correct its name.") from None
        self.encoding = encoding
        self.file_bytes_max = file_bytes_max
        self.discovery_interval_ns = discovery_interval_ns
        self.ordered: bool | None = None

    def _splits_of(self, paths: list[str], parallelism: int, known: Sequence[bytes]) -> list[bytes]:
        return list(map(_split_of, paths))

    def can_cut(self, split: FileSplit) -> bool:
        """Returns False."""
        return False

    def reader(self) -> WholeReader:
        """Creates a reader."""
        return WholeReader(self.encoding, self.file_bytes_max)

    def parts_format(self) -> RowsFormat:
        """Returns the format of a single file, which there is none of. Raises nothing."""
        return None  # type: ignore[return-value]

    def writer(self) -> Any:
        """Creates a writer of files."""
        return WholeWriter(self.folder(), self.encoding or "utf-8", self.file_bytes_max)


class WholeReader:
    """Reader of one file, which is one record."""

    def __init__(self, encoding: str | None, file_bytes_max: int) -> None:
        self._encoding = encoding
        self._file_bytes_max = file_bytes_max
        self._feed: ByteReader | None = None
        self._is_read = False

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a file.

        Raises: InputChanged, InputUnreadable: it differs or cannot be read. SplitMalformed: the split or mark is
        invalid. InputMalformed: it is too long.
        """
        self.close()
        if mark not in (None, READ, UNREAD):
            raise SplitMalformed("position in a whole file", mark or b"", "it is neither the begin nor the end")
        part = decode_split(split)
        self._is_read = mark == READ
        if part.size_bytes > self._file_bytes_max and not self._is_read:
            reason = f"it has {part.size_bytes} bytes, and file_bytes_max={self._file_bytes_max}"
            advice = "Raise file_bytes_max=, or read it in pieces with files.lines or files.parquet."
            raise InputMalformed(part.path, self._file_bytes_max, reason, advice)
        self._feed = ByteReader(part, 0, is_raw=True)

    def read(self, records_max: int) -> list[Any] | None:
        """Returns the file as (path, content); None after it."""
        if self._is_read:
            return None
        assert self._feed is not None, "a reader is opened before it is read"
        split, pieces = self._feed.split, list[bytes]()
        while piece := self._feed.read(self._file_bytes_max):
            pieces.append(piece)
        content = b"".join(pieces)
        self._is_read = True
        if self._encoding is None:
            return [(split.path, content)]
        try:
            return [(split.path, content.decode(self._encoding))]
        except UnicodeDecodeError as error:
            reason = f"{content[error.start : error.end][:20]!r} is not {self._encoding}: {error.reason}"
            advice = "Give the encoding of the file, or leave out encoding= for bytes."
            refused = InputMalformed(split.path, error.start, reason, advice, True)
            return PartlyMalformed([MalformedRecord((split.path, content), refused)])

    def mark(self) -> bytes:
        """Returns whether the file was read."""
        return READ if self._is_read else UNREAD

    def close(self) -> None:
        """Closes the file."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None


def _split_of(path: str) -> bytes:
    status = regular_status(path)
    return encode_split(FileSplit(SPLIT_FORMAT, path, status.size_bytes, status.mtime_ns, 0, status.size_bytes))


class _Waiting(NamedTuple):
    """File that waits for the barrier: its name, and where its content begins and ends in the temporary file."""

    name: str
    begin: int
    end: int


class WholeWriter:
    """Transactional writer of ``files.whole``."""

    def __init__(self, folder: str, encoding: str, file_bytes_max: int) -> None:
        self._files, path = files_of(folder)
        self._output, self._folder = folder, f"{self._files.state_folder(path)}/{PARTS}"
        self._encoding, self._file_bytes_max = encoding, file_bytes_max
        self._context: WriterContext | None = None
        self._waiting: dict[str, _Waiting] = {}
        self._contents: Any = None

    def open(self, context: WriterContext) -> None:
        """Takes the names of the task."""
        self._context = context

    def write(self, rows: list[Any]) -> None:
        """Keeps files for the barrier.

        Raises: RowNotWritable: a row is no (name, content), its name cannot be used or is there twice, or its content
        is too long; nothing of the batch is kept. InvalidConnector: there are too many files.
        """
        checked: dict[str, bytes] = {}
        for index, row in enumerate(rows):
            name, content, reason = self._checked(row)
            if not reason and (name in checked or name in self._waiting):
                reason = f"a file {name!r} is already in this checkpoint: give each record a name of its own"
            if reason:
                raise row_not_writable(CONNECTOR, index, row, reason)
            checked[name] = content
        if len(self._waiting) + len(checked) > FILES_MAX:
            problem = f"a task writes more than {FILES_MAX} files between two checkpoints"
            raise InvalidConnector(CONNECTOR, problem, "Checkpoint more often, or pack records into fewer files.")
        if self._contents is None:
            self._contents = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115  closed by _clear()
        for name, content in checked.items():
            begin = self._contents.seek(0, 2) if self._waiting else 0
            self._contents.write(content)
            self._waiting[name] = _Waiting(name, begin, begin + len(content))

    def write_columns(self, batch: RecordBatch) -> None:
        """Keeps the rows of a ``pyarrow.RecordBatch`` with two columns; raises what ``write`` raises."""
        self.write([tuple(row.values()) for row in rows_of_columns(batch)])

    def prepare(self, checkpoint: int) -> bytes | None:
        """Publishes the files as prepared parts and describes them; returns None without rows."""
        if not self._waiting:
            return None
        assert self._context is not None, "a writer is opened before it writes"
        prepared = [
            self._publish(self._context, checkpoint, number, waiting)
            for number, waiting in enumerate(self._waiting.values())
        ]
        self._clear()
        return msgspec.json.encode(prepared)

    def close(self) -> None:
        """Discards files that are not prepared."""
        self._clear()

    def _publish(self, context: WriterContext, checkpoint: int, number: int, waiting: _Waiting) -> Part:
        name = part_name(context, checkpoint, f"-{number:05}.file")
        file = self._files.new_file(f"{self._folder}/{writer_name(context)}-{number:05}{WRITING}")
        try:
            self._contents.seek(waiting.begin)
            file.write(self._contents.read(waiting.end - waiting.begin))
            xxh3 = file.publish(f"{self._folder}/{name}{PREPARED}")
        finally:
            file.discard()
        return Part(
            format=OUTPUT_FORMAT,
            name=name,
            task=context.task_name,
            generation=context.generation,
            incarnation=context.incarnation,
            checkpoint=checkpoint,
            rows=1,
            size_bytes=waiting.end - waiting.begin,
            xxh3=xxh3,
            shown_as=waiting.name,
        )

    def _clear(self) -> None:
        self._waiting = {}
        if self._contents is not None:
            self._contents.close()
            self._contents = None

    def _checked(self, row: Any) -> tuple[str, bytes, str]:
        """Returns the name and the content of a row, and what is wrong with them, "" for nothing."""
        if not isinstance(row, tuple | list) or len(row) != 2 or not isinstance(row[0], str):
            return "", b"", "it is not (name, content), a str and bytes or a str"
        name, content = row
        if reason := name_problem(name):
            return "", b"", reason
        if isinstance(content, str):
            try:
                content = content.encode(self._encoding)
            except UnicodeEncodeError as error:
                return (
                    "",
                    b"",
                    f"{self._encoding} has no {error.object[error.start]!r}: give the sink another encoding=",
                )
        if not isinstance(content, bytes | bytearray | memoryview):
            return "", b"", f"its content is {type(content).__name__}: give bytes or a str"
        data = bytes(content)
        if len(data) > self._file_bytes_max:
            return "", b"", f"its content has {len(data)} bytes, and file_bytes_max={self._file_bytes_max}"
        return name, data, ""


def name_problem(name: str) -> str:
    """Returns why a file within the output cannot have a name, "" if it can."""
    if name.startswith("/"):
        return "its name is an absolute path: give one within the output, such as os.path.basename(path)"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "its name has an empty part, '.' or '..': give a path within the output"
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", name):
        return "its name has a character that no file name may have"
    if any(len(part.encode()) > NAME_BYTES_MAX for part in parts) or len(name.encode()) > PATH_BYTES_MAX:
        return f"its name is too long: a part has at most {NAME_BYTES_MAX} bytes, all have {PATH_BYTES_MAX}"
    if any(part.startswith((".", "_")) for part in parts):
        return "a part of its name begins with '.' or '_', which readers of folders skip"
    if PART_NAME.fullmatch(parts[-1]):
        return "part files of other sinks have such names"
    return ""


@explains_calls
def whole(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    encoding: str | None = None,
    file_bytes_max: int = FILE_BYTES_MAX,
    watch: Any = None,
) -> WholeFiles:
    """Whole files: a source of (path, content), or a sink that writes each (name, content) to a file of that name.

    Nothing is decompressed or compressed.

    Args:
        path: for a source a file, folder or pattern, or a list of these; for a sink a folder.
        encoding: for a source, the encoding of the files, whose contents are then str; without it they are bytes. For a
            sink, that of a content that is a str; "utf-8" by default.
        file_bytes_max: largest file in bytes, 64 MiB by default.
        watch: for a source, how often to look for new files: see ``files.lines``.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        named = job.source(files.whole("in/*.xml")).map(lambda file: (os.path.basename(file[0]), file[1]))
        named.sink(files.whole("out"))
    """
    return WholeFiles(
        paths_of(path),
        encoding=encoding,
        file_bytes_max=file_bytes_max,
        discovery_interval_ns=0 if watch is None else duration_ns(watch),
    )
