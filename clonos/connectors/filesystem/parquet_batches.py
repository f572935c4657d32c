"""Batches of Parquet files: what a damaged file makes Arrow raise is one exception, and what is read is validated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow
import pyarrow.parquet

from clonos.core.values.columns import validate_columns


class ParquetUnreadable(Exception):
    """The bytes of a file are no Parquet. Caught where it is known whose file it is."""


@contextmanager
def reading() -> Iterator[None]:
    """Around all that reads bytes of a file. ParquetUnreadable; OSError: the file system's."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        raise ParquetUnreadable(str(error)) from error
    except (pyarrow.ArrowException, ValueError) as error:
        raise ParquetUnreadable(str(error) or type(error).__name__) from error


def open_file(path: str) -> Any:
    """A ``pyarrow.parquet.ParquetFile``. ParquetUnreadable, OSError."""
    with reading():
        return pyarrow.parquet.ParquetFile(path)


def next_batch(batches: Iterator[Any]) -> Any | None:
    """The next one of ``iter_batches``, every value of it valid. ParquetUnreadable, OSError."""
    with reading():
        batch = next(batches, None)
        if batch is not None:
            validate_columns(batch)
        return batch


def read_batches(path: str) -> Iterator[Any]:
    """All batches of a file. ParquetUnreadable, OSError."""
    with open_file(path) as file:
        batches = file.iter_batches(use_threads=False)
        while (batch := next_batch(batches)) is not None:
            yield batch
