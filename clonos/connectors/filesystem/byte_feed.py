"""Bytes of one file, plain or decompressed, read forward from an offset in large pieces.

Offsets count bytes after decompression. The size and time of the file are compared with the split after each read, so
every piece is known to come from the right file.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from typing import Any

from clonos.connectors.connector_errors import InputMalformed, InputUnreadable
from clonos.connectors.filesystem.file_splits import FileSplit, check_unchanged, is_compressed, uncommitted_name
from clonos.connectors.filesystem.input_files import object_replaced, open_input, status_of
from clonos.io.store.object_status import ObjectReplaced

SKIP_BYTES = 1 << 20
DAMAGED = (EOFError, zlib.error, lzma.LZMAError)
"""Errors of decompressors, beside an ``OSError`` without a number."""


class ByteReader:
    """Open file of a split. ``offset_bytes`` is where the next piece begins. ``is_raw``: nothing is decompressed."""

    def __init__(self, split: FileSplit, offset_bytes: int, is_raw: bool = False) -> None:
        self.split = split
        self.offset_bytes = 0
        self._stream: Any = None
        try:
            self._file = open_input(split.path)
        except OSError as error:
            raise InputUnreadable(split.path, error.strerror or str(error)) from error
        try:
            check_unchanged(split, status_of(self._file))
            self._stream = (
                decompressed(split.path, self._file) if is_compressed(split.path) and not is_raw else self._file
            )
            self._skip_to(offset_bytes)
        except BaseException:
            self.close()
            raise

    def read(self, size_bytes: int) -> bytes:
        """Returns at most ``size_bytes`` bytes, b"" at the end of the file.

        Raises: InputMalformed, InputUnreadable, InputChanged: the bytes cannot be decompressed or read, or are of
        another file.
        """
        try:
            piece: bytes = self._stream.read(size_bytes)
        except DAMAGED as error:
            raise self._malformed(error) from error
        except ObjectReplaced as error:
            raise object_replaced(self.split.path) from error
        except OSError as error:
            if error.errno is None:  # raised by the decompressor itself
                raise self._malformed(error) from error
            raise InputUnreadable(self.split.path, error.strerror or str(error)) from error
        check_unchanged(self.split, status_of(self._file))
        self.offset_bytes += len(piece)
        return piece

    def close(self) -> None:
        """Closes the file."""
        if self._stream is not None and self._stream is not self._file:
            self._stream.close()
        self._file.close()

    def _skip_to(self, offset_bytes: int) -> None:
        if self._stream is self._file:
            self._file.seek(offset_bytes)
            self.offset_bytes = offset_bytes
        while self.offset_bytes < offset_bytes and self.read(min(SKIP_BYTES, offset_bytes - self.offset_bytes)):
            pass

    def _malformed(self, error: Exception) -> InputMalformed:
        return InputMalformed(
            self.split.path,
            self.offset_bytes,
            f"it cannot be decompressed beyond here: {error}",
            "The file is damaged or has the wrong suffix: repair it or leave it out.",
        )


def decompressed(path: str, file: Any) -> Any:
    """Returns the decompressor of an open file, by the suffix of its path."""
    path = uncommitted_name(path)
    if path.endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if path.endswith(".bz2"):
        return bz2.BZ2File(file)
    if path.endswith(".xz"):
        return lzma.LZMAFile(file)
    import pyarrow  # Arrow takes long to load

    kind = "lz4" if path.endswith(".lz4") else "zstd"
    return _ArrowDecompressor(pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), kind))


class _ArrowDecompressor:
    """Decompressor of Arrow.

    Its own ``read`` leaks the buffer that it was to fill when it raises, so this one avoids it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size_bytes: int) -> bytes:
        """Returns at most ``size_bytes`` bytes, b"" at the end."""
        data: bytes = self._stream.read_buffer(size_bytes).to_pybytes()
        return data

    def close(self) -> None:
        """Closes the decompressor, not the file."""
        self._stream.close()
