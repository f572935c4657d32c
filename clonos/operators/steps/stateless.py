"""Stateless steps: map, filter and flat_map on rows, map_batches on columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

from clonos.core.values.copying import apart
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.row_forms import ColumnsLost, without_form
from clonos.operators.event_time.marks import spread
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import Operator, Times, without
from clonos.operators.steps.data_frames import as_batch, as_wanted, call_with_frame, frame_wanted
from clonos.operators.steps.function_results import (
    NEVER_RESULTS,
    checked,
    checked_items,
    close_call,
    gives_items,
    refusal,
)
from clonos.operators.user_errors import RAISED


class Map(Operator):
    """One result per record."""

    called_with = (("record",),)
    runs_user_code = True
    is_per_record = True
    is_one_to_one = True

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def rows(self, rows: list[Any], times: Times = None) -> None:
        results, failed = self.guard.each(self._function, rows)
        if not results:
            return
        if type(results[0]) in NEVER_RESULTS:
            self._refuse(results, rows, failed)
        self.out.rows(results, without(times, failed) if times and failed else times)

    def _refuse(self, results: list[Any], rows: list[Any], failed: list[int]) -> None:
        for result in results[1:]:
            close_call(result)
        index = next(index for index in range(len(rows)) if index not in failed)
        self.guard.caught(refusal("map", results[0]), rows[index], index)


class Filter(Operator):
    """Selection of the records for which the predicate is true."""

    called_with = (("record",),)
    runs_user_code = True
    is_per_record = True
    selects_rows = True
    passes_records = True

    def __init__(self, predicate: Callable[[Any], object]) -> None:
        self._predicate = predicate

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if times is not None:
            self._timed_rows(rows, times)
            return
        results: list[Any] = []
        self.guard.run(lambda records: self._consume(records, results), rows)
        if results:
            self.out.rows(results)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        predicate = self._predicate
        for record in records:
            if checked("filter", predicate(record)):
                results.append(record)
            break
        if not self.guard.routes:
            results += [record for record in records if predicate(record)]
            return
        for record in records:
            if predicate(record):
                results.append(record)

    def _timed_rows(self, rows: list[Any], times: Sequence[int]) -> None:
        is_chosen: list[bool] = []
        for index in self.guard.run(lambda records: self._choose(records, is_chosen), rows):
            is_chosen.insert(index, False)  # its predicate raised
        results = list(compress(rows, is_chosen))
        if results:
            self.out.rows(results, list(compress(times, is_chosen)))

    def _choose(self, records: Iterator[Any], is_chosen: list[bool]) -> None:
        predicate = self._predicate
        for record in records:
            is_chosen.append(bool(checked("filter", predicate(record))))
            break
        if not self.guard.routes:
            is_chosen += [True if predicate(record) else False for record in records]  # noqa: SIM210  bool() is slow
            return
        for record in records:
            is_chosen.append(bool(predicate(record)))


class FlatMap(Operator):
    """Any number of results per record; none if the function raises, even after some results."""

    called_with = (("record",),)
    runs_user_code = True
    is_per_record = True

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        self._function = function
        self._gives_items = gives_items(function)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        results: list[Any] = []
        if times is None:
            self.guard.run(lambda records: self._consume(records, results), rows)
        else:
            ends: list[int] = []
            for index in self.guard.run(lambda records: self._consume_timed(records, results, ends), rows):
                ends.insert(index, ends[index - 1] if index else 0)  # its function raised
            times = spread(times, ends)
        if results:
            # What the function gives twice is two records, and a step in this task may change each of them.
            self.out.rows(apart(results) if self.out.changes_rows else results, times)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        function, extend = self._function, results.extend
        if self.guard.routes:
            self._consume_one_by_one(records, results)
        elif self._gives_items:
            for record in records:
                extend(function(record))
        else:
            for record in records:
                items = function(record)
                extend(items if items.__class__ is list else checked_items(items))  # most functions return lists

    def _consume_timed(self, records: Iterator[Any], results: list[Any], ends: list[int]) -> None:
        """Appends the results, and for each record how many there are up to it."""
        function, extend, end = self._function, results.extend, ends.append
        try:
            for record in records:
                items = function(record)
                extend(items if items.__class__ is list else checked_items(items))
                end(len(results))
        except RAISED:
            del results[ends[-1] if ends else 0 :]
            raise

    def _consume_one_by_one(self, records: Iterator[Any], results: list[Any]) -> None:
        function, extend = self._function, results.extend
        for record in records:
            whole = len(results)
            try:
                extend(checked_items(function(record)))
            except RAISED:
                del results[whole:]
                raise


class MapBatches(Operator):
    """One batch per batch. If the function raises, the whole batch fails or is routed."""

    called_with = (("batch",),)
    runs_user_code = True
    is_per_record = True
    requires_columns = True
    emits_columns = True
    takes_schema = True

    @classmethod
    def facts(cls, given: KnownInputs, function: Callable[[Any], Any], declared: Any | None) -> Facts:
        """Returns those for ``function``. ``declared``: the schema of its results, None for any."""
        make = partial(cls, function, frame_wanted(function), declared)
        return replace(facts_of(make, given, function), columns=declared)

    def __init__(self, function: Callable[[Any], Any], wanted: str, declared: Any | None) -> None:
        """Creates the operator.

        ``wanted`` is the frame that the function gets (``frame_wanted``); ``declared`` the schema of its results, None
        for any.
        """
        self._function = function
        self._wanted = wanted
        self._declared = None
        if declared is not None:
            from clonos.operators.columnar.fitting import PlannedColumns  # loads pyarrow

            self._declared = PlannedColumns(declared, declared.names)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        raise ColumnsLost(self.guard.step)

    def columns(self, batch: RecordBatch) -> None:
        results, _ = self.guard.each(self._one, [batch])
        for result in results:
            if self._declared is not None and result.num_rows:
                result = self._declared.of(result, self.guard)
            if result.num_rows:
                self.out.columns(without_form(result))

    def _one(self, batch: RecordBatch) -> Any:
        frame = as_wanted(batch, self._wanted)
        return as_batch(call_with_frame(self._function, self._wanted, frame))
