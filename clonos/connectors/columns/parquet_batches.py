"""Batches of Parquet files: what Arrow raises for a damaged file becomes one exception, and each batch is validated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pyarrow
import pyarrow.parquet

from clonos.connectors.filesystem.input_files import open_input
from clonos.connectors.object_stores.urls import is_url
from clonos.core.values.columns import validate_columns

FOOTERS_MAX: Final = 4
"""Files whose metadata a process keeps."""


class FormatUnreadable(Exception):
    """The bytes of a file are not of its format; the caller adds the path."""


@contextmanager
def reading() -> Iterator[None]:
    """Wraps code that reads a Parquet file.

    Raises: FormatUnreadable: the bytes are not Parquet. OSError: the file system fails.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        raise FormatUnreadable(str(error)) from error
    except (pyarrow.ArrowException, ValueError) as error:
        raise FormatUnreadable(str(error) or type(error).__name__) from error


def arrow_input(path: str) -> Any:
    """Opens a file or an object for Arrow.

    Raises: OSError: it cannot be opened.
    """
    return pyarrow.PythonFile(open_input(path), mode="r") if is_url(path) else pyarrow.OSFile(path)


def open_file(path: str, metadata: Any = None, long_instants_unit: str = "us") -> Any:
    """Opens a ``pyarrow.parquet.ParquetFile``, of which a reader has only the present row group in memory.

    ``metadata``: that of the file, if it is known; otherwise it is read. ``long_instants_unit``: that in which instants
    of 96 bits are read.

    Raises: FormatUnreadable, OSError: see ``reading``.
    """
    with reading():
        # ``pre_buffer`` would retain all columns that are read. Instants of 96 bits reach beyond nanoseconds of
        # 64 bits; Spark writes microseconds into them.
        return pyarrow.parquet.ParquetFile(
            arrow_input(path), metadata=metadata, pre_buffer=False, coerce_int96_timestamp_unit=long_instants_unit
        )


def open_known(path: str, size_bytes: int, mtime_ns: int) -> Any:
    """Opens a file whose size and time of modification the caller has just looked up, as ``open_file`` does.

    A file of many row groups is opened for each of them, and its metadata is parsed once: that takes 20 us per row
    group of 22 columns.
    """
    return open_file(path, metadata_of(path, size_bytes, mtime_ns))


@lru_cache(maxsize=FOOTERS_MAX)
def metadata_of(path: str, size_bytes: int, mtime_ns: int) -> Any:
    """Returns the metadata of a file that has this size and time of modification.

    Raises: FormatUnreadable, OSError: see ``reading``.
    """
    with open_file(path) as file:
        return file.metadata


def next_batch(batches: Iterator[Any]) -> Any | None:
    """Returns the next batch of ``iter_batches`` with validated values, None at the end.

    Raises: FormatUnreadable, OSError: see ``reading``.
    """
    with reading():
        batch = next(batches, None)
        if batch is not None:
            validate_columns(batch)
        return batch


def read_batches(path: str) -> Iterator[Any]:
    """Yields all batches of a file.

    Raises: FormatUnreadable, OSError: see ``reading``.
    """
    with open_file(path) as file:
        batches = file.iter_batches(use_threads=False)
        while (batch := next_batch(batches)) is not None:
            yield batch
