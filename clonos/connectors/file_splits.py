"""Files of an input and their splits: found once, by the driver; looked up again, unchanged, for ever.

Rules: a split says which file it means by path, size and modification time; a file that differs is an error, never
other records. A plain file is divided into blocks of bytes, a compressed file is one split.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Sequence

import msgspec
from xxhash import xxh3_64_intdigest

from clonos.connectors.faults import ConnectorMisused, InputChanged, InputMissing, InputUnreadable
from clonos.core.errors import InternalError

SPLIT_FORMAT = 1
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
BLOCK_BYTES_MAX = 8 << 20
BLOCK_BYTES_MIN = 64 << 10
BLOCKS_PER_TASK = 4
BLOCKS_MAX = 65_536
"""Beyond so many blocks they grow instead: the driver keeps all splits."""


class FileSplit(msgspec.Struct, frozen=True, array_like=True):
    """A part of one file. ``begin`` and ``end`` count bytes of a plain file, or row groups of a Parquet file."""

    format: int
    path: str
    size_bytes: int
    mtime_ns: int
    begin: int
    end: int


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(FileSplit)

encode_split: Callable[[FileSplit], bytes] = _encode


def decode_split(data: bytes) -> FileSplit:
    """The split that ``encode_split`` made, also in an earlier version of the job."""
    try:
        split = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InternalError(f"{data[:80]!r} is no split of a file: {error}") from None
    if split.format > SPLIT_FORMAT:
        raise InternalError(f"the split of {split.path} has format {split.format}: update clonos")
    return split


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


def find_files(
    connector: str, patterns: Sequence[str], in_folder: Callable[[str], list[str]], may_miss: bool = False
) -> list[str]:
    """Absolute paths that the patterns name, each once; in the order of the patterns, then of the paths.

    ``in_folder`` lists what is read of a folder. A pattern that names nothing raises ``InputMissing``, unless
    ``may_miss``.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if "://" in pattern:
            raise ConnectorMisused(
                connector, f"{pattern!r} is a URL", "Files are read from paths: mount it or copy it."
            )
        path = os.path.expanduser(pattern)
        if os.path.isdir(path):
            matches = in_folder(path)
        elif os.path.exists(path):
            matches = [path]
        else:
            matches = sorted(match for match in glob.glob(path, recursive=True) if not os.path.isdir(match))
        if not matches and not may_miss:
            raise InputMissing(pattern, os.getcwd(), _advice(path))
        found.update((os.path.abspath(match), None) for match in matches)
    for match in found:
        _check_name(match)
    return list(found)


def new_files(paths: Sequence[str], known: Sequence[bytes], index: int, parallelism: int) -> list[str]:
    """Those that no known split is of and that are this task's, by their names."""
    seen = {decode_split(split).path for split in known}
    return [path for path in paths if path not in seen and xxh3_64_intdigest(path.encode()) % parallelism == index]


def _advice(path: str) -> str:
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if os.path.isdir(os.path.join(folder, "_manifests")):
        return f"{folder!r} holds the output of a job: give the folder itself to read what is committed there."
    return ""


def _check_name(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise InputUnreadable(repr(path), "its name is not UTF-8") from None


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
