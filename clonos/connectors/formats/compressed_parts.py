"""Compressed part files of text: the format of the rows, and after it one stream of gzip, bzip2, xz, zstd or LZ4.

Equal rows give equal bytes: no header has a time or a name.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Sequence
from typing import Any, Final, Protocol

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.filesystem.output_parts import Layout, RowsFile, RowsFormat
from clonos.connectors.object_stores.urls import name_of
from clonos.kernels.record_batch import RecordBatch

SUFFIXES: Final = {"gzip": "gz", "bz2": "bz2", "xz": "xz", "zstd": "zst", "lz4": "lz4"}
GZIP_WINDOW: Final = 31
"""Window bits of zlib for the format of gzip."""


def compression_of(connector: str, compression: str | None, path: str) -> str | None:
    """Returns the compression of an output: the given one, or that of the suffix of a single file; None for none.

    ``path`` is that of a single file, "" for a folder.

    Raises: InvalidConnector: the compression is unknown, or a single file has another suffix.
    """
    of_path = next((kind for kind, suffix in SUFFIXES.items() if name_of(path).endswith(f".{suffix}")), None)
    if compression is None:
        return of_path
    if compression not in SUFFIXES:
        raise InvalidConnector(connector, f"compression is {compression!r}", f"Give one of {', '.join(SUFFIXES)}.")
    if path and of_path != compression:
        problem = f"compression={compression!r} does not fit the name {path!r}, by which readers decompress the file"
        raise InvalidConnector(connector, problem, f"Name the file {name_of(path)}.{SUFFIXES[compression]}.")
    return compression


class CompressedFormat:
    """Format of part files that are compressed."""

    def __init__(self, rows_format: RowsFormat, compression: str) -> None:
        self._format = rows_format
        self._compression = compression
        self.suffix = f"{rows_format.suffix}.{SUFFIXES[compression]}"

    def start(self, file: OutputFile) -> CompressedRows:
        """Begins a part file."""
        compressed = CompressedFile(file, self._compression)
        return CompressedRows(self._format.start(compressed), compressed)

    def join(self, paths: Sequence[str], file: OutputFile) -> None:
        """Writes the rows of part files into one compressed file; raises what the format of the rows raises."""
        compressed = CompressedFile(file, self._compression)
        self._format.join(paths, compressed)
        compressed.finish()


class CompressedFile:
    """Output file that compresses what is written. Its owner publishes the file behind it."""

    def __init__(self, file: OutputFile, compression: str) -> None:
        self.size_bytes = 0  # in the file behind it, as far as it tells
        self._file = file
        self._stream = _compressor(compression)

    def write(self, data: bytes) -> int:
        """Appends data."""
        self._pass_on(self._stream.compress(data))
        return len(data)

    def finish(self) -> None:
        """Ends the compressed stream."""
        self._pass_on(self._stream.flush())

    def publish(self, final_path: str) -> str:
        """See ``OutputFile``."""
        return self._file.publish(final_path)

    def discard(self) -> None:
        """See ``OutputFile``."""
        self._file.discard()

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._file.write(data)
            self.size_bytes = self._file.size_bytes


class CompressedRows:
    """Part file whose text is compressed."""

    def __init__(self, rows_file: RowsFile, file: CompressedFile) -> None:
        self._rows_file = rows_file
        self._file = file
        self.layout = getattr(rows_file, "layout", Layout())

    @property
    def gathered_rows(self) -> int:
        """See ``RowsFile``."""
        return self._rows_file.gathered_rows

    def rows(self, rows: list[Any]) -> None:
        """See ``RowsFile``."""
        self._rows_file.rows(rows)

    def columns(self, batch: RecordBatch) -> None:
        """See ``RowsFile``."""
        self._rows_file.columns(batch)

    def flush(self) -> None:
        """See ``RowsFile``."""
        self._rows_file.flush()

    def finish(self) -> None:
        """Ends the rows, then the compressed stream."""
        self._rows_file.finish()
        self._file.finish()

    def abandon(self) -> None:
        """See ``RowsFile``."""
        self._rows_file.abandon()


class StreamCompressor(Protocol):
    """Compressor of one stream, as ``zlib`` has it."""

    def compress(self, data: bytes, /) -> bytes:
        """Takes data; returns what is compressed so far."""

    def flush(self) -> bytes:
        """Ends the stream; returns its rest."""


def _compressor(compression: str) -> StreamCompressor:
    if compression == "gzip":
        return zlib.compressobj(6, zlib.DEFLATED, GZIP_WINDOW)
    if compression == "bz2":
        return bz2.BZ2Compressor()
    if compression == "xz":
        return lzma.LZMACompressor()
    return _ArrowCompressor(compression)


class _ArrowCompressor:
    """zstd or the frames of LZ4, by the codecs that Arrow brings."""

    def __init__(self, compression: str) -> None:
        import pyarrow  # Arrow takes long to load

        self._taken = _Taken()
        self._stream = pyarrow.CompressedOutputStream(pyarrow.PythonFile(self._taken, mode="w"), compression)

    def compress(self, data: bytes) -> bytes:
        self._stream.write(data)
        return self._taken.take()

    def flush(self) -> bytes:
        self._stream.close()
        return self._taken.take()


class _Taken:
    """File object for Arrow that holds what was written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Does nothing: there is nothing after it."""

    def close(self) -> None:
        """Does nothing: what was written may still be taken."""

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken
