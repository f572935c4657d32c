"""Frames per key: a function that gets the records of a window of a key as one frame.

The step in front gathers the records and gives them as a list: the value ``records`` of a ``WindowResult``, or a column
of lists. So this step has no state, and a frame that is made again after a failure is equal. Only code for columns
imports this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
from pyarrow import types

from clonos.core.model.errors import JobError
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.columnar.fitting import PlannedColumns
from clonos.operators.columnar.plain_columns import ColumnRepeated
from clonos.operators.columnar.row_forms import (
    RECORDS,
    TIME,
    RecordForm,
    keys_of_windows,
    metadata_of,
    rows_of,
    windows_of,
)
from clonos.operators.columnar.window_columns import INSTANT
from clonos.operators.event_time.timestamps import NANOSECONDS_PER_MICROSECOND, TimestampColumn
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import Operator, Times
from clonos.operators.row_errors import RecordError
from clonos.operators.steps.data_frames import (
    PANDAS,
    as_batch,
    as_wanted,
    call_with_frame,
    frame_wanted,
    parameters_of,
)
from clonos.operators.user_errors import RAISED
from clonos.operators.windows.window_results import Window

ARGUMENTS: Final = ("key", "window", "frame")
"""Arguments that a function may take: all of them, the key and the frame, or the frame."""


class NoColumns(JobError):
    """A record that is to be in a frame has no fields with names."""

    type_name: str

    def __str__(self) -> str:
        return (
            f"map_frames makes columns of the fields of records, and a record is a {self.type_name}. Make dicts in"
            ' front of the window: map(lambda value: {"value": value}).'
        )


class FieldNotColumn(RecordError):
    """A field of the records of a window makes no column of their frame. The window goes to ``errors=``."""

    field: str
    reason: str
    advice: str

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        problem = f"the field {self.field!r} of the records of a window makes no column of their frame: {self.reason}"
        return f"{problem}. {self.advice} in a map in front of the window."


class Group(NamedTuple):
    """Records of a key that a function gets together, in a form of which the operator makes a frame."""

    key: Any
    window: Window
    records: Any


def arguments_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the arguments that a function is called with, by the number of its parameters without a default."""
    needed = sum(each.default is inspect.Parameter.empty for each in parameters_of(function))
    return {3: ARGUMENTS, 2: (ARGUMENTS[0], ARGUMENTS[2])}.get(needed, ARGUMENTS[2:])


class MapFrames(Operator):
    """One frame for each list of records. The results of a batch leave together."""

    runs_user_code = True
    emits_columns = True
    takes_columns = True

    @classmethod
    def facts(cls, given: KnownInputs, function: Callable[..., Any], declared: Any | None) -> Facts:
        """Returns those for ``function``. ``declared``: the schema of its results, None for any."""
        arguments = arguments_of(function)
        make = partial(cls, function, arguments, frame_wanted(function, len(arguments) - 1), declared)
        return replace(
            facts_of(make, given),
            calls=(UserFunction(function, arguments),),
            timestamp_column=TimestampColumn(TIME) if given.has_times else None,
            columns=None if declared is None else timed_schema(declared, given.has_times),
        )

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[str, ...], wanted: str, declared: Any | None
    ) -> None:
        """Creates the operator.

        ``arguments``: those that the function is called with. ``wanted``: the frame that it gets (``frame_wanted``).
        ``declared``: the schema of its results, None for any.
        """
        self._function, self._arguments, self._wanted = function, arguments, wanted
        self._declared = declared
        self._planned: PlannedColumns | None = None

    def rows(self, rows: list[Any], times: Times = None) -> None:
        groups = [Group(row.key, Window(row.start, row.end), row.value[RECORDS]) for row in rows]
        instants = None if times is None else numpy.array(times, numpy.int64)
        self._pass_on(groups, lambda records: as_wanted(batch_of(records), self._wanted), rows.__getitem__, instants)

    def columns(self, batch: RecordBatch) -> None:
        lists = ListFrames(batch.column(RECORDS), self._wanted)
        groups = list(map(Group, keys_of_windows(batch), windows_of(batch), range(batch.num_rows)))
        self._pass_on(groups, lists.frame, lambda place: rows_of(batch.slice(place, 1))[0], self.time_array(batch))

    def _pass_on(
        self,
        groups: list[Group],
        frame_of: Callable[[Any], Any],
        record_of: Callable[[int], Any],
        times: Any | None,
    ) -> None:
        """Passes on the results of groups. ``record_of`` returns what an error has of the group at a place."""

        def one(group: Group) -> Any:
            given = {"key": group.key, "window": group.window, "frame": frame_of(group.records)}
            return call_with_frame(self._function, self._wanted, *(given[name] for name in self._arguments))

        places = numpy.arange(len(groups))
        results, failed = self.guard.each(one, groups, Blamed(record_of, places))
        places = numpy.delete(places, failed)
        batches, failed = self.guard.each(as_batch, with_joined(results), Blamed(record_of, places))
        places = numpy.delete(places, failed)
        for first, last in equal_schemas(batches):
            part = batches[first] if first == last - 1 else pyarrow.concat_batches(batches[first:last])
            if times is not None:
                counts = [each.num_rows for each in batches[first:last]]
                part = with_times(part, numpy.repeat(times[places[first:last]], counts))
            self._emit(part, times is not None)

    def _emit(self, batch: Any, has_times: bool) -> None:
        if self._declared is not None:
            if self._planned is None:
                self._planned = PlannedColumns(timed_schema(self._declared, has_times), self._declared.names)
            batch = self._planned.of(batch, self.guard)
            if has_times:
                batch = batch.replace_schema_metadata(timed_metadata(batch.schema.names))
        if batch.num_rows:
            self.out.columns(batch)


class Blamed(Sequence[tuple[None, Any]]):
    """Groups at some places as errors have them, made when an error asks."""

    def __init__(self, record_of: Callable[[int], Any], places: Any) -> None:
        self._record_of, self._places = record_of, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        return None, self._record_of(int(self._places[index]))


class ListFrames:
    """Frames of the lists of a column, whose records are structs.

    All of them are parts of one frame, which is made at once. An integer or a bool of pandas has another type in a
    frame with nulls, also within lists and structs: where there may be nulls, each frame is made by itself, so that its
    types do not depend on others.
    """

    def __init__(self, column: Any, wanted: str) -> None:
        self._wanted = wanted
        self._bounds: list[int] = (column.offsets.to_numpy() - column.offsets[0].as_py()).tolist()
        records = column.flatten()
        self._batch = pyarrow.RecordBatch.from_struct_array(records)
        depends = wanted == PANDAS and any(
            types.is_nested(each.type)
            or (each.null_count and (types.is_integer(each.type) or types.is_boolean(each.type)))
            for each in self._batch.columns
        )
        self._whole = None if depends else as_wanted(self._batch, wanted)

    def frame(self, place: int) -> Any:
        """Returns the frame of the list at a place."""
        first, last = self._bounds[place : place + 2]
        if self._whole is None:
            return as_wanted(self._batch.slice(first, last - first), self._wanted)
        if self._wanted == PANDAS:
            return self._whole.iloc[first:last].reset_index(drop=True)
        return self._whole.slice(first, last - first)


def batch_of(records: Sequence[Any]) -> Any:
    """Returns rows as one batch with a column for each field that one of them has, null where another lacks it.

    Raises: NoColumns: a row has no fields with names. FieldNotColumn: the values of a field make no column.
    """
    dicts = [each if type(each) is dict else _fields_of(each) for each in records]
    names = dict.fromkeys(chain.from_iterable(dicts))
    columns = [_column_of(name, [each.get(name) for each in dicts]) for name in names]
    return pyarrow.RecordBatch.from_arrays(columns, list(names))


def _column_of(name: Any, values: list[Any]) -> Any:
    if not isinstance(name, str):
        raise FieldNotColumn(str(name), f"its name is of the type {type(name).__qualname__}", "Give it a str as name")
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        advice = "Give all records a value of one type, and Decimal or str for integers that int64 does not hold,"
        raise FieldNotColumn(name, str(error).rstrip("."), advice) from None


def _fields_of(record: Any) -> dict[str, Any]:
    if isinstance(record, dict):
        return record
    if hasattr(record, "_asdict"):
        return dict(record._asdict())
    if hasattr(type(record), "__dataclass_fields__"):
        return {name: getattr(record, name) for name in type(record).__dataclass_fields__}
    raise NoColumns(type(record).__qualname__)


def with_joined(results: list[Any]) -> list[Any]:
    """Returns results with batches in place of those frames of pandas that can be converted together."""
    found: list[Any] = []
    for shape, run in groupby(results, _shape_of):
        frames = list(run)
        found += frames if shape is None else _converted(frames)
    return found


def _shape_of(frame: Any) -> tuple[Any, ...] | None:
    """Returns what frames of pandas have in common that stay what they are in one frame; None for another frame."""
    if not (type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns") and len(frame)):
        return None
    dtypes = frame.dtypes.tolist()
    if "object" in map(str, dtypes):  # Arrow finds the type of such a column by all of its values
        return None
    return frame.columns.tolist(), dtypes, list(frame.index.names)


def _converted(frames: list[Any]) -> list[Any]:
    """Returns frames of pandas as parts of one batch; as they are if they cannot be converted together."""
    import pandas

    try:
        whole = as_batch(pandas.concat(frames))
    except RAISED:  # the frame that is to blame raises again by itself
        return frames
    bounds = numpy.cumsum([0, *map(len, frames)]).tolist()
    return [whole.slice(first, len(frame)) for first, frame in zip(bounds, frames, strict=False)]


def equal_schemas(batches: list[Any]) -> Iterator[tuple[int, int]]:
    """Yields the bounds of batches that follow each other and have equal columns."""
    first = 0
    for last in range(1, len(batches) + 1):
        if last == len(batches) or not batches[last].schema.equals(batches[last - 1].schema):
            yield first, last
            first = last


def with_times(batch: Any, times: Any) -> Any:
    """Returns a batch with the timestamps of its records.

    Raises: ColumnRepeated: it has a column of this name.
    """
    if TIME in batch.schema.names:
        raise ColumnRepeated(TIME, ", ".join(batch.schema.names))
    timed = batch.append_column(TIME, pyarrow.array(times // NANOSECONDS_PER_MICROSECOND).view(INSTANT))
    return timed.replace_schema_metadata(timed_metadata(timed.schema.names))


def timed_schema(schema: Any, has_times: bool) -> Any:
    """Returns the schema of the results of a function that declares them, with their timestamps if they have these."""
    if not has_times:
        return schema
    return schema.append(pyarrow.field(TIME, INSTANT)).with_metadata(timed_metadata((*schema.names, TIME)))


def timed_metadata(names: Sequence[str]) -> dict[bytes, bytes]:
    """Returns the metadata of columns of which the last one has timestamps, which rows do not have."""
    return metadata_of(RecordForm(tuple(names[:-1])))
