"""Content of part files, decompressed by the suffix of their names."""

from __future__ import annotations

import io
from typing import Any

from clonos.connectors.filesystem.byte_feed import decompressed
from clonos.connectors.filesystem.file_splits import is_compressed
from clonos.connectors.filesystem.input_files import open_input


def open_part(path: str) -> Any:
    """Opens a part file for reading, with a buffer; a context manager.

    Raises: OSError: it cannot be opened. ``DAMAGED`` of ``byte_feed`` is raised by reading what cannot be decompressed.
    """
    file = open_input(path)
    return io.BufferedReader(file if not is_compressed(path) else _Decompressed(path, file))


class _Decompressed(io.RawIOBase):
    """Decompressed bytes of a file, which is closed with them."""

    def __init__(self, path: str, file: Any) -> None:
        self._file = file
        self._stream = decompressed(path, file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()
