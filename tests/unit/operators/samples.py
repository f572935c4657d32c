"""Sources and sinks of the tests of operators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow

from clonos.operators.connector_contract import WriterContext
from tests.unit.operators.driver import Given


class ColumnsGiven:
    """Dicts, read as columns: task i of n has every n-th."""

    is_columnar = True

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self.given = Given(records)

    def splits(self, parallelism: int) -> list[bytes]:
        return self.given.splits(parallelism)

    def reader(self) -> ColumnsReader:
        return ColumnsReader(self.given)

    def column_schema(self) -> Any:
        return pyarrow.RecordBatch.from_pylist(self.given.records).schema if self.given.records else None


class UnknownGiven(ColumnsGiven):
    """The same, of which the plan does not know the columns."""

    def column_schema(self) -> Any:
        return None


class ColumnsReader:
    """Reads what the reader of rows would, as a RecordBatch."""

    def __init__(self, given: Given) -> None:
        self.rows = given.reader()

    def open(self, split: bytes, mark: bytes | None) -> None:
        self.rows.open(split, mark)

    def read(self, records_max: int) -> Any:
        rows = self.rows.read(records_max)
        return None if rows is None else pyarrow.RecordBatch.from_pylist(rows)

    def mark(self) -> bytes:
        return self.rows.mark()

    def close(self) -> None:
        self.rows.close()


class Files:
    """A transactional sink that keeps what was committed: ``committed[checkpoint]``."""

    def __init__(self) -> None:
        self.committed: dict[int, list[str]] = {}

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        self.committed = {}

    def writer(self) -> FilesWriter:
        return FilesWriter()

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        self.committed[checkpoint] = [line for part in parts for line in part.decode().splitlines()]


class FilesWriter:
    """A part is the lines of its rows."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def open(self, context: WriterContext) -> None:
        self.name = f"{context.task_name} of {context.job_id}"

    def write(self, rows: list[Any]) -> None:
        self.lines += [repr(row) for row in rows]

    def write_columns(self, batch: Any) -> None:
        self.lines += [f"columns {row!r}" for row in batch.to_pylist()]

    def prepare(self, checkpoint: int) -> bytes | None:
        lines, self.lines = self.lines, []
        return "\n".join(lines).encode() if lines else None

    def close(self) -> None:
        pass


class Endless:
    """Source that never ends: 0, 1, 2, ..."""

    def splits(self, parallelism: int) -> list[bytes]:
        return [b"the only one"]

    def reader(self) -> EndlessReader:
        return EndlessReader()


class EndlessReader:
    """Its marks are the next number."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        self.next = int(mark or b"0")

    def read(self, records_max: int) -> list[int]:
        chunk = list(range(self.next, self.next + records_max))
        self.next += records_max
        return chunk

    def mark(self) -> bytes:
        return str(self.next).encode()

    def close(self) -> None:
        pass
