"""Results of joins in columns: those of the left side, those of the right side, and the timestamp of the result.

A column of the right side that has the name of a left one gets the suffix ``_right``, as Polars has it. The columns of
a side that a result lacks are null; that this side is None in rows follows from its key, which is null too. Records
whose key is null themselves leave in batches that say which sides there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy
import pyarrow

from clonos.operators.columnar.row_forms import JOIN_TIME, PairForm, SideForm, form_of, metadata_of
from clonos.operators.columnar.running.stored_keys import plain_records
from clonos.operators.event_time.timestamps import NANOSECONDS_PER_MICROSECOND

RIGHT_SUFFIX: Final = "_right"
LEFT_SUFFIX: Final = "_left"
"""Suffix of a left column that has the name of the timestamps of the results."""

INSTANT: Final = pyarrow.timestamp("us", "UTC")
MISSING: Final = -1
"""In place of the number of a row: the result has none."""


class JoinResults:
    """Maker of the batches of results of one join."""

    def __init__(self, keys: tuple[Sequence[str], Sequence[str]], may_lack: tuple[bool, bool], has_time: bool) -> None:
        """Creates it for the key columns of both sides. ``may_lack``: a result may be without this side."""
        self._keys, self._may_lack, self._has_time = keys, may_lack, has_time
        self._schemas: dict[Any, Any] = {}

    def batches(self, left: Any, right: Any, has: Sequence[Any], times: Any) -> Iterator[Any]:
        """Yields the results of rows of both sides, in their order.

        ``left`` and ``right`` have a row of nulls where a result lacks the side.
        ``has`` tells for each side where there is a record, None for everywhere. ``times``: in nanoseconds.
        """
        count = len(times)
        is_doubtful = self._is_doubtful(left, has[0], 0) | self._is_doubtful(right, has[1], 1)
        if not is_doubtful.any():
            yield self._batch(left, right, times, (None, None))
            return
        states = sum((1 if each is None else each.astype(int)) << place for place, each in enumerate(has))
        states = numpy.broadcast_to(numpy.where(is_doubtful, states, 0), count)
        bounds = [0, *(numpy.flatnonzero(numpy.diff(states)) + 1).tolist(), count]
        for start, end in pairwise(bounds):
            state = int(states[start])
            parts = [each.slice(start, end - start) for each in (left, right)]
            known = (bool(state & 1), bool(state & 2)) if state else (None, None)
            yield self._batch(parts[0], parts[1], times[start:end], known)

    def _is_doubtful(self, rows: Any, has: Any, place: int) -> Any:
        """Returns which records have a side whose key is null."""
        if not self._may_lack[place]:
            return numpy.False_
        key = rows.column(self._keys[place][0])
        if key.null_count == (0 if has is None else len(has) - int(has.sum())):
            return numpy.False_
        is_null = key.is_null().to_numpy(zero_copy_only=False)
        return is_null if has is None else is_null & has

    def _batch(self, left: Any, right: Any, times: Any, known: tuple[bool | None, bool | None]) -> Any:
        schemas = left.schema, right.schema
        cached = self._schemas.get(known)
        if cached is None or cached[0] != schemas:
            cached = self._schemas[known] = schemas, self.schema(schemas, known)
        columns = [*left.columns, *right.columns]
        if self._has_time:
            columns.append(pyarrow.array(times // NANOSECONDS_PER_MICROSECOND).view(INSTANT))
        return pyarrow.RecordBatch.from_arrays(columns, schema=cached[1])

    def schema(self, schemas: Sequence[Any], known: tuple[bool | None, bool | None]) -> Any:
        """Returns the schema of results; ``known`` says which sides they have, None where the key says it."""
        taken = {JOIN_TIME} if self._has_time else set()
        forms: list[SideForm] = []
        fields: list[Any] = []
        for place, (schema, suffix) in enumerate(zip(schemas, (LEFT_SUFFIX, RIGHT_SUFFIX), strict=True)):
            names = []
            for field in schema:
                name = field.name
                while name in taken:
                    name += suffix
                taken.add(name)
                names.append(name)
                fields.append(pyarrow.field(name, field.type))
            present = names[schema.names.index(self._keys[place][0])]
            is_by_key = self._may_lack[place] and known[place] is None
            forms.append(
                SideForm(
                    tuple(names),
                    tuple(schema.names),
                    form_of(schema),
                    present if is_by_key else "",
                    is_missing=known[place] is False,
                )
            )
        if self._has_time:
            fields.append(pyarrow.field(JOIN_TIME, INSTANT))
        return pyarrow.schema(fields, metadata_of(PairForm(*forms)))


def schema_of_results(
    schemas: tuple[Any, Any],
    keys: tuple[Sequence[str], Sequence[str]],
    may_lack: tuple[bool, bool] | None,
    has_time: bool,
) -> Any:
    """Returns the columns of the results of a join of two sides. ``may_lack``: None if results have the left side
    alone."""
    left, right = map(plain_records, schemas)
    if may_lack is None:
        return left
    return JoinResults(keys, may_lack, has_time).schema((left, right), (None, None))


def taken(rows: Any, places: Any) -> Any:
    """Returns rows of a batch by their places, with nulls where a place is ``MISSING``."""
    is_missing = places < 0
    if not is_missing.any():
        return rows.take(pyarrow.array(places))
    return rows.take(pyarrow.array(places, mask=is_missing))


def nulls(schema: Any, count: int) -> Any:
    """Returns rows of nulls."""
    return pyarrow.RecordBatch.from_arrays([pyarrow.nulls(count, field.type) for field in schema], schema=schema)
