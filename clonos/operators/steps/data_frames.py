"""Frames of other libraries in ``map_batches`` and ``map_frames``: those of pandas, Polars, DuckDB and of whatever else
speaks Arrow's C stream.

A function gets the frame that its parameter is annotated with, by default the ``pyarrow.RecordBatch``. Nothing is
imported before the first batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, get_type_hints

from clonos.core.model.errors import JobError
from clonos.kernels.record_batch import RecordBatch

BATCH: Final = ""
TABLE: Final = "pyarrow.Table"
PANDAS: Final = "pandas.DataFrame"
POLARS: Final = "polars.DataFrame"


class NoFrame(JobError):
    """A function returned something that does not speak Arrow."""

    type_name: str
    advice: str = ""

    def __str__(self) -> str:
        return (
            f"a function of map_batches or map_frames returned a {self.type_name}, which does not speak Arrow."
            " Return a RecordBatch or Table of pyarrow, or a frame of pandas, Polars or DuckDB; an empty one if no"
            f" record is left.{self.advice}"
        )


class IndexUnnamed(JobError):
    """A frame of pandas has times or texts in an index without a name, which no column would hold."""

    type_name: str

    def __str__(self) -> str:
        return (
            f"a function of map_batches or map_frames returned a frame of pandas whose index has {self.type_name} and"
            ' no name. Name it with .rename_axis("at") to have it as a column, or drop it with .reset_index(drop=True).'
        )


class FrameNotAnnotated(JobError):
    """A function uses the batch that it gets as a frame of another library."""

    error: str

    def __str__(self) -> str:
        return (
            f"a function of map_batches or map_frames gets a pyarrow.RecordBatch and raised {self.error}. To get a"
            " frame, annotate its parameter: def function(frame: pandas.DataFrame), polars.DataFrame or pyarrow.Table."
        )


def expected_frame(error: Exception) -> FrameNotAnnotated | None:
    """Returns the error that explains one about the ``pyarrow.RecordBatch`` itself, such as a method that it lacks."""
    if "pyarrow." not in str(error):
        return None
    return FrameNotAnnotated(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)


def call_with_frame(function: Callable[..., Any], wanted: str, *arguments: Any) -> Any:
    """Calls a function with arguments of which one is the frame that it wants.

    Raises: FrameNotAnnotated: it gets a ``pyarrow.RecordBatch`` and uses it as another frame.
    """
    if wanted != BATCH:
        return function(*arguments)
    try:
        return function(*arguments)
    except (AttributeError, TypeError) as error:
        if (explained := expected_frame(error)) is None:
            raise
        raise explained from None


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Returns the parameters of a function that it may be called with by position; none of one written in C."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def frame_wanted(function: Callable[..., Any], place: int = 0) -> str:
    """Returns which frame the parameter of a function at a place is annotated with; ``BATCH`` for other annotations.

    Call it in the driver: a slot may lack the names that annotations refer to.
    """
    parameters = parameters_of(function)
    wanted = hint_of(function, parameters[place].name) if place < len(parameters) else None
    name = f"{str(getattr(wanted, '__module__', '')).partition('.')[0]}.{getattr(wanted, '__name__', '')}"
    return name if name in (TABLE, PANDAS, POLARS) else BATCH


def hint_of(function: Callable[..., Any], name: str) -> Any:
    """Returns what a parameter of a function, or its "return", is annotated with; None for what cannot be resolved."""
    while isinstance(function, partial):
        function = function.func
    called = function if inspect.isroutine(function) else inspect.getattr_static(type(function), "__call__", None)
    try:
        return get_type_hints(called, include_extras=name == "return").get(name)
    except (NameError, TypeError, AttributeError):
        return None


def as_wanted(batch: RecordBatch, wanted: str) -> Any:
    """Returns a ``pyarrow.RecordBatch`` as the frame that a function wants."""
    if wanted == PANDAS:
        return _pandas_frame(batch)
    if wanted == POLARS:
        return import_module("polars").from_arrow(batch)
    if wanted == TABLE:
        import pyarrow

        return pyarrow.Table.from_batches([batch])
    return batch


def _pandas_frame(batch: RecordBatch) -> Any:
    """Returns a frame of pandas. Integers with nulls are nullable integers: as floats they would not be exact."""
    import pyarrow

    frame = batch.to_pandas(use_threads=False)  # each task has a core of its own
    for place, column in enumerate(batch.columns):
        if column.null_count and pyarrow.types.is_integer(column.type):
            name = f"{column.type}Dtype".replace("uint", "UInt").replace("int", "Int")  # such as Int64Dtype
            nullable = getattr(import_module("pandas"), name)()
            frame.isetitem(place, column.to_pandas(types_mapper={column.type: nullable}.get))
    return frame


def as_batch(frame: Any) -> Any:
    """Returns a frame as one ``pyarrow.RecordBatch``.

    Raises: NoFrame: it does not speak Arrow's C stream or C array. ColumnRepeated: two columns have one name.
    IndexUnnamed: it is a frame of pandas whose index has data.
    """
    import pyarrow

    from clonos.operators.columnar.plain_columns import PlainColumns

    if isinstance(frame, pyarrow.RecordBatch):
        return PlainColumns().of(frame)
    if type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns"):
        # An index without a name is the numbers of the rows; a named one, such as that of a group, is a column.
        has_keys = any(name is not None for name in frame.index.names)
        if not has_keys and len(frame) and frame.index.dtype.kind not in "iu":
            raise IndexUnnamed(str(frame.index.dtype))
        table = pyarrow.Table.from_pandas(frame, preserve_index=has_keys, nthreads=1)
    else:
        table = _table_of(frame)
    table = table.replace_schema_metadata(None).combine_chunks()
    batches = table.to_batches()
    return PlainColumns().of(batches[0] if batches else pyarrow.RecordBatch.from_pylist([], schema=table.schema))


def _table_of(frame: Any) -> Any:
    import pyarrow

    try:
        if hasattr(frame, "__arrow_c_stream__"):
            return pyarrow.RecordBatchReader.from_stream(frame).read_all()
        if hasattr(frame, "__arrow_c_array__"):
            return pyarrow.Table.from_batches([pyarrow.record_batch(frame)])
    except pyarrow.ArrowInvalid:  # one column, not a frame
        pass
    raise NoFrame(type(frame).__qualname__, _advice(frame))


def _advice(result: Any) -> str:
    if type(result).__name__ == "LazyFrame":
        return " Compute a LazyFrame with .collect()."
    if type(result).__name__ == "Series":
        return " Make a frame of a Series with .to_frame(), or .reset_index() if its index has the keys of groups."
    is_one_value = isinstance(result, (str, bytes)) or not hasattr(type(result), "__iter__")
    return ' Make a frame of one value with pandas.DataFrame({"total": [value]}).' if is_one_value else ""
