"""Reads a source to its end, in one go or with a new reader after each piece."""

from collections.abc import Iterator, Sequence
from itertools import chain, cycle
from typing import Any

from clonos.core.values.column_rows import rows_of_columns
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed, Source, SplitReader


def read_all(source: Source, parallelism: int = 2) -> list[Any]:
    """Reads all records, split by split."""
    return list(chain.from_iterable(read_split(source.reader(), split) for split in source.splits(parallelism)))


def rows_and_errors(source: Source) -> tuple[list[Any], list[str]]:
    """Reads all rows, and what is wrong with the records that are none."""
    rows: list[Any] = []
    for split in source.splits(1):
        reader = source.reader()
        reader.open(split, None)
        while (found := reader.read(1_000)) is not None:
            rows += found if isinstance(found, Sequence) else rows_of_columns(found)
        reader.close()
    errors = [str(row.error) for row in rows if type(row) is MalformedRecord]
    return [row for row in rows if type(row) is not MalformedRecord], errors


def read_split(reader: SplitReader, split: bytes, mark: bytes | None = None, records_max: int = 1_000) -> list[Any]:
    """The records of one split after a mark."""
    return [row for some in _chunks(reader, split, mark, records_max) for row in as_rows(some)]


def read_raw(source: Source, split: bytes, mark: bytes | None = None) -> list[Any]:
    """The rows of one split after a mark, malformed ones included."""
    return [row for some in _chunks(source.reader(), split, mark, 100) for row in some]


def _chunks(reader: SplitReader, split: bytes, mark: bytes | None, records_max: int) -> Iterator[Any]:
    reader.open(split, mark)
    try:
        while (some := reader.read(records_max)) is not None:
            yield some
    finally:
        reader.close()


def read_piecewise(source: Source, split: bytes, sizes: list[int]) -> Iterator[list[Any]]:
    """Reads the same records, each piece by a new reader at the mark of the previous one."""
    mark: bytes | None = None
    for size in cycle(sizes):
        reader = source.reader()
        reader.open(split, mark)
        some = reader.read(size)
        mark = reader.mark()
        reader.close()
        if some is None:
            return
        assert 0 < len(as_rows(some)) <= size
        yield as_rows(some)


def as_rows(some: Any) -> list[Any]:
    """A batch of columns as rows; raises what is the matter with a malformed record."""
    for row in some if type(some) is PartlyMalformed else ():
        if type(row) is MalformedRecord:
            raise row.error
    return some if isinstance(some, list) else some.to_pylist()


Marks = dict[bytes, bytes | None]


def begun(source: Any, parallelism: int = 1) -> Marks:
    """The splits of a job that starts."""
    return dict.fromkeys(source.splits(parallelism))


def taken(source: Any, marks: Marks | None = None, sizes: tuple[int, ...] = (1_000,)) -> list[Any]:
    """What an unbounded source has now, each piece by a new reader at the mark of the one before."""
    marks = begun(source) if marks is None else marks
    found: list[Any] = []
    for split in marks:
        for size in cycle(sizes):
            reader = source.reader()
            reader.open(split, marks[split])
            some = reader.read(size)
            marks[split] = reader.mark()
            reader.close()
            if some is None or not len(some):
                break
            found += rows_of_columns(some)
    return found
