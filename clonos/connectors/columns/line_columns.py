"""Lines of text as columns: blocks of complete lines, parsed by Arrow; a line that does not fit is set aside.

Splits and marks are those of files of lines. The types of the columns are given, or inferred from the first lines of
the first file when the job first starts; the splits carry them, so that every task and every resume has the same.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray

from clonos.connectors.connector_errors import InputMalformed, InvalidConnector, SplitMalformed
from clonos.connectors.filesystem.byte_feed import ByteReader
from clonos.connectors.filesystem.file_splits import (
    FileSplit,
    block_splits,
    decode_split,
    encode_split,
)
from clonos.connectors.filesystem.line_blocks import MARK_BYTES, LineBlocks
from clonos.connectors.partitions.folder_columns import FolderColumns
from clonos.core.values.columns import validate_columns
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.plain_columns import repeated_name
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed

READ_BYTES: Final = 4 << 20
"""Size of the blocks that are parsed at once: tens of thousands of usual lines, as the steps on columns want them."""

INFERRED_BYTES: Final = 1 << 20
"""Size of the block from which the types of the columns are inferred."""

FLOAT_INTEGER_MAX: Final = 1 << 53
"""Integer up to which a float holds each one."""

INTEGER_MAX: Final = (1 << 63) - 1
LONG_INTEGERS: Final = re.compile(rb"(?<![\w.+-])(?:\+\d{16,}|-?\d{19,})(?![\w.])")
LONG_NUMBERS: Final = re.compile(rb"(?<![\d.])\d{16,}(?![\d.eE])")
"""Among them are the integers that a float does not hold."""

HEADER_BYTES_MAX: Final = 1 << 20
HEADER_PIECE_BYTES: Final = 4 << 10
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
LINE_END: Final = 10
RETURN: Final = 13
SHOWN_CHARACTERS: Final = 80

_PLACE = re.compile(r" in row \d+$|^(In CSV column #(\d+): )?(Row #\d+: )?")


class ColumnSplit(FileSplit, frozen=True, array_like=True):
    """Part of one file. ``schema``: of all files when the job began, as Arrow serializes it; b"" if it is given."""

    schema: bytes = b""


_decoder: Final = msgspec.msgpack.Decoder(ColumnSplit)


class Lines(NamedTuple):
    """Records of a block, which has empty lines in place of blank ones: where each begins and ends, and which ones
    cannot be records of the format.
    """

    data: bytes
    starts: NDArray[numpy.int64]
    ends: NDArray[numpy.int64]
    unfit: NDArray[numpy.bool_]


class LineFormat(Protocol):
    """Format of lines that become columns; it travels to the slots."""

    connector: str
    encoding: str
    has_encoding: bool
    """Whether users may name the encoding."""
    schema: Any
    """Given schema; None if it is inferred."""
    columns: list[str] | None
    """Columns to read; None for all."""
    has_header: bool

    def lines(self, data: bytes, names: tuple[str, ...]) -> Lines:
        """Finds the records of a block; blank lines are none. ``names``: see ``names_of``."""

    def end_of_lines(self, before: Sequence[bytes], piece: bytes) -> int:
        """Returns where the last record that ends in the pieces ends, 0 if none does. ``before`` begins with one."""

    def end_of_first(self, data: bytes) -> int:
        """Returns where the first record ends, 0 if it goes on beyond the data."""

    def end_of_long_record(self, data: bytes) -> int:
        """Returns where a record that is too long ends all the same, as a malformed one; 0 if it does not."""

    def infer(self, data: bytes, names: tuple[str, ...]) -> Any:
        """Infers the schema from a block. Raises: pyarrow.ArrowException."""

    def names_of(self, path: str, header: bytes, schema: Any) -> tuple[str, ...]:
        """Returns the names of the columns of a file, () if each record names its own. ``schema`` is None for any.

        Raises: InputMalformed: the header does not have the columns of the schema.
        """

    def parse(self, data: Any, last: bytes, schema: Any, names: tuple[str, ...]) -> Any:
        """Parses a buffer of records, of which ``last`` is the last one, to a ``pyarrow.RecordBatch``.

        Raises: pyarrow.ArrowException.
        """

    def rounded(self, data: bytes, schema: Any, names: tuple[str, ...]) -> str:
        """Says which number of a record is an integer that its column of floats would round; "" if none is."""

    def changed(self, data: Any, batch: RecordBatch, names: tuple[str, ...]) -> str:
        """Says which cell of a buffer of records is not the value that its inferred type made of it; "" if none is."""

    def problem(self, line: str) -> str:
        """Says why a line is not of the format; "" if it is, and only its values do not fit the columns."""

    def guess(self, data: bytes) -> str:
        """Says what the data is, which has no record of the format; "" if that cannot be told."""


class Piece(NamedTuple):
    """Records of a block that follow each other: a batch of columns, or what is wrong with each of them."""

    first: int
    end: int
    batch: RecordBatch | None
    errors: tuple[str, ...] = ()


class LineParser:
    """Parser of records of a format to columns; those that do not fit stand between the batches."""

    def __init__(self, text_format: LineFormat, schema: Any, names: tuple[str, ...]) -> None:
        self._format, self._schema, self._names = text_format, schema, names
        self._names_of_floats = [field.name for field in schema if _has_float(field.type)]

    def pieces(self, lines: Lines) -> Iterator[Piece]:
        """Yields batches of records that follow each other, and what is wrong with the others, in their order."""
        return joined(self._parsed(lines, 0, len(lines.starts)))

    def _parsed(self, lines: Lines, first: int, end: int) -> Iterator[Piece]:
        """Parses records, halves them until those that do not fit are alone."""
        error = ""
        if not lines.unfit[first:end].any():
            stop = int(lines.starts[end]) if end < len(lines.starts) else len(lines.data)
            data = pyarrow.py_buffer(lines.data).slice(int(lines.starts[first]), stop - int(lines.starts[first]))
            try:
                last = lines.data[lines.starts[end - 1] : lines.ends[end - 1]]
                batch = self._format.parse(data, last, self._schema, self._names)
                validate_columns(batch)
                error = self._rounded(batch, lines, first) or self._format.changed(data, batch, self._names)
                if batch.num_rows == end - first and not error:
                    yield Piece(first, end, batch)
                    return
            except (pyarrow.ArrowException, ValueError) as raised:
                error = " ".join(str(raised).split())
        if end - first == 1:
            yield Piece(first, end, None, (error,))
            return
        middle = (first + end) // 2
        yield from self._parsed(lines, first, middle)
        yield from self._parsed(lines, middle, end)

    def _rounded(self, batch: RecordBatch, lines: Lines, first: int) -> str:
        """Says which integer a column of floats has rounded; "" if none. Such a float is at least 2**53."""
        large = set().union(*(_large_rows(batch.column(name)) for name in self._names_of_floats))
        for row in sorted(large):
            record = lines.data[lines.starts[first + row] : lines.ends[first + row]]
            if LONG_NUMBERS.search(record) and (problem := self._format.rounded(record, self._schema, self._names)):
                return problem
        return ""


class ColumnLineReader(LineBlocks):
    """Reader of the lines of a split as columns. Malformed lines come between the batches, as ``PartlyMalformed``."""

    def __init__(self, text_format: LineFormat, line_bytes_max: int, read_bytes: int = READ_BYTES) -> None:
        super().__init__(line_bytes_max, read_bytes)
        self._format = text_format
        self._header = b""
        self._names: tuple[str, ...] = ()
        self._parser: LineParser | None = None
        self._lines: Lines | None = None
        self._pieces: deque[Piece] = deque()
        self._next = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark.

        Raises: InputChanged, InputUnreadable, InputMalformed: the file differs or cannot be read. SplitMalformed: the
        split or mark is invalid.
        """
        part = decode_split(split)
        schema = self._format.schema if self._format.schema is not None else schema_in(split)
        self._header = header_of(part, self._format)
        self._names = self._format.names_of(part.path, self._header, schema)
        self._parser = LineParser(self._format, schema, self._names)
        super().open(split, mark)

    def read(self, records_max: int) -> Any | None:
        """Returns the next records: a ``pyarrow.RecordBatch``, or malformed ones alone. None at the end.

        Raises: InputMalformed: a line is too long.
        """
        while not self._pieces:
            if not self._fill():
                return None
        piece, first = self._pieces[0], self._next
        self._next = min(first + records_max, piece.end)
        if self._next == piece.end:
            self._pieces.popleft()
        if piece.batch is not None:
            return piece.batch.slice(first - piece.first, self._next - first)
        return PartlyMalformed(
            self._malformed_line(index, piece.errors[index - piece.first]) for index in range(first, self._next)
        )

    def mark(self) -> bytes:
        """Returns the offset of the next line."""
        starts = self._lines.starts if self._lines is not None else ()
        offset = int(starts[self._next]) if self._next < len(starts) else len(self._data)
        return (self._begin + offset).to_bytes(MARK_BYTES, "big")

    def _returned_bytes(self) -> int:
        lines, next_, size_bytes = self._lines, self._next, len(self._data)
        starts = lines.starts if lines is not None else ()
        return min(size_bytes, int(starts[next_])) if next_ < len(starts) else size_bytes

    def _first_line(self, part: FileSplit) -> int:
        return max(super()._first_line(part), len(self._header) if part.begin == 0 else 0)

    def _end_of_lines(self, before: list[bytes], piece: bytes) -> int:
        return self._format.end_of_lines(before, piece)

    def _end_of_long_line(self, data: bytes) -> int:
        return self._format.end_of_long_record(data)

    def _take(self) -> None:
        self._next = 0
        self._lines = self._format.lines(self._data, self._names) if self._data else None
        self._pieces.clear()
        if self._lines is not None and len(self._lines.starts):
            assert self._parser is not None, "a split is opened before its lines are taken"
            self._data = self._lines.data
            self._pieces.extend(self._parser.pieces(self._lines))

    def _malformed_line(self, index: int, error: str) -> MalformedRecord:
        assert self._lines is not None, "a block is loaded before its lines are read"
        start, end = int(self._lines.starts[index]), int(self._lines.ends[index])
        line, offset = self._data[start:end].removesuffix(b"\r"), self._begin + start
        try:
            text = line.decode(self._format.encoding)
        except UnicodeDecodeError as wrong:
            problem = f"{line[wrong.start : wrong.end]!r} is not {self._format.encoding}: {wrong.reason}"
            advice = "Correct the file" + (
                ", or name its encoding with encoding=." if self._format.has_encoding else "."
            )
            return MalformedRecord(line, self._error(offset + wrong.start, problem, advice))
        shown, problem = repr(text[:SHOWN_CHARACTERS]), self._format.problem(text)
        if problem:
            return MalformedRecord(text, self._error(offset, f"the line {shown} {problem}", "Correct the file."))
        place = _PLACE.match(error)
        field = f"the field {self._names[int(place[2])]!r}: " if place is not None and place[2] else ""
        reason = field + without_place(error) or "it is not one row"
        problem = f"the line {shown} does not fit the columns: {reason}"
        advice = "Correct the file, or give the types of all columns with schema=."
        return MalformedRecord(text, self._error(offset, problem, advice))

    def _error(self, offset_bytes: int, problem: str, advice: str) -> InputMalformed:
        return InputMalformed(self._path, offset_bytes, problem, advice, True, self.line_at(offset_bytes))


def without_place(error: str) -> str:
    """Returns an error of Arrow without the place of the row in its block."""
    return _PLACE.sub("", error)


def joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Joins the batches, and the malformed records, that follow each other."""
    for is_malformed, some in groupby(pieces, key=lambda piece: piece.batch is None):
        group = list(some)
        first, end = group[0].first, group[-1].end
        if is_malformed:
            yield Piece(first, end, None, tuple(error for piece in group for error in piece.errors))
        elif len(group) == 1:
            yield group[0]
        else:
            yield Piece(first, end, one_batch(pyarrow.Table.from_batches([piece.batch for piece in group])))


def one_batch(table: Any) -> Any:
    """Returns a table as one ``pyarrow.RecordBatch``, also if it has no rows."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pyarrow.RecordBatch.from_pylist([], table.schema)


def bounds_of_lines(data: bytes) -> tuple[NDArray[numpy.uint8], NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Returns the bytes of a block as an array, and where its lines begin and end, without the ``\\n``."""
    found = numpy.frombuffer(data, numpy.uint8)
    ends = numpy.flatnonzero(found == LINE_END)
    if not data.endswith(b"\n"):
        ends = numpy.append(ends, len(data))
    return found, numpy.concatenate([[0], ends[:-1] + 1]), ends


# --- splits


def column_splits(
    text_format: LineFormat,
    paths: Sequence[str],
    parallelism: int,
    block_bytes: int | None,
    is_whole: bool,
    known: Sequence[bytes] = (),
) -> list[bytes]:
    """Divides files into splits, which carry the types of the columns unless they are given.

    Raises: InvalidConnector: they cannot be inferred.
    """
    splits = block_splits(paths, parallelism, block_bytes, is_whole)
    if not splits or text_format.schema is not None:
        return splits
    schema = _decode(known[0]).schema if known else _inferred(text_format, [decode_split(split) for split in splits])
    if schema is None:
        return []  # a file without records is found again when it has some
    return [encode_split(with_schema(decode_split(split), schema)) for split in splits]


def schema_of_splits(text_format: LineFormat, splits: Sequence[bytes], folder_columns: FolderColumns) -> Any:
    """Returns the schema of the records of splits, with the columns of their folders."""
    schema = text_format.schema if text_format.schema is not None else schema_in(splits[0])
    return folder_columns.extended(schema, [decode_split(splits[0]).path])


def with_schema(part: FileSplit, schema: bytes) -> ColumnSplit:
    """Returns a split that carries a schema."""
    return ColumnSplit(part.format, part.path, part.size_bytes, part.mtime_ns, part.begin, part.end, schema)


def _inferred(text_format: LineFormat, parts: Sequence[FileSplit]) -> bytes | None:
    """Infers the types of the columns from the first lines of the first file that has records; None if none has.

    Raises: InvalidConnector: no record of these files is of the format, or it lacks a column.
    """
    firsts = {part.path: part for part in reversed(parts)}
    problem = ""
    for part in reversed(firsts.values()):
        names, data = _first_records(text_format, part)
        if not data:
            continue
        lines = [
            data[start:end] for start, end, unfit in zip(*text_format.lines(data, names)[1:], strict=True) if not unfit
        ]
        schema: Any = None
        for found in _schemas(text_format, lines, names):
            schema = found if schema is None else _common(schema, found)
        if schema is not None:
            serialized: bytes = selected(text_format, schema, text_format.columns).serialize().to_pybytes()
            return serialized
        problem = problem or f"{part.path} cannot be inferred: {_why_not(text_format, data, names)}"
    if not problem:
        return None
    advice = "Correct the file, or give them with schema=."
    raise InvalidConnector(text_format.connector, f"the types of the columns of {problem}", advice)


def _first_records(text_format: LineFormat, part: FileSplit) -> tuple[tuple[str, ...], bytes]:
    """Returns the names of the columns of a file, and its first block with a record; b"" if it has none."""
    whole = encode_split(msgspec.structs.replace(part, begin=0, end=part.size_bytes))
    header = header_of(part, text_format)
    is_blank = text_format.has_header and not header.removeprefix(BYTE_ORDER_MARK).strip()
    names = () if is_blank else text_format.names_of(part.path, header, None)
    block = _FirstLines(text_format, names, part.size_bytes + 1)
    try:
        data = block.first(whole, len(header))
    finally:
        block.close()
    return text_format.names_of(part.path, header, None) if is_blank and data else names, data


def _why_not(text_format: LineFormat, data: bytes, names: tuple[str, ...]) -> str:
    """Says why no line of a block is of the format."""
    if what := text_format.guess(data) or content_of(data):
        return what
    first = data[slice(*(int(each[0]) for each in text_format.lines(data, names)[1:3]))]
    try:
        text = first.decode(text_format.encoding)
    except UnicodeDecodeError as error:
        named = ": name its encoding with encoding=" if text_format.has_encoding else ""
        return (
            f"it is not {text_format.encoding}, in which {first[error.start : error.end]!r} is not a character{named}"
        )
    shown = repr(text[:SHOWN_CHARACTERS])
    if problem := text_format.problem(text):
        return f"its first line {shown} {problem}"
    try:
        _check_integers(text_format.infer(first, names), first)
        reason = "has other columns than the lines after it"
    except pyarrow.ArrowException as error:
        reason = f"does not fit: {without_place(' '.join(str(error).split()))}"
    return f"its first line {shown} {reason}"


def _schemas(text_format: LineFormat, lines: list[bytes], names: tuple[str, ...]) -> Iterator[Any]:
    """Infers schemas of lines, halves them until those that are malformed, or have other types, are alone."""
    if not lines:
        return
    data = b"\n".join(lines)
    try:
        schema = text_format.infer(data, names)
        _check_integers(schema, data)
        yield schema
    except pyarrow.ArrowException:
        if len(lines) > 1:
            middle = len(lines) // 2
            yield from _schemas(text_format, lines[:middle], names)
            yield from _schemas(text_format, lines[middle:], names)


def _check_integers(schema: Any, data: bytes) -> None:
    """Checks that no column is one of floats because of an integer beyond 64 bits, which a float does not hold.

    Raises: pyarrow.ArrowInvalid: there is one.
    """
    found = LONG_INTEGERS.findall(data) if "double" in str(schema) else []
    if any(number[:1] == b"+" or not ~INTEGER_MAX <= int(number) <= INTEGER_MAX for number in found):
        raise pyarrow.ArrowInvalid("an integer that a float would round")


def _large_rows(column: Any) -> list[int]:
    """Returns the rows of a column that may have an integer that its floats do not hold."""
    types, compute = pyarrow.types, pyarrow.compute
    if types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        return numpy.flatnonzero(numpy.abs(values) >= FLOAT_INTEGER_MAX).tolist()
    parts = column.flatten() if types.is_struct(column.type) else [compute.list_flatten(column)]
    is_large = any(_large_rows(part) for part in parts if _has_float(part.type))
    return list(range(len(column))) if is_large else []


def _has_float(type_: Any) -> bool:
    """Returns whether a type, or one within it, is of floats."""
    inner = range(type_.num_fields)
    return pyarrow.types.is_floating(type_) or any(_has_float(type_.field(index).type) for index in inner)


def _common(schema: Any, found: Any) -> Any:
    """Returns the schema that holds both; the first one if there is none."""
    try:
        return pyarrow.unify_schemas([schema, found], promote_options="permissive")
    except pyarrow.ArrowException:
        return schema


def selected(text_format: LineFormat, schema: Any, columns: Sequence[str] | None) -> Any:
    """Returns the schema of some columns.

    Raises: InvalidConnector: the schema lacks one, or two have one name.
    """
    check_schema_names(text_format.connector, schema)
    if columns is None:
        return schema
    if missing := [name for name in columns if name not in schema.names]:
        raise InvalidConnector(
            text_format.connector, f"there is no column {missing[0]!r}", f"There are {', '.join(schema.names)}."
        )
    return pyarrow.schema([schema.field(name) for name in columns])


def check_schema_names(connector: str, schema: Any) -> None:
    """Checks that the columns of ``schema=`` have names that differ.

    Raises: InvalidConnector: two have one name.
    """
    if repeated := repeated_name(schema):
        problem = f"two columns of schema= have the name {repeated!r}"
        raise InvalidConnector(connector, problem, "Give each column a name of its own.")


class _FirstLines(LineBlocks):
    """Reader of the first block of a file."""

    def __init__(self, text_format: LineFormat, names: tuple[str, ...], line_bytes_max: int) -> None:
        super().__init__(line_bytes_max, INFERRED_BYTES)
        self._format = text_format
        self._names = names

    def first(self, split: bytes, header_bytes: int) -> bytes:
        self.open(split, header_bytes.to_bytes(MARK_BYTES, "big"))
        while self._fill():
            if len(self._format.lines(self._data, self._names).starts):
                return self._data
        return b""

    def _end_of_lines(self, before: list[bytes], piece: bytes) -> int:
        return self._format.end_of_lines(before, piece)

    def _end_of_long_line(self, data: bytes) -> int:
        return self._format.end_of_long_record(data)

    def _take(self) -> None:
        pass


def header_of(part: FileSplit, text_format: LineFormat) -> bytes:
    """Returns what a file has before its first record: the header with its end, or only a byte order mark.

    Raises: InputMalformed: it is too long for a header.
    """
    feed, header, end = ByteReader(part, 0), b"", 0
    try:
        if not text_format.has_header:
            return BYTE_ORDER_MARK if feed.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else b""
        while not end and (piece := feed.read(HEADER_PIECE_BYTES)):
            header += piece
            end = text_format.end_of_first(header)
            if len(header) > HEADER_BYTES_MAX and not end:
                problem = f"its header is longer than {HEADER_BYTES_MAX} bytes"
                raise InputMalformed(part.path, 0, problem, "Is it a text file?")
    finally:
        feed.close()
    return header[: end or header.find(b"\n") + 1] or header


_CONTENTS: Final = (
    (b"\x1f\x8b", "it is compressed by gzip: let its name end in .gz"),
    (b"\x28\xb5\x2f\xfd", "it is compressed by zstd: let its name end in .zst"),
    (b"BZh", "it is compressed by bzip2: let its name end in .bz2"),
    (b"\xfd7zXZ", "it is compressed by xz: let its name end in .xz"),
    (b"PK\x03\x04", "it is a zip archive, as spreadsheets are: export it as text"),
    (b"PAR1", "it is Parquet: read it with files.parquet"),
    (b"ARROW1", "it is Arrow IPC: read it with files.arrow"),
    (b"Obj\x01", "it is Avro: read it with files.avro"),
    (b"SQLite format", "it is a database of SQLite"),
    (b"%PDF", "it is a PDF"),
    (b"\xff\xfe", "it is UTF-16: convert it to UTF-8"),
    (b"\xfe\xff", "it is UTF-16: convert it to UTF-8"),
)


def content_of(data: bytes) -> str:
    """Says what data is that is not text; "" if it may be text."""
    for magic, what in _CONTENTS:
        if data.startswith(magic):
            return what
    return "it has zero bytes, so it is not text" if b"\0" in data[:4096] else ""


def schema_in(split: bytes) -> Any:
    """Returns the schema that a split carries.

    Raises: SplitMalformed: it carries none.
    """
    try:
        return pyarrow.ipc.read_schema(pyarrow.py_buffer(_decode(split).schema))
    except (pyarrow.ArrowException, OSError) as error:
        raise SplitMalformed("split of a file", split, f"its schema is not one: {error}") from None


def _decode(split: bytes) -> ColumnSplit:
    try:
        return _decoder.decode(split)
    except DECODE_ERRORS as error:
        raise SplitMalformed("split of a file", split, str(error)) from None
