"""Text files that grow and are rotated: the source ``files.tail``.

A split is one content, told apart by device, inode and the first complete lines of the file. A mark is an offset in it
and a hash of what is before it, so that a reader finds the content again wherever a rotation has put it: under another
name, in a copy whose original was emptied, or compressed. A line is read when it has its end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from xxhash import xxh3_64_intdigest

from clonos.connectors.connector_errors import (
    InputChanged,
    InputUnreadable,
    InvalidConnector,
    SplitMalformed,
    UnexpectedInput,
)
from clonos.connectors.filesystem.byte_feed import DAMAGED, decompressed
from clonos.connectors.filesystem.file_patterns import could_match, find_files
from clonos.connectors.filesystem.file_splits import FilePath, is_compressed
from clonos.connectors.filesystem.line_files import LineReader, check_encoding, check_line_options
from clonos.connectors.filesystem.output_folder import readable_files
from clonos.connectors.object_stores.urls import is_url
from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.core.wire.log_delta import Count
from clonos.io.system import wall_clock
from clonos.operators.connector_contract import PendingInput, SplitReader
from clonos.operators.lineage import Dataset, dataset_at

CONNECTOR: Final = "files.tail"
SPLIT_FORMAT: Final = 1
HEAD_BYTES: Final = 4_096
"""First bytes of a file by which it is told apart from others with its inode, and found in a copy."""
READ_BYTES: Final = 1 << 20
SEARCHES: Final = 8
"""Searches for a content that a rotation moves meanwhile."""

AnyLine = TypeVar("AnyLine")


class TailedInputChanged(InputChanged):
    """A file has changed otherwise than by lines at its end and by rotation."""

    def __str__(self) -> str:
        return (
            f"the file {self.path} has changed otherwise than by lines at its end or by rotation: it had"
            f" {self.expected}, now it has {self.actual}, and no file beside it has what it had. Put the former content"
            " beside it, under its name with a suffix such as .1, and resume, or start afresh with --overwrite."
        )


class TailSplit(msgspec.Struct, frozen=True, array_like=True):
    """Content of a file: where it was found, and its first ``head_bytes``, complete lines, by their hash.

    ``original``: the path of which ``path`` is a rotation; the same one for a file that was not rotated yet.
    ``is_before``: it was rotated before the job first started, so it is not read.
    """

    format: int
    path: FilePath
    original: FilePath
    device: Count
    inode: Count
    head_bytes: Count
    head_hash: Count
    is_before: bool


class TailMark(msgspec.Struct, frozen=True, array_like=True):
    """Position in a content: the offset of the next line, and a hash of up to ``HEAD_BYTES`` before it."""

    offset_bytes: Count
    head_hash: Count

    @property
    def head_bytes(self) -> int:
        """Returns of how many first bytes the hash is."""
        return min(self.offset_bytes, HEAD_BYTES)


_encode: Final = msgspec.msgpack.Encoder().encode
_splits: Final = msgspec.msgpack.Decoder(TailSplit)
_marks: Final = msgspec.msgpack.Decoder(TailMark)


def _split_of(data: bytes) -> TailSplit:
    try:
        split = _splits.decode(data)
    except DECODE_ERRORS as error:
        raise SplitMalformed("split of a file that grows", data, str(error)) from None
    check_format(f"the split of {split.path}", split.format, SPLIT_FORMAT)
    return split


def _mark_of(data: bytes) -> TailMark:
    try:
        return _marks.decode(data)
    except DECODE_ERRORS as error:
        raise SplitMalformed("position in a file that grows", data, str(error)) from None


def _hash_of(data: bytes) -> int:
    return xxh3_64_intdigest(data) >> 2  # as much as an integer of a split may have


def _family(name: str) -> str:
    """Returns what the names of a file and of its rotations have in common: ``app`` of ``app.log.1``."""
    return re.split(r"[.\-_]", name.lstrip("."), maxsplit=1)[0]


def _is_rotation(name: str, original: str) -> bool:
    """Returns whether a name is another one with a suffix, as ``app.log.1`` is of ``app.log``."""
    return name.startswith((f"{original}.", f"{original}-", f"{original}_"))


def _shorter(path: str) -> list[str]:
    """Returns the paths of which a path may be a rotation, and the folders above it."""
    return [path[: found.start()] for found in re.finditer(r"[.\-_]", path)]


class TailFiles(Generic[AnyLine]):
    """Lines of files that grow: files by path, folder or pattern, and what rotations make of them."""

    routes_malformed = True

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        encoding: str,
        errors: str,
        with_position: bool,
        line_bytes_max: int,
        discovery_interval_ns: int,
        linger_ns: int,
        rotated_to: str | None = None,
    ) -> None:
        check_line_options(CONNECTOR, patterns, None)
        check_encoding(encoding, CONNECTOR)
        if url := next((pattern for pattern in patterns if is_url(pattern)), None):
            raise InvalidConnector(
                CONNECTOR, f"{url} is a URL, and no file grows there", "Give a path of this machine."
            )
        self.patterns = tuple(patterns)
        self.encoding, self.errors, self.with_position = encoding, errors, with_position
        self.line_bytes_max = line_bytes_max
        self.discovery_interval_ns, self.linger_ns = discovery_interval_ns, linger_ns
        self.rotated_to = rotated_to

    def folders_of(self, folder: str) -> tuple[str, ...]:
        """Returns the folders that have files of a folder and their rotations: that folder first, then the other."""
        other = folder if self.rotated_to is None else os.path.normpath(os.path.join(folder, self.rotated_to))
        return (folder,) if other == folder else (folder, other)

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(path) for path in self.patterns]

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns a split for each file that has a line now, and for each rotated one, which is not read."""
        return self._new([], lambda _: True, is_first=True)

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        """Returns the splits of contents that have appeared since, also of those that are rotated already."""

        def is_mine(path: str) -> bool:
            folder, name = os.path.split(path)
            return _hash_of(f"{folder}/{_family(name)}".encode()) % parallelism == index

        return self._new([_split_of(each) for each in known], is_mine, is_first=False)

    def check_split(self, split: bytes) -> None:
        """See ``connector_contract.CheckingSource``.

        Raises: SplitMalformed: it is not a split. UnexpectedInput: no pattern matches its path or that of its original.
        """
        found = _split_of(split)
        if not any(could_match(self.patterns, each) for each in (found.original, *_shorter(found.path))):
            raise UnexpectedInput(CONNECTOR, found.path, self.patterns, os.getcwd())

    def reader(self) -> SplitReader[AnyLine]:
        """Creates a reader."""
        return TailReader(self)

    def _new(self, known: list[TailSplit], is_mine: Callable[[str], bool], is_first: bool) -> list[bytes]:
        """Returns the splits of contents that are not known, the oldest first."""
        matched = find_files(CONNECTOR, self.patterns, readable_files, may_be_empty=True)
        folders = {os.path.dirname(path) for path in (*matched, *(split.original for split in known))}
        folders |= {os.path.dirname(os.path.abspath(os.path.expanduser(pattern))) for pattern in self.patterns}
        of_rotations = {place for folder in folders for place in self.folders_of(folder)[1:]}
        matched = [path for path in matched if os.path.dirname(path) not in of_rotations]
        originals = dict.fromkeys(matched) | self._rotated(folders, set(matched))
        contents = Contents(known, self.linger_ns)
        mine = (path for path, original in originals.items() if is_mine(original or path))
        for path in sorted(mine, key=_modified_ns):
            contents.add(path, originals[path], is_before=is_first and originals[path] is not None)
        return [_encode(each) for each in contents.found]

    def _rotated(self, folders: Iterable[str], matched: Collection[str]) -> dict[str, str | None]:
        """Returns the files that no pattern matches and that are rotations of a path that one matches."""
        found: dict[str, str | None] = {}
        for folder in sorted(folders):
            for place in self.folders_of(folder):
                for name in _names_in(place):
                    path = os.path.join(place, name)
                    cuts = _shorter(os.path.join(folder, name)) if path not in matched else ()
                    if original := next((cut for cut in reversed(cuts) if could_match(self.patterns, cut)), None):
                        found.setdefault(path, original)
        return found


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputUnreadable(folder, error.strerror or str(error)) from error


class Contents:
    """Contents that are known, and those that are found beside them."""

    def __init__(self, known: Iterable[TailSplit], settled_ns: int) -> None:
        """``settled_ns``: age from which on a rotated file is no copy that is still being made."""
        self._settled_ns = settled_ns
        self.found: list[TailSplit] = []
        self._originals: set[str] = set()
        self._by_file: dict[tuple[int, int], list[TailSplit]] = {}
        self._by_head: dict[tuple[int, int], list[TailSplit]] = {}
        for each in known:
            self._note(each)

    def _note(self, split: TailSplit) -> None:
        self._originals.add(split.original)
        self._by_file.setdefault((split.device, split.inode), []).append(split)
        self._by_head.setdefault((split.head_bytes, split.head_hash), []).append(split)

    def add(self, path: str, original: str | None, is_before: bool) -> None:
        """Takes the content of a file as found if it is new and has a complete line.

        ``original``: the path of which this is a rotation. It may be a copy that is being made, as a compressed file
        may, so it has to be settled.

        Raises: InputUnreadable: the file cannot be read.
        """
        try:
            with open(path, "rb", buffering=0) as file:
                status, head = os.fstat(file.fileno()), _head(path, file)
        except (FileNotFoundError, IsADirectoryError):
            return
        except OSError as error:
            raise InputUnreadable(path, error.strerror or str(error)) from error
        end = len(head) if len(head) == HEAD_BYTES else head.rfind(b"\n") + 1
        is_settled = wall_clock.wall_ns() - status.st_mtime_ns >= self._settled_ns
        if not end or not (is_settled or is_before or self._is_original(path, original)):
            return
        identity = status.st_dev, status.st_ino
        split = TailSplit(SPLIT_FORMAT, path, original or path, *identity, end, _hash_of(head[:end]), is_before)
        if not self._knows(split, head):
            self.found.append(split)
            self._note(split)

    def _is_original(self, path: str, original: str | None) -> bool:
        """Returns whether a file is neither compressed nor, by its name, a rotation of a file that is known."""
        return original is None and not is_compressed(path) and not self._originals.intersection(_shorter(path))

    def _knows(self, split: TailSplit, head: bytes) -> bool:
        for each in self._by_file.get((split.device, split.inode), ()):
            if _begins(head, each.head_bytes, each.head_hash):
                return True
        folder, name = os.path.dirname(split.original), os.path.basename(split.path)
        for size in {size for size, _ in self._by_head if size <= len(head)}:
            for each in self._by_head.get((size, _hash_of(head[:size])), ()):
                if os.path.dirname(each.original) == folder and _is_rotation(name, os.path.basename(each.original)):
                    return True
        return False


def _begins(head: bytes, size_bytes: int, head_hash: int) -> bool:
    return len(head) >= size_bytes and _hash_of(head[:size_bytes]) == head_hash


def _head(path: str, file: Any) -> bytes:
    """Returns the first bytes of a file; fewer of a compressed file that is being written."""
    if not is_compressed(path):
        return os.pread(file.fileno(), HEAD_BYTES, 0)
    head = b""
    try:
        stream = decompressed(path, file)
        while len(head) < HEAD_BYTES and (piece := stream.read(HEAD_BYTES - len(head))):
            head += piece
    except (*DAMAGED, OSError):
        pass
    return head


class PlainContent:
    """Open file that is not compressed. ``may_grow``: it is the file that was found, not a copy of it."""

    def __init__(self, path: str, may_grow: bool) -> None:
        self.path, self.may_grow = path, may_grow
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  it is closed in ``close``
        self._seen: tuple[int, int] | None = None  # size and time when there was nothing new
        self.size_bytes = 0  # at the last look

    def head(self) -> bytes:
        """Returns the first bytes."""
        return os.pread(self._file.fileno(), HEAD_BYTES, 0)

    def modified_ns(self) -> int:
        """Returns when the file was last written; a copy has been written."""
        return os.fstat(self._file.fileno()).st_mtime_ns if self.may_grow else 0

    def has_changed(self) -> bool:
        """Returns whether there may be more than at the last call."""
        status = os.fstat(self._file.fileno())
        self.size_bytes = status.st_size
        before, self._seen = self._seen, (status.st_size, status.st_mtime_ns)
        return before != self._seen

    def read(self, offset_bytes: int, size_bytes: int) -> bytes | None:
        """Returns what is at an offset; None if the file is shorter than that."""
        piece = os.pread(self._file.fileno(), size_bytes, offset_bytes)
        if len(piece) == size_bytes:
            self._seen = None
        is_shorter = not piece and os.fstat(self._file.fileno()).st_size < offset_bytes
        return None if is_shorter else piece

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class CompressedContent:
    """Open compressed file, which is complete. Each read begins where an earlier one did, or after it."""

    may_grow = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  it is closed in ``close``
        try:
            self._stream = decompressed(path, self._file)
        except BaseException:
            self._file.close()
            raise
        self._head = self._buffer = b""
        self._begin = 0  # offset of the buffer

    def head(self) -> bytes:
        """Returns the first bytes."""
        while len(self._head) < HEAD_BYTES and self._fill():
            pass
        return self._head

    def modified_ns(self) -> int:
        """Returns that the file has been written."""
        return 0

    def has_changed(self) -> bool:
        """Returns that there may be more."""
        return True

    def read(self, offset_bytes: int, size_bytes: int) -> bytes | None:
        """Returns what is at an offset; None if the content is shorter than that."""
        while self._begin + len(self._buffer) < offset_bytes:
            self._begin, self._buffer = self._begin + len(self._buffer), b""
            if not self._fill():
                return None
        self._buffer = self._buffer[offset_bytes - self._begin :]
        self._begin = offset_bytes
        while len(self._buffer) < size_bytes and self._fill():
            pass
        return self._buffer[:size_bytes]

    def _fill(self) -> bool:
        try:
            piece: bytes = self._stream.read(READ_BYTES)
        except (*DAMAGED, OSError) as error:
            raise InputUnreadable(self.path, f"it cannot be decompressed: {error}") from error
        self._buffer += piece
        if len(self._head) < HEAD_BYTES:
            self._head += piece[: HEAD_BYTES - len(self._head)]
        return bool(piece)

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()
        self._file.close()


class TailReader(LineReader):
    """Reader of the complete lines of one content, wherever rotations put it."""

    def __init__(self, source: TailFiles[Any]) -> None:
        super().__init__(source.encoding, source.errors, source.line_bytes_max, source.with_position)
        self._source = source
        self._content: PlainContent | CompressedContent | None = None
        self._seen_head = b""  # first bytes of what was read

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a content at a mark.

        Raises: TailedInputChanged, InputUnreadable: it is nowhere. SplitMalformed: the split or mark is invalid.
        """
        self.close()
        self._split = _split_of(split)
        self._path = self._split.path
        if self._split.is_before:
            return
        at = TailMark(0, 0) if mark is None else _mark_of(mark)
        self._known = [(self._split.head_bytes, self._split.head_hash)]
        if at.offset_bytes:
            self._known.append((at.head_bytes, at.head_hash))
        self._seen_head = b""
        self._content = self._search(at.offset_bytes)
        self._seen_head = self._content.head()[: at.head_bytes]
        self._load(at.offset_bytes, b"", b"")

    def read(self, records_max: int) -> list[Any] | None:
        """Returns complete lines; [] if there are none now, None when a rotated file has brought its last one."""
        if self._split.is_before:
            return None
        found = super().read(records_max)
        return found if found is not None or self._has_ended() else []

    def pending(self) -> PendingInput | None:
        """See ``connector_contract.PendingReader``: the bytes up to the end of the file when it was last looked at."""
        content = self._content
        if not isinstance(content, PlainContent):
            return None
        at = self._begin + self._returned_bytes()
        return PendingInput(bytes=max(0, content.size_bytes - at), read_bytes=at)

    def mark(self) -> bytes:
        """Returns the position of the next line."""
        offset_bytes = self._offset_bytes(self._next)
        return _encode(TailMark(offset_bytes, _hash_of(self._seen_head[:offset_bytes])))

    def close(self) -> None:
        """Closes the file."""
        if self._content is not None:
            self._content.close()
            self._content = None

    def _fill(self) -> bool:
        begin, size_bytes = self._begin + len(self._data), READ_BYTES
        while True:
            data = self._available(begin, size_bytes)
            end = data.rfind(b"\n") + 1
            if end:
                self._load(begin, data[:end], b"")
                return True
            if len(data) < size_bytes:
                return False
            if len(data) > self._line_bytes_max:
                reason = f"a line is longer than {self._line_bytes_max} bytes"
                raise self._malformed(begin, reason, "line_bytes_max=")
            size_bytes *= 2

    def _available(self, begin: int, size_bytes: int) -> bytes:
        """Returns what is after the last complete line, b"" if nothing has changed since there was nothing."""
        assert self._content is not None, "a reader is opened before it is read"
        for _ in range(SEARCHES):
            if not self._content.has_changed():
                return b""
            piece = self._content.read(begin, size_bytes)
            # The head is read last: if it is that of the content, so is what was read before it.
            if piece is not None and self._fits(head := self._content.head()):
                self._seen_head = head[: begin + len(piece)]
                return piece
            self._content.close()
            self._content = self._search(begin)
        raise self._changed("what changes while it is read")

    def _fits(self, head: bytes) -> bool:
        is_known = all(_begins(head, size, head_hash) for size, head_hash in self._known)
        return is_known and head.startswith(self._seen_head)

    def _search(self, offset_bytes: int) -> PlainContent | CompressedContent:
        """Opens the content: at its path, under another name, or a copy of it."""
        for _ in range(SEARCHES):
            for path in self._candidates():
                try:
                    content = (
                        CompressedContent(path) if is_compressed(path) else PlainContent(path, self._is_file(path))
                    )
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno is None:  # it is being compressed
                        continue
                    raise InputUnreadable(path, error.strerror or str(error)) from error
                if self._has(content, offset_bytes):
                    return content
                content.close()
        raise self._changed("another content")

    def _has(self, content: PlainContent | CompressedContent, offset_bytes: int) -> bool:
        try:
            return self._fits(content.head()) and content.read(offset_bytes, 1) is not None
        except InputUnreadable:  # it is being compressed
            return False

    def _candidates(self) -> list[str]:
        """Returns where the content may be, the most likely place first."""
        folder, original = os.path.split(self._split.original)
        places = dict.fromkeys((os.path.dirname(self._path), *self._source.folders_of(folder)))
        beside = [(place, name) for place in places for name in _names_in(place) if _family(name) == _family(original)]
        return sorted((os.path.join(*each) for each in beside), key=self._unlikelihood)

    def _unlikelihood(self, path: str) -> tuple[bool, bool, bool, str]:
        return not self._is_file(path), path != self._path, is_compressed(path), path

    def _is_file(self, path: str) -> bool:
        """Returns whether the file that was found is at a path now."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self._split.device, self._split.inode)

    def _has_ended(self) -> bool:
        """Returns whether nothing more comes: a copy is read, or the file was rotated and is not written any more."""
        assert self._content is not None, "a reader is opened before it is read"
        if could_match(self._source.patterns, self._path) and self._is_file(self._path) and self._content.may_grow:
            return False
        # The time of the last line is not that of a reader, whose task may die before the file has lingered.
        return wall_clock.wall_ns() - self._content.modified_ns() >= self._source.linger_ns

    def _changed(self, actual: str) -> TailedInputChanged:
        return TailedInputChanged(self._path, f"a content with {self._split.head_bytes} known first bytes", actual)
