"""Steps without state: map, filter, flat_map on rows, map_batches on columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from clonos.core.errors import JobError
from clonos.operators.connect import RecordBatch
from clonos.operators.operator import Operator


class Map(Operator):
    """One result a record."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def rows(self, rows: list[Any]) -> None:
        results: list[Any] = []
        # extend keeps what came before an exception, so that no record is run twice.
        self.guard.run(lambda records: results.extend(map(self._function, records)), rows)
        if results:
            self.out.rows(results)


class Filter(Operator):
    """Keeps the records for which the predicate is true."""

    def __init__(self, predicate: Callable[[Any], object]) -> None:
        self._predicate = predicate

    def rows(self, rows: list[Any]) -> None:
        results: list[Any] = []
        self.guard.run(lambda records: results.extend(filter(self._predicate, records)), rows)
        if results:
            self.out.rows(results)


class FlatMap(Operator):
    """Any number of results a record. A record that raises gives none, however far it had come."""

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        self._function = function

    def rows(self, rows: list[Any]) -> None:
        results: list[Any] = []
        if self.guard.routes:
            pieces: list[list[Any]] = []
            self.guard.run(lambda records: pieces.extend(map(list, map(self._function, records))), rows)
            results.extend(chain.from_iterable(pieces))
        else:
            self.guard.run(lambda records: results.extend(self._results(records)), rows)
        if results:
            self.out.rows(results)

    def _results(self, records: Iterator[Any]) -> Iterator[Any]:
        return chain.from_iterable(map(self._function, records))


class NoRecordBatch(JobError):
    """A function of ``map_batches`` returned something else than a batch."""

    def __init__(self, type_name: str) -> None:
        super().__init__(type_name)
        self.type_name = type_name

    def __str__(self) -> str:
        return (
            f"a function of map_batches returned a {self.type_name}, not a pyarrow.RecordBatch."
            " Return one batch for each; an empty one (batch.slice(0, 0)) where nothing is left."
        )


class MapBatches(Operator):
    """A RecordBatch for a RecordBatch. What raises, or is routed, is the batch."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def rows(self, rows: list[Any]) -> None:
        raise AssertionError("rows reached map_batches: the plan should have been refused")

    def columns(self, batch: RecordBatch) -> None:
        self.guard.run(self._run, [batch])

    def _run(self, batches: Iterator[Any]) -> None:
        import pyarrow  # where there are batches, it is loaded

        results = list(map(self._function, batches))
        for result in results:
            if not isinstance(result, pyarrow.RecordBatch):
                raise NoRecordBatch(type(result).__qualname__)
        for result in results:
            if result.num_rows:
                self.out.columns(result)
