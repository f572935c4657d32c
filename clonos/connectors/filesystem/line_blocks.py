"""Blocks of complete lines of one split, read forward: what readers of lines and of columns have in common.

Only ``\\n`` ends a line. A line belongs to the block in which it begins, even if it ends in the next one. A mark is the
offset of the first byte of a line.
"""

from __future__ import annotations

from clonos.connectors.connector_errors import InputMalformed, SplitMalformed
from clonos.connectors.filesystem.byte_feed import ByteReader
from clonos.connectors.filesystem.file_splits import FileSplit, decode_split, is_compressed
from clonos.operators.connector_contract import PendingInput

READ_BYTES = 1 << 20
BEYOND_BLOCK_BYTES = 64 << 10
MARK_BYTES = 8
OFFSET_BYTES_MAX = (1 << 62) - 1
NUMBERED_BYTES_MAX = 1 << 26
"""Bytes of a file whose lines have numbers in errors: the file is read again up to a wrong line."""


class LineBlocks:
    """Base of readers of the lines that begin within one split.

    ``_data`` are the bytes of the loaded lines, at offset ``_begin``; ``_tail`` are the bytes after them, which hold no
    complete line.
    """

    def __init__(self, line_bytes_max: int, read_bytes: int = READ_BYTES) -> None:
        self._line_bytes_max = line_bytes_max
        self._read_bytes = read_bytes
        self._feed: ByteReader | None = None
        self._path = ""
        self._part: FileSplit | None = None
        self._counted = (0, 1)  # an offset, and the number of the line that it is in
        self._limit = 0
        self._begin = 0
        self._data = b""
        self._tail = b""

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark.

        Raises: InputChanged, InputUnreadable: the file differs or cannot be read. SplitMalformed: the split or mark is
        invalid.
        """
        self.close()
        part = decode_split(split)
        self._path, self._part, self._counted = part.path, part, (0, 1)
        # Lines that begin before the limit are read here. A compressed file is one block without a limit.
        self._limit = OFFSET_BYTES_MAX if is_compressed(part.path) else part.end
        begin = _offset_of(mark) if mark is not None else self._first_line(part)
        self._feed = ByteReader(part, begin)
        self._load(begin, b"", b"")

    @property
    def path(self) -> str:
        """Returns the path of the file."""
        return self._path

    def close(self) -> None:
        """Closes the file."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def pending(self) -> PendingInput | None:
        """See ``connector_contract.PendingReader``: the bytes up to the end of the split, if it is not compressed."""
        part = self._part
        if part is None or self._limit == OFFSET_BYTES_MAX:
            return None
        at = self._begin + self._returned_bytes()
        return PendingInput(bytes=max(0, self._limit - at), read_bytes=max(0, at - part.begin))

    def _returned_bytes(self) -> int:
        """Returns about how many bytes of ``_data`` were returned. Another thread than that of ``read`` calls it."""
        return len(self._data)

    def _take(self) -> None:
        """Takes the lines that were loaded into ``_data``."""
        raise NotImplementedError

    def _first_line(self, part: FileSplit) -> int:
        """Finds the offset of the first line that begins in the block; the end of the block if there is none."""
        if part.begin == 0:
            return 0
        feed = ByteReader(part, part.begin - 1)
        try:
            while feed.offset_bytes < part.end - 1:
                start = feed.offset_bytes
                piece = feed.read(min(BEYOND_BLOCK_BYTES, part.end - 1 - start))
                found = piece.find(b"\n")
                if found >= 0:
                    return start + found + 1
                if not piece:
                    break
        finally:
            feed.close()
        return part.end

    def _fill(self) -> bool:
        """Loads more complete lines; returns False if no further line begins before the limit."""
        assert self._feed is not None, "a reader is opened before it is read"
        begin = self._begin + len(self._data)
        if begin >= self._limit:
            return False
        pieces, length, tail = [self._tail], len(self._tail), b""
        while True:
            left = self._limit - begin - length
            piece = self._feed.read(min(self._read_bytes, left if left > 0 else BEYOND_BLOCK_BYTES))
            if not piece:
                break
            cut = self._end_of_lines(pieces, piece)
            pieces.append(piece)
            length += len(piece)
            if not cut and length > self._line_bytes_max:
                cut = self._end_of_long_line(b"".join(pieces))
                if not cut:
                    reason = f"a line is longer than {self._line_bytes_max} bytes"
                    raise self._malformed(begin, reason, "line_bytes_max=")
            if cut:
                beyond = length - cut
                while beyond >= len(pieces[-1]) and beyond:
                    last = pieces.pop()
                    tail, beyond = last + tail, beyond - len(last)
                if beyond:
                    tail, pieces[-1] = pieces[-1][-beyond:] + tail, pieces[-1][:-beyond]
                break
        data = b"".join(pieces)
        if begin + len(data) > self._limit:
            # The last line of this split holds the byte before the limit.
            end = data.find(b"\n", self._limit - 1 - begin) + 1
            data = data[:end] if end else data
        self._load(begin, data, tail)
        return bool(data)

    def _end_of_lines(self, before: list[bytes], piece: bytes) -> int:
        """Returns where the last line that ends in the pieces ends, 0 if none does. ``before`` begins with a line."""
        end = piece.rfind(b"\n") + 1
        return end and sum(map(len, before)) + end

    def _end_of_long_line(self, data: bytes) -> int:
        """Returns where a line that is too long ends all the same, as a malformed one; 0 if it does not."""
        return 0

    def _load(self, begin: int, data: bytes, tail: bytes) -> None:
        self._begin = begin
        self._data = data
        self._tail = tail
        self._take()

    def _malformed(self, offset_bytes: int, reason: str, option: str, is_one_record: bool = False) -> InputMalformed:
        advice = f"Correct the file, or pass {option}."
        return InputMalformed(self._path, offset_bytes, reason, advice, is_one_record, self.line_at(offset_bytes))

    def line_at(self, offset_bytes: int) -> int:
        """Returns the number of the line that has an offset of the block, from 1; 0 if it is not known."""
        assert self._part is not None, "a reader is opened before it is read"
        if offset_bytes > NUMBERED_BYTES_MAX:
            return 0
        at, line = self._counted if self._counted[0] <= offset_bytes else (0, 1)
        if at < self._begin:
            feed = ByteReader(self._part, at)
            try:
                while at < self._begin and (piece := feed.read(min(READ_BYTES, self._begin - at))):
                    at, line = at + len(piece), line + piece.count(b"\n")
            finally:
                feed.close()
        line += self._data.count(b"\n", at - self._begin, offset_bytes - self._begin)
        self._counted = offset_bytes, line
        return line


def pending_lines(split: bytes, mark: bytes | None) -> PendingInput | None:
    """See ``connector_contract.PendingSource``: the bytes of a split behind a mark, None if they are compressed."""
    part = decode_split(split)
    at = part.begin if mark is None else _offset_of(mark)
    return (
        None
        if is_compressed(part.path)
        else PendingInput(bytes=max(0, part.end - at), read_bytes=max(0, at - part.begin))
    )


def _offset_of(mark: bytes) -> int:
    if len(mark) != MARK_BYTES:
        raise SplitMalformed("position in a file of lines", mark, f"it has {len(mark)} bytes")
    offset_bytes = int.from_bytes(mark, "big")
    if offset_bytes > OFFSET_BYTES_MAX:
        raise SplitMalformed("position in a file of lines", mark, f"no file has {offset_bytes} bytes")
    return offset_bytes
