"""Form of the rows of a batch of columns: what a step that takes rows gets of each record.

A record of columns is a dict by the names of the columns, unless the schema of the batch names another form: the
results of windows over columns are ``WindowResult`` in rows, as those of windows over rows are, those of running
aggregates are pairs of a key and its results, and those of joins are pairs of records. The form travels in the metadata
of the schema, so every step, exchange and sink finds it. Steps that choose or compute columns drop it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clonos.core.model.errors import JobError
from clonos.core.values.column_keys import python_keys
from clonos.core.values.column_rows import rows_of_columns, values_of_column
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.timestamps import NANOSECONDS_PER_MICROSECOND, from_timestamp_ns
from clonos.operators.windows.window_results import Window, WindowResult, result_of

FORM_KEY: Final = b"clonos.rows"
OWN_METADATA: Final = b"clonos."
"""Begin of the names of metadata that say what the records of a schema are."""

SINGLE: Final = "value"
"""Column of the only value of a result, such as that of ``count()``: the value of other results is a dict by name."""

START: Final = "start"
END: Final = "end"
TIME: Final = "window_time"
"""Columns of a window: its start and end in UTC, and the timestamp of its result, a microsecond before the end."""


JOIN_TIME: Final = "join_time"
"""Column of a join by timestamps: the timestamp of the result, which is the later one of both sides."""


SPAN_TIME: Final = "span_time"
"""Column of the last records of spans of a key: the timestamp of the result, a microsecond before the span ends."""

RECORDS: Final = "records"
"""Column of the highest records of a key, which ``top_k`` gives as a list."""


class WindowForm(msgspec.Struct, frozen=True, array_like=True, tag="window"):
    """Form of results of windows: the columns of the key, and those of the values by name."""

    keys: tuple[str, ...]
    values: tuple[str, ...]


class SideForm(msgspec.Struct, frozen=True, array_like=True):
    """Form of one side of a pair: its columns, their names in its own rows, and the form of these rows, b"" for dicts.

    A record of which ``present`` is null has no such side, which is None in rows; "": all records have it.
    ``is_missing``: none has it.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    form: bytes = b""
    present: str = ""
    is_missing: bool = False


class PairForm(msgspec.Struct, frozen=True, array_like=True, tag="pair"):
    """Form of results of joins: pairs of a left and a right record."""

    left: SideForm
    right: SideForm


class TotalForm(msgspec.Struct, frozen=True, array_like=True, tag="total"):
    """Form of results of running aggregates: the columns of the key, and those of the results by name.

    Without columns of the key a record has the results alone in rows.
    ``is_count``: there is one result, which is no dict in rows; a sink of columns gets columns.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    is_count: bool = False


class RecordForm(msgspec.Struct, frozen=True, array_like=True, tag="record"):
    """Form of records that have fewer columns in rows, and in a sink of columns right after their step.

    ``columns``: those that rows have. ``form``: what rows of these are, b"" for dicts.
    """

    columns: tuple[str, ...]
    form: bytes = b""


RowForm = WindowForm | TotalForm | PairForm | RecordForm


class ColumnsLost(JobError):
    """A step that works on columns gets rows, because the step in front of it cannot have its state in columns."""

    step: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} works on columns, and gets rows: windows, aggregates or a join in front of it cannot"
            " be made for the types of their columns. Put cast or select in front of them, or use map or filter with a"
            " function here."
        )


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[RowForm]] = msgspec.msgpack.Decoder(RowForm)


def metadata_of(form: RowForm) -> dict[bytes, bytes]:
    """Returns the metadata of a schema whose records have this form in rows."""
    return {FORM_KEY: _encoder.encode(form)}


def rows_of(batch: RecordBatch) -> list[Any]:
    """Returns the rows of a batch of columns."""
    metadata = batch.schema.metadata
    if not metadata or FORM_KEY not in metadata:
        return rows_of_columns(batch)
    form = _decoder.decode(metadata[FORM_KEY])
    if isinstance(form, PairForm):
        return list(zip(_side_rows(batch, form.left), _side_rows(batch, form.right), strict=True))
    if isinstance(form, TotalForm):
        return _total_rows(batch, form)
    if isinstance(form, RecordForm):
        return rows_of(_records(batch, form))
    return _window_rows(batch, form)


def form_of(schema: Any) -> bytes:
    """Returns the form of the rows of a schema, b"" for dicts."""
    return (schema.metadata or {}).get(FORM_KEY, b"")  # type: ignore[no-any-return]


def have_equal_rows(schema: Any, other: Any) -> bool:
    """Returns whether two schemas have the same columns, and rows of one form."""
    return bool(schema.equals(other)) and form_of(schema) == form_of(other)


def has_own_form(batch: RecordBatch) -> bool:
    """Returns whether rows of a batch are not dicts by the names of its columns."""
    metadata = batch.schema.metadata
    return bool(metadata) and FORM_KEY in metadata


def for_sink(batch: RecordBatch) -> Any | None:
    """Returns what a sink of columns writes of a batch; None if it writes the rows of another form."""
    metadata = batch.schema.metadata
    if not metadata or FORM_KEY not in metadata:
        return batch
    form = _decoder.decode(metadata[FORM_KEY])
    if isinstance(form, RecordForm):
        return for_sink(_records(batch, form))
    return without_form(batch) if isinstance(form, TotalForm) and form.is_count else None


def without_form(batch: RecordBatch) -> Any:
    """Returns the batch with rows that are dicts by the names of its columns."""
    if not has_own_form(batch):
        return batch
    metadata = {name: value for name, value in batch.schema.metadata.items() if name != FORM_KEY}
    return batch.replace_schema_metadata(metadata or None)


def _records(batch: RecordBatch, form: RecordForm) -> Any:
    return batch.select(form.columns).replace_schema_metadata({FORM_KEY: form.form} if form.form else None)


def keys_of_windows(batch: RecordBatch) -> list[Any]:
    """Returns the key of each result of windows."""
    form = _decoder.decode(batch.schema.metadata[FORM_KEY])
    assert isinstance(form, WindowForm), form
    return python_keys(batch, form.keys) if form.keys else [None] * batch.num_rows


def windows_of(batch: RecordBatch) -> list[Window]:
    """Returns the window of each result of windows."""
    starts, ends = (_microseconds(batch.column(name)) for name in (START, END))
    windows: dict[tuple[int, int], Window] = {}
    found = []
    for span in zip(starts, ends, strict=True):
        window = windows.get(span)
        if window is None:
            # In integers of Python: a window may begin or end beyond the nanoseconds that 64 bits have room for.
            window = windows[span] = Window(*(from_timestamp_ns(each * NANOSECONDS_PER_MICROSECOND) for each in span))
        found.append(window)
    return found


def _window_rows(batch: RecordBatch, form: WindowForm) -> list[WindowResult[Any, Any]]:
    values: list[Any]
    if form.values == (SINGLE,):
        values = values_of_column(batch.column(SINGLE))
    else:
        values = rows_of_columns(batch.select(form.values))
    return list(map(result_of, keys_of_windows(batch), windows_of(batch), values))


def _side_rows(batch: RecordBatch, form: SideForm) -> list[Any]:
    """Returns the records of one side of pairs."""
    if form.is_missing:
        return [None] * batch.num_rows
    has_side = None
    if form.present and (present := batch.column(form.present)).null_count:
        has_side = present.is_valid()
        batch = batch.filter(has_side)
    rows = rows_of(
        batch.select(form.columns)
        .rename_columns(form.names)
        .replace_schema_metadata({FORM_KEY: form.form} if form.form else None)
    )
    if has_side is None:
        return rows
    found = iter(rows)
    return [next(found) if has else None for has in has_side.to_pylist()]


def _total_rows(batch: RecordBatch, form: TotalForm) -> list[Any]:
    if form.is_count:
        values = values_of_column(batch.column(form.values[0]))
    else:
        values = rows_of_columns(batch.select(form.values))
    return list(zip(python_keys(batch, form.keys), values, strict=True)) if form.keys else values


def _microseconds(column: Any) -> list[int]:
    import pyarrow

    return column.view(pyarrow.int64()).to_numpy().tolist()  # type: ignore[no-any-return]
