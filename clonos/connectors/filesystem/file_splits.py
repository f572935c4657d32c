"""Splits of input files: listed once by the driver, stored with the job and used for its whole life.

A split names its file by path, size and modification time; a file that differs is an error. A plain file is divided
into blocks of bytes; a compressed file is one split.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from clonos.connectors.connector_errors import InputChanged, InputUnreadable, SplitMalformed, UnexpectedInput
from clonos.connectors.filesystem.file_patterns import could_match
from clonos.connectors.object_stores.object_input import ObjectInput, stamp_ns, statuses_of
from clonos.connectors.object_stores.urls import is_url, name_of
from clonos.connectors.order_choice import OrderChoice, note_of_order
from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.core.wire.log_delta import Count

SPLIT_FORMAT = 1
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4")
PREPARED = ".prepared"
"""Suffix of part files that are not committed: no pattern of data files, such as ``*.parquet``, matches it."""
BLOCK_BYTES_MAX = 8 << 20
BLOCK_BYTES_MIN = 64 << 10
BLOCKS_PER_TASK = 4
BLOCKS_MAX = 65_536
"""Number of splits from which on blocks become larger instead: the driver holds all splits in memory."""


FilePath = Annotated[str, msgspec.Meta(pattern=r"^(/|[a-z0-9]+://)[^\x00]*\Z")]
"""Absolute path, or URL."""


class FileStatus(NamedTuple):
    """Size of a file, and its modification time in nanoseconds, or what tells versions of an object apart."""

    size_bytes: int
    mtime_ns: int


class FileSplit(msgspec.Struct, frozen=True, array_like=True):
    """Part of one file. ``begin`` and ``end`` count bytes, or row groups of a Parquet file."""

    format: int
    path: FilePath
    size_bytes: Count
    mtime_ns: int
    begin: Count
    end: Count


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(FileSplit)

encode_split: Callable[[FileSplit], bytes] = _encode


def decode_split(data: bytes) -> FileSplit:
    """Decodes a split.

    Raises: SplitMalformed: these bytes are not a split. FormatUnknown: another version of this library wrote it.
    """
    try:
        split = _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise SplitMalformed("split of a file", data, str(error)) from None
    check_format(f"the split of {split.path}", split.format, SPLIT_FORMAT)
    return split


def check_split(connector: str, patterns: Sequence[str], data: bytes) -> None:
    """Checks that a source with these patterns can have made the split.

    Raises: SplitMalformed: it is not a split. UnexpectedInput: no pattern matches its path.
    """
    path = decode_split(data).path
    if not could_match(patterns, path):
        raise UnexpectedInput(connector, path, tuple(patterns), os.getcwd())


def is_compressed(path: str) -> bool:
    """Returns whether a file is decompressed, judged by its suffix."""
    return uncommitted_name(path).endswith(COMPRESSED_SUFFIXES)


def uncommitted_name(path: str) -> str:
    """Returns a path, or a URL without its options, without the suffix of prepared part files."""
    return name_of(path).removesuffix(PREPARED)


def format_suffix(path: str) -> str:
    """Returns the suffix of the format of a file, such as ``.csv``, without that of its compression."""
    name = uncommitted_name(path)
    if name.endswith(COMPRESSED_SUFFIXES):
        name = os.path.splitext(name)[0]
    return os.path.splitext(name)[1]


def check_unchanged(split: FileSplit, status: FileStatus) -> None:
    """Checks that the file is the same as when the split was made.

    Raises: InputChanged: its size or modification time differs.
    """
    if status != (split.size_bytes, split.mtime_ns):
        raise InputChanged(split.path, _described(split.size_bytes, split.mtime_ns), _described(*status))


def check_still_unchanged(split: FileSplit) -> None:
    """Checks the same after a read. A read of an object names the version that was opened, so it needs no check.

    Raises: InputChanged, InputUnreadable.
    """
    if not is_url(split.path):
        check_unchanged(split, regular_status(split.path))


def _described(size_bytes: int, mtime_ns: int) -> str:
    return f"{size_bytes} bytes, modified at {mtime_ns} ns"


def new_files(paths: Sequence[str], known: Sequence[bytes], index: int, parallelism: int) -> list[str]:
    """Returns the paths that no known split has and that task ``index`` of ``parallelism`` is responsible for.

    Raises: InputChanged: a file of this task that was found before has grown, shrunk or been replaced.
    InputUnreadable: its status cannot be read.
    """
    seen = {split.path: split for split in map(decode_split, known)}
    mine = [path for path in paths if xxh3_64_intdigest(path.encode()) % parallelism == index]
    _check_known([seen[path] for path in mine if path in seen])
    return [path for path in mine if path not in seen]


def _check_known(splits: Sequence[FileSplit]) -> None:
    """Checks files that were found before. A file that is gone has been read, or its reader raises."""
    listed = statuses_of([split.path for split in splits if is_url(split.path)])
    for split in splits:
        found = listed.get(split.path)
        if found is not None and (found.size_bytes, stamp_ns(found)) == (split.size_bytes, split.mtime_ns):
            continue
        try:
            check_unchanged(split, regular_status(split.path))
        except InputUnreadable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise


def regular_status(path: str) -> FileStatus:
    """Returns the status of a regular file or an object; raises what ``input_status`` raises."""
    return input_status(path)[0]


def input_status(path: str) -> tuple[FileStatus, bool]:
    """Returns the status of a regular file or an object, and whether it can be read from any byte on.

    Pipes and devices cannot be replayed.

    Raises: InputUnreadable: the file does not exist, cannot be reached or is not a regular file.
    """
    try:
        if is_url(path):
            with ObjectInput(path) as found:
                return FileStatus(found.status.size_bytes, stamp_ns(found.status)), found.has_ranges
        status = os.stat(path)
    except OSError as error:
        raise InputUnreadable(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise InputUnreadable(path, "it is not a regular file, so it could not be replayed")
    return FileStatus(status.st_size, status.st_mtime_ns), True


class OrderedFiles(OrderChoice):
    """Base of file sources: reads each file as one split if the order of its records matters."""

    patterns: tuple[str, ...]

    def order_note(self, splits: Sequence[bytes], parallelism: int) -> str:
        """See ``connector_contract.OrderedSource``."""
        count = len(splits)
        if not 0 < count < parallelism or not any(self.can_cut(decode_split(split)) for split in splits):
            return ""
        names = [os.path.basename(pattern) or pattern for pattern in self.patterns]
        several = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return note_of_order(f"{names[0]}{several}", count, parallelism, "reads it in blocks, in any order")

    def can_cut(self, split: FileSplit) -> bool:
        """Returns whether the file of a split has more than one block."""
        return not is_compressed(split.path) and split.end - split.begin > BLOCK_BYTES_MIN


def block_splits(
    paths: Sequence[str], parallelism: int, block_bytes: int | None, is_whole: bool = False
) -> list[bytes]:
    """Divides text files into splits; without ``block_bytes`` each task gets about 4 blocks of 64 KiB to 8 MiB.

    With ``is_whole`` each file is one split, as a compressed file is, or one whose server sends no parts of it.
    """
    statuses = [(path, *input_status(path)) for path in paths]
    if block_bytes is None:
        total_bytes = sum(status.size_bytes for _, status, _ in statuses)
        wanted_bytes = total_bytes // (BLOCKS_PER_TASK * parallelism)
        block_bytes = max(BLOCK_BYTES_MIN, min(BLOCK_BYTES_MAX, wanted_bytes), total_bytes // BLOCKS_MAX)
    splits = []
    for path, status, has_ranges in statuses:
        size_bytes = status.size_bytes
        step = size_bytes if is_whole or not has_ranges or is_compressed(path) else block_bytes
        for begin in range(0, size_bytes, step or 1):
            end = min(begin + step, size_bytes)
            splits.append(encode_split(FileSplit(SPLIT_FORMAT, path, size_bytes, status.mtime_ns, begin, end)))
    return splits
