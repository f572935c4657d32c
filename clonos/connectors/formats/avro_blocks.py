"""Container files of Avro as blocks: each begins after a marker of 16 bytes, which the header of the file names.

A block belongs to the split in which its marker begins. A mark is the offset of a block, and the number of its records
that were read.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, Final

from clonos.connectors.codecs.avro import check_names, fastavro
from clonos.connectors.connector_errors import InputMalformed, InputUnreadable, SplitMalformed
from clonos.connectors.filesystem.file_splits import FileSplit, check_still_unchanged, check_unchanged, decode_split
from clonos.connectors.filesystem.input_files import object_replaced, open_buffered, status_of
from clonos.io.store.object_status import ObjectReplaced

MARK: Final = struct.Struct(">QQ")
MARKER_BYTES: Final = 16
SCAN_BYTES: Final = 1 << 20
BLOCK_BYTES: Final = 64 << 10
"""Size from which the records of a block are written."""


class AvroReader:
    """Reader of the blocks of one split."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._path = ""
        self._file: Any = None
        self._split: FileSplit | None = None
        self._marker = b""
        self._blocks: Any = None
        self._offset = 0
        self._records: list[Any] = []
        self._next = 0
        self._skipped = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark.

        Raises: InputChanged, InputUnreadable, InputMalformed: the file differs, or is no container of Avro.
        SplitMalformed: the mark is invalid.
        """
        self.close()
        part = decode_split(split)
        self._path, self._split = part.path, part
        try:
            self._file = open_buffered(part.path)
        except OSError as error:
            raise InputUnreadable(part.path, error.strerror or str(error)) from error
        try:
            check_unchanged(part, status_of(self._file.raw))
            self._begin(part, mark)
        except BaseException:
            self.close()
            raise

    def read(self, records_max: int) -> list[Any] | None:
        """Returns the next records, None at the end.

        Raises: InputMalformed: a block is damaged or cut off, or does not fit the schema of the reader.
        """
        while self._next >= len(self._records):
            if not self._load():
                return None
        first = self._next
        self._next = min(first + records_max, len(self._records))
        return self._records[first : self._next]

    def mark(self) -> bytes:
        """Returns the place of the next record."""
        if self._next < len(self._records):
            return MARK.pack(self._offset, self._next)
        if not self._records:  # nothing of the block is read yet
            return MARK.pack(self._offset, self._skipped)
        return MARK.pack(self._file.tell(), 0)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, part: FileSplit, mark: bytes | None) -> None:
        """Goes to a mark, or to the first block of the split."""
        self._records, self._next = [], 0
        header = self._header()
        begin, skipped = (self._first_block(part, len(header)), 0) if mark is None else _place_of(mark)
        self._file.seek(begin)
        self._offset, self._skipped = begin, skipped
        self._blocks = fastavro().block_reader(_Behind(header, self._file), reader_schema=self._schema)

    def _header(self) -> bytes:
        found = self._guarded("is no container file of Avro", lambda: fastavro().block_reader(self._file))
        self._guarded("is unclear", lambda: check_names(found.writer_schema))
        self._marker = found._header["sync"]
        end = self._file.tell()
        self._file.seek(0)
        return bytes(self._file.read(end))

    def _first_block(self, part: FileSplit, header_bytes: int) -> int:
        """Returns the offset of the first block whose marker begins in the split; one after it if there is none."""
        if part.begin <= header_bytes - MARKER_BYTES:
            return header_bytes
        self._file.seek(part.begin)
        place, before = part.begin, b""
        while place - len(before) < part.end and (piece := self._file.read(SCAN_BYTES)):
            data = before + piece
            if (found := data.find(self._marker)) >= 0:
                return int(place - len(before) + found + MARKER_BYTES)
            place += len(piece)
            before = data[-(MARKER_BYTES - 1) :]
        return part.end + MARKER_BYTES

    def _load(self) -> bool:
        """Loads the next block; returns False if none begins in the split."""
        assert self._split is not None, "a reader is opened before it is read"
        offset = self._file.tell()
        self._offset, self._records, self._next = offset, [], 0
        if offset - MARKER_BYTES >= self._split.end or offset >= self._split.size_bytes:
            return False
        self._records = self._guarded("is damaged or cut off", lambda: list(next(self._blocks)), offset)
        self._next, self._skipped = self._skipped, 0
        return True

    def _guarded(self, problem: str, step: Any, offset: int = 0) -> Any:
        try:
            found = step()
        except ObjectReplaced as error:
            raise object_replaced(self._path) from error
        except OSError as error:
            raise InputUnreadable(self._path, error.strerror or str(error)) from error
        except Exception as error:
            kind = fastavro().read.SchemaResolutionError
            what = "does not fit schema=" if isinstance(error, kind) else problem
            where = "the block" if offset else "the file"
            reason = f"{where} {what}: {type(error).__name__}{f': {error}' if str(error) else ''}"
            raise InputMalformed(self._path, offset, reason, "Correct the file, or leave it out.") from error
        assert self._split is not None, "a reader is opened before it is read"
        check_still_unchanged(self._split)
        return found


class _Behind:
    """Bytes of a header, and after them a file from where it is."""

    def __init__(self, header: bytes, file: Any) -> None:
        self._header = io.BytesIO(header)
        self._file = file

    def read(self, size_bytes: int = -1) -> bytes:
        """Returns bytes of the header, or of the file."""
        found = self._header.read(size_bytes)
        return found or bytes(self._file.read(size_bytes))

    def tell(self) -> int:
        """Returns the place in the file."""
        return int(self._file.tell())


def _place_of(mark: bytes) -> tuple[int, int]:
    try:
        offset, skipped = MARK.unpack(mark)
    except struct.error as error:
        raise SplitMalformed("position in a file of Avro", mark, str(error)) from None
    return offset, skipped


def block_of(data: bytes, records: int, codec: str, marker: bytes) -> bytes:
    """Returns a block with its marker. ``data`` are the records one after the other."""
    if codec == "deflate":
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        data = deflate.compress(data) + deflate.flush()
    return b"".join([_long(records), _long(len(data)), data, marker])


def _long(number: int) -> bytes:
    """Returns a number that is not negative as a ``long`` of Avro."""
    number <<= 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
