"""Text files by line: the source and sink ``files.lines``, and the reader of ``files.jsonl``.

Only ``\\n`` and ``\\r\\n`` end a line. A line belongs to the block in which it begins, even if it ends in the next one.
A mark is the offset of the first byte of a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import accumulate, repeat
from typing import Any, Generic, TypeVar

from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.filesystem.files_by_path import FilesByPath
from clonos.connectors.filesystem.line_blocks import MARK_BYTES, READ_BYTES, LineBlocks, pending_lines
from clonos.connectors.filesystem.output_parts import RowsFormat
from clonos.connectors.formats.text_lines import CONNECTOR, TextFormat
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed, PendingInput, SplitReader

LINE_BYTES_MAX = 64 << 20
BYTE_ORDER_MARK = "\ufeff"

AnyLine = TypeVar("AnyLine")
"""Record type: str, or (path, offset_bytes, text)."""


class LineFiles(FilesByPath, Generic[AnyLine]):
    """Lines of text: as a source, files by path, folder or pattern; as a sink, one folder."""

    routes_malformed = True
    routes_refused = True

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        encoding: str,
        errors: str,
        with_position: bool,
        block_bytes: int | None = None,
        line_bytes_max: int = LINE_BYTES_MAX,
        discovery_interval_ns: int = 0,
        ordered: bool | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(CONNECTOR, patterns, **parts)
        check_line_options(CONNECTOR, patterns, block_bytes, ordered, line_bytes_max)
        check_encoding(encoding)
        self.encoding = encoding
        self.errors = errors
        self.with_position = with_position
        self.block_bytes = block_bytes
        self.line_bytes_max = line_bytes_max
        self.discovery_interval_ns = discovery_interval_ns
        self.ordered = ordered_of(ordered, block_bytes)

    def pending(self, split: bytes, mark: bytes | None) -> PendingInput | None:
        """See ``connector_contract.PendingSource``."""
        return pending_lines(split, mark)

    def reader(self) -> SplitReader[AnyLine]:
        """Creates a reader."""
        return LineReader(self.encoding, self.errors, self.line_bytes_max, self.with_position)

    def rows_format(self) -> RowsFormat:
        """Returns the format of text.

        Raises: InvalidConnector: ``with_position`` is given, which is for sources.
        """
        if self.with_position:
            raise InvalidConnector(CONNECTOR, "with_position= is for a source", "Leave it out for a sink.")
        return TextFormat(encoding_of_text(self.encoding), self.errors)


def ordered_of(ordered: bool | None, block_bytes: int | None) -> bool | None:
    """Returns whether files are read in order: a size of blocks asks for blocks; None lets the job decide."""
    return False if ordered is None and block_bytes is not None else ordered


def check_line_options(
    connector: str,
    patterns: Sequence[str],
    block_bytes: int | None,
    ordered: bool | None = None,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> None:
    """Checks the options of a source of lines.

    Raises: InvalidConnector: no path is given, a size is below 1, or files cannot be in order and in blocks.
    """
    if ordered and block_bytes is not None:
        raise InvalidConnector(connector, "ordered=True reads whole files, not blocks", "Leave out block_bytes=.")
    if not patterns:
        raise InvalidConnector(connector, "no path is given", "Name at least one file, folder or pattern.")
    if block_bytes is not None:
        check_number(connector, "block_bytes", block_bytes, "bytes")
    check_number(connector, "line_bytes_max", line_bytes_max, "bytes")


def check_encoding(encoding: str, connector: str = CONNECTOR) -> None:
    """Checks that Python knows the encoding and that the byte 10 always ends a line in it.

    Raises: InvalidConnector: one of these is false.
    """
    try:
        is_usable = encoding_of_text(encoding) != encoding or "a\nb".encode(encoding) == b"a\nb"
    except (LookupError, UnicodeError):
        raise InvalidConnector(connector, f"the encoding {encoding!r} is unknown", "Correct its name.") from None
    if not is_usable:
        raise InvalidConnector(
            connector,
            f"the byte 10 does not always end a line in {encoding!r}",
            "Convert the files, for example with: iconv -t UTF-8.",
        )


def encoding_of_text(encoding: str) -> str:
    """Returns the encoding without the byte order mark: utf-8 for utf-8-sig, else the encoding itself."""
    return "utf-8" if encoding.lower().replace("_", "-") in ("utf-8-sig", "utf8-sig") else encoding


class LineReader(LineBlocks):
    """Reader of the lines that begin within one split. ``_lines[_next:]`` are decoded and not returned yet."""

    def __init__(
        self, encoding: str, errors: str, line_bytes_max: int, with_position: bool, read_bytes: int = READ_BYTES
    ) -> None:
        super().__init__(line_bytes_max, read_bytes)
        self._encoding = encoding_of_text(encoding)
        self._drops_byte_order_mark = self._encoding != encoding
        self._errors = errors
        self._with_position = with_position
        self._lines: list[Any] = []
        self._line_offsets: list[int] | None = None
        self._first = 0
        self._next = 0

    def read(self, records_max: int) -> list[Any] | None:
        """Returns complete lines without their ends; None after the last line that begins in the split.

        A line that is not in the encoding is a ``MalformedRecord``.

        Raises: InputMalformed: a line is too long.
        """
        if self._next == len(self._lines) and not self._fill():
            return None
        self._first = self._next
        self._next = min(self._first + records_max, len(self._lines))
        lines = self._lines[self._first : self._next]
        is_malformed = type(self._lines) is PartlyMalformed
        if self._with_position:
            offsets = self._offsets()[self._first : self._next]
            positioned = zip(repeat(self._path), offsets, lines, strict=False)
            if is_malformed:
                return PartlyMalformed(at if type(at[2]) is not MalformedRecord else at[2] for at in positioned)
            return list(positioned)
        return PartlyMalformed(lines) if is_malformed else lines

    def mark(self) -> bytes:
        """Returns the offset of the next line."""
        return self._offset_bytes(self._next).to_bytes(MARK_BYTES, "big")

    def _returned_bytes(self) -> int:
        lines, next_, size_bytes = len(self._lines), self._next, len(self._data)
        return min(size_bytes, size_bytes * next_ // lines) if lines else size_bytes

    def offset_bytes(self, index: int) -> int:
        """Returns the offset of a line of the last ``read``."""
        return self._offset_bytes(self._first + index)

    def _offset_bytes(self, index: int) -> int:
        if index == len(self._lines):
            return self._begin + len(self._data)
        return self._offsets()[index]

    def _offsets(self) -> list[int]:
        """Returns the offsets of the loaded lines, computed once per load."""
        if self._line_offsets is None:
            self._line_offsets = list(accumulate(map(len, BytesIO(self._data)), initial=self._begin))
        return self._line_offsets

    def _take(self) -> None:
        self._lines = self._decode(self._data) if self._data else []
        self._next = 0
        self._line_offsets = None

    def _decode(self, data: bytes) -> list[Any]:
        try:
            text = data.decode(self._encoding, self._errors)
        except UnicodeDecodeError:
            return self._decode_one_by_one(data)
        lines: list[Any] = text.replace("\r\n", "\n").split("\n")
        if len(lines) != data.count(b"\n") + 1:  # the encoding merged a line end into a damaged character
            *whole, rest = data.split(b"\n")
            lines = [line.removesuffix(b"\r").decode(self._encoding, self._errors) for line in whole]
            lines.append(rest.decode(self._encoding, self._errors))
        if data.endswith(b"\n"):
            lines.pop()
        if self._drops_byte_order_mark and self._begin == 0:
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        return lines

    def _decode_one_by_one(self, data: bytes) -> PartlyMalformed:
        lines, begin = PartlyMalformed(), self._begin
        for line in data.removesuffix(b"\n").split(b"\n"):
            try:
                text = line.removesuffix(b"\r").decode(self._encoding, self._errors)
                lines.append(text.removeprefix(BYTE_ORDER_MARK) if self._drops_byte_order_mark and not begin else text)
            except UnicodeDecodeError as error:
                reason = f"{line[error.start : error.end]!r} is not {self._encoding}: {error.reason}"
                option = 'encoding= (for example "latin-1"), or errors="replace"'
                lines.append(MalformedRecord(line, self._malformed(begin + error.start, reason, option, True)))
            begin += len(line) + 1
        return lines
