"""Files of an input and their splits: found once, by the driver; looked up again, unchanged, for ever.

Rules: a split says which file it means by path, size and modification time; a file that differs is an error, never
other records. A plain file is divided into blocks of bytes, a compressed file is one split.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from xxhash import xxh3_64_intdigest

from clonos.connectors.connector_errors import InputChanged, InputForeign, InputUnreadable, SplitMalformed
from clonos.connectors.filesystem.file_patterns import could_find
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.log_delta import Count

SPLIT_FORMAT = 1
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
BLOCK_BYTES_MAX = 8 << 20
BLOCK_BYTES_MIN = 64 << 10
BLOCKS_PER_TASK = 4
BLOCKS_MAX = 65_536
"""Beyond so many blocks they grow instead: the driver keeps all splits."""


FilePath = Annotated[str, msgspec.Meta(pattern=r"^/[^\x00]*\Z")]
"""Absolute."""


class FileSplit(msgspec.Struct, frozen=True, array_like=True):
    """A part of one file. ``begin`` and ``end`` count bytes of a plain file, or row groups of a Parquet file."""

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
    """The split that ``encode_split`` made, also in an earlier version of the job. SplitMalformed."""
    try:
        split = _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise SplitMalformed("split of a file", data, str(error)) from None
    if split.format > SPLIT_FORMAT:
        raise SplitMalformed("split of a file", data, f"format {split.format} is newer than {SPLIT_FORMAT}")
    return split


def check_split(connector: str, patterns: Sequence[str], data: bytes) -> None:
    """Raises if a source with these patterns cannot have made the split. SplitMalformed, InputForeign."""
    path = decode_split(data).path
    if not could_find(patterns, path):
        raise InputForeign(connector, path, tuple(patterns), os.getcwd())


def is_compressed(path: str) -> bool:
    """Whether a file is read through a decompressor, by its name."""
    return path.endswith(COMPRESSED_SUFFIXES)


def check_unchanged(split: FileSplit, status: os.stat_result) -> None:
    """Raises ``InputChanged`` if the file is not the one that the split means."""
    if (status.st_size, status.st_mtime_ns) != (split.size_bytes, split.mtime_ns):
        raise InputChanged(
            split.path, _described(split.size_bytes, split.mtime_ns), _described(status.st_size, status.st_mtime_ns)
        )


def _described(size_bytes: int, mtime_ns: int) -> str:
    return f"{size_bytes} bytes, modified at {mtime_ns} ns"


def new_files(paths: Sequence[str], known: Sequence[bytes], index: int, parallelism: int) -> list[str]:
    """Those that no known split is of and that are this task's, by their names."""
    seen = {decode_split(split).path for split in known}
    return [path for path in paths if path not in seen and xxh3_64_intdigest(path.encode()) % parallelism == index]


def regular_status(path: str) -> os.stat_result:
    """Size and time of a file that can be read twice; a pipe or a device cannot."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputUnreadable(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise InputUnreadable(path, "it is no regular file, and what is read from it cannot be read again")
    return status


def block_splits(paths: Sequence[str], parallelism: int, block_bytes: int | None) -> list[bytes]:
    """Splits of files of lines. Without ``block_bytes`` each task gets a few blocks, if there is enough to read."""
    statuses = [(path, regular_status(path)) for path in paths]
    if block_bytes is None:
        total_bytes = sum(status.st_size for _, status in statuses)
        wanted_bytes = total_bytes // (BLOCKS_PER_TASK * parallelism)
        block_bytes = max(BLOCK_BYTES_MIN, min(BLOCK_BYTES_MAX, wanted_bytes), total_bytes // BLOCKS_MAX)
    splits = []
    for path, status in statuses:
        size_bytes = status.st_size
        step = size_bytes if is_compressed(path) else block_bytes
        for begin in range(0, size_bytes, step or 1):
            end = min(begin + step, size_bytes)
            splits.append(encode_split(FileSplit(SPLIT_FORMAT, path, size_bytes, status.st_mtime_ns, begin, end)))
    return splits
