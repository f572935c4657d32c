"""Batches of Parquet files: what Arrow raises for a damaged file becomes one exception, and each batch is validated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow
import pyarrow.parquet

from clonos.connectors.filesystem.input_files import open_input
from clonos.connectors.object_stores.urls import is_url
from clonos.core.values.columns import validate_columns


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


def open_file(path: str) -> Any:
    """Opens a ``pyarrow.parquet.ParquetFile``, of which a reader has only the present row group in memory.

    Raises: FormatUnreadable, OSError: see ``reading``.
    """
    with reading():
        return pyarrow.parquet.ParquetFile(
            arrow_input(path), pre_buffer=False
        )  # which would keep all columns that are read


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
