"""Sink of the queries: keeps results, or sums of them, in files of the tasks; the files of checkpoints are the result.

It costs a copy of what it gets. The comparison with DuckDB happens when the job has ended.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.queries import Check, Query

Row = tuple[Any, ...]
RANKED: Final = ("auction", "rank", "price")
"""Columns of a ranked result that are compared."""

BY_KEY: Final = frozenset({Check.LAST, Check.ONE_OF_TIES})


@dataclass
class ResultSink:
    """Transactional sink of a query's results. ``parts``: the committed files, in the order of checkpoints."""

    query: Query
    folder: Path
    is_columnar = True
    parts: list[Path] = field(default_factory=list)

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Removes earlier results."""
        self.parts.clear()

    def writer(self) -> ResultWriter:
        """Makes the writer of a task."""
        return ResultWriter(self.query, self.folder)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Takes the files of a checkpoint, once."""
        self.parts += [path for part in parts if (path := Path(part.decode())) not in self.parts]


class ResultWriter:
    """Writer that keeps batches, and writes them to a file at the barrier."""

    def __init__(self, query: Query, folder: Path) -> None:
        self._query = query
        self._folder = folder
        self._name = ""
        self._rows: list[Row] = []
        self._last: dict[Any, Any] = {}
        self._batches: list[pa.RecordBatch] = []
        self._sums: list[Any] = []

    def open(self, context: Any) -> None:
        """Takes the name of the incarnation."""
        self._name = f"{context.task_name.replace('/', '-')}-{context.generation}-{context.incarnation}"

    def write(self, rows: list[Any]) -> None:
        """Keeps a batch of rows."""
        if self._query.check is Check.SUMS:
            self._sums = added(self._sums, sums_of_rows(rows))
        elif self._query.check in BY_KEY:
            key = 1 if self._query.is_ranked else self._query.key
            self._last.update([(row[0], row) for row in rows] if key == 1 else [(row[:key], row) for row in rows])
        else:
            self._rows += rows

    def write_columns(self, batch: pa.RecordBatch) -> None:
        """Keeps a batch of columns."""
        if self._query.check is Check.SUMS:
            self._sums = added(self._sums, sums_of_columns(batch))
        else:
            self._batches.append(batch.select(RANKED) if self._query.is_ranked else batch)

    def prepare(self, checkpoint: int) -> bytes | None:
        """Writes what has come since the last call; returns the name of the file."""
        gathered = (self._rows + list(self._last.values()), self._sums)
        if not any(gathered) and not self._batches:
            return None
        path = self._folder / f"{self._name}-{checkpoint}"
        with path.open("wb") as file:
            pickle.dump(gathered, file, protocol=pickle.HIGHEST_PROTOCOL)
            pickle.dump([batch.schema for batch in self._batches[:1]], file)
            if self._batches:
                with pa.ipc.new_stream(file, self._batches[0].schema) as stream:
                    for batch in self._batches:
                        stream.write_batch(batch)
        self._rows, self._last, self._batches, self._sums = [], {}, [], []
        return str(path).encode()

    def close(self) -> None:
        """Does nothing, because no file is open."""


@dataclass
class Results:
    """Results of a run: rows in the order in which each key has them, batches likewise, or sums."""

    rows: list[Any] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)

    @staticmethod
    def read(parts: list[Path]) -> Results:
        """Reads the files of a sink."""
        found = Results()
        for path in parts:
            with path.open("rb") as file:
                rows, sums = pickle.load(file)  # noqa: S301  # written by our own task
                found.rows += rows
                found.sums = added(found.sums, sums)
                if pickle.load(file):  # noqa: S301
                    found.batches += list(pa.ipc.open_stream(file))
        return found

    def ranked(self) -> list[Row]:
        """Returns the last list of each key as rows of the key, the rank and the price."""
        last = dict(self.rows)
        return [(key, place, bid["price"]) for key, bids in last.items() for place, bid in enumerate(bids, 1)]


def added(sums: list[Any], others: list[Any]) -> list[Any]:
    """Adds sums column by column; None is no number."""
    if not sums or not others:
        return sums or others
    return [None if one is None else one + other for one, other in zip(sums, others, strict=True)]


def sums_of_rows(rows: list[Row]) -> list[Any]:
    """Returns the number of rows and, for each column, the sum of its numbers or the length of its texts."""
    return [len(rows), *(_sum(column) for column in zip(*rows, strict=True))]


def _sum(column: tuple[Any, ...]) -> Any:
    first = column[0]
    if isinstance(first, str):
        return len("".join(column))
    return None if hasattr(first, "year") else sum(column)


def sums_of_columns(batch: pa.RecordBatch) -> list[Any]:
    """Returns the same of a batch."""
    return [batch.num_rows, *_column_sums(batch)]


def _column_sums(batch: pa.RecordBatch) -> Iterator[Any]:
    for column in batch.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.utf8_length(column)
        elif pa.types.is_temporal(column.type):
            yield None
            continue
        yield pc.sum(column, min_count=0).as_py()
