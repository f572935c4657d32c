"""Opens input files by path or URL, and tells versions of a file apart."""

from __future__ import annotations

import io
import os
from typing import Any

from clonos.connectors.connector_errors import InputChanged
from clonos.connectors.filesystem.file_splits import FileStatus
from clonos.connectors.object_stores.object_input import ObjectInput, stamp_ns
from clonos.connectors.object_stores.urls import is_url


def open_input(path: str) -> Any:
    """Opens a file or an object for reading, without a buffer.

    Raises: OSError: it cannot be opened.
    """
    return ObjectInput(path) if is_url(path) else open(path, "rb", buffering=0)


def status_of(file: Any) -> FileStatus:
    """Returns the status of an open file at this moment, or of an object when it was opened."""
    if isinstance(file, ObjectInput):
        return FileStatus(file.status.size_bytes, stamp_ns(file.status))
    status = os.fstat(file.fileno())
    return FileStatus(status.st_size, status.st_mtime_ns)


def object_replaced(path: str) -> InputChanged:
    """Creates the error for an object that was replaced while it was open."""
    return InputChanged(path, "the version that was opened", "another version")


def open_buffered(path: str) -> io.BufferedReader:
    """Opens a file or an object for reading with a buffer.

    Raises: OSError: it cannot be opened.
    """
    return io.BufferedReader(open_input(path))
