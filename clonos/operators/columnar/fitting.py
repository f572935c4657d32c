"""Columns as the plan has them, in front of the steps over columns that depend on their types.

A column whose values its planned type holds is cast. A record with another value, or without a column that is needed,
is an error of this record. Columns that the plan does not know are left out, as files may have more columns than the
first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from clonos.operators.columnar.python_rows import record_at
from clonos.operators.columnar.row_forms import rows_of
from clonos.operators.columnar.running.stored_keys import plain_cells, plain_type
from clonos.operators.operator import Operator, Times
from clonos.operators.row_errors import ERRORS_ADVICE, RecordError, field_missing
from clonos.operators.user_errors import Guard

VALUE_CHARACTERS_MAX: Final = 80


class ColumnMisfit(RecordError):
    """A value does not fit the type that the plan has for its column."""

    field: str
    value: str
    type_name: str

    def __str__(self) -> str:
        return f"{self.set_aside_text()}.{ERRORS_ADVICE}"

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        return (
            f"the field {self.field!r} is {self.value}, which does not fit the column: in the plan it is of the type"
            f" {self.type_name}"
        )


def as_planned(batch: Any, schema: Any) -> tuple[Any, dict[int, ColumnMisfit]]:
    """Returns a batch whose columns have the types of those of a schema, if it has them, and the rows that do not fit.

    These are in their order, and null in what is returned.
    """
    import pyarrow

    columns, misfits = batch.columns, dict[int, ColumnMisfit]()
    for place, name in enumerate(batch.schema.names):
        if name not in schema.names:
            continue
        planned, given = schema.field(name).type, columns[place]
        columns[place], wrong = _as_type(given, planned)
        for index in wrong:
            if index not in misfits:
                value = repr(record_at(batch, index)[name])[:VALUE_CHARACTERS_MAX]
                misfits[index] = ColumnMisfit(name, value, str(planned))
    fields = [pyarrow.field(name, column.type) for name, column in zip(batch.schema.names, columns, strict=True)]
    fitted = pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields, batch.schema.metadata))
    return fitted, dict(sorted(misfits.items()))


class PlannedColumns:
    """Columns of a plan, in their order, and what makes batches have them."""

    def __init__(self, schema: Any, needed: Sequence[str]) -> None:
        """Takes the columns of ``schema``, of which ``needed`` must be there."""
        self._schema, self._needed = schema, needed
        self._given: Any = None  # the last schema of a batch that fits as it is

    def of(self, batch: Any, guard: Guard) -> Any:
        """Returns a batch with these columns, without its records that do not fit, which ``guard`` gets."""
        return batch if self._given is batch.schema or self._fits(batch.schema) else self._fitted(batch, guard)

    def _fits(self, schema: Any) -> bool:
        if self._given is None or not self._given.equals(schema):
            if [name for name in self._schema.names if name in schema.names] != schema.names:
                return False
            if not all(name in schema.names for name in self._needed):
                return False
            if not all(_is_of(field.type, self._schema.field(field.name).type) for field in schema):
                return False
        self._given = schema
        return True

    def _fitted(self, batch: Any, guard: Guard) -> Any:
        names = batch.schema.names
        if missing := next((name for name in self._needed if name not in names), None):
            for index in range(batch.num_rows):
                record = _record(batch, index)
                guard.refused(field_missing(missing, record), record, index)
            return batch.slice(0, 0)
        fitted, misfits = as_planned(batch.select([name for name in self._schema.names if name in names]), self._schema)
        for index, error in misfits.items():
            guard.refused(error, _record(batch, index), index)
        return fitted.filter([index not in misfits for index in range(batch.num_rows)]) if misfits else fitted


class Fitting(Operator):
    """Batches with the columns of the plan."""

    takes_columns = True
    changes_rows = False

    def __init__(self, schema: Any, needed: Sequence[str]) -> None:
        """Creates the operator for the columns of ``schema``, of which ``needed`` must be there."""
        self._planned = PlannedColumns(schema, needed)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows(rows, times)

    def columns(self, batch: Any) -> None:
        batch = self._planned.of(batch, self.guard)
        if batch.num_rows:
            self.out.columns(batch)


def _record(batch: Any, index: int) -> Any:
    row = batch.slice(index, 1)
    try:
        return rows_of(row)[0]
    except ValueError:  # another value of it is none of Python
        return record_at(batch, index)


def _is_of(given: Any, planned: Any) -> bool:
    """Returns whether a type is the planned one, as that of all values or of a dictionary."""
    return bool(given == planned or plain_type(given) == plain_type(planned))


def _as_type(column: Any, planned: Any) -> tuple[Any, list[int]]:
    """Returns a column of the planned type, and the rows whose values it does not hold, which are null in it."""
    import pyarrow

    if _is_of(column.type, planned):
        return column, []
    column, planned = plain_cells(column), plain_type(planned)
    if _holds(planned, column.type):
        try:
            cast = column.cast(planned)
            if not (wrong := _rounded_by_cast(column, cast)):
                return cast, []
        except pyarrow.ArrowException:
            wrong = [index for index in range(len(column)) if not _fits(column.slice(index, 1), planned)]
    else:
        wrong = [index for index, is_valid in enumerate(column.is_valid().to_pylist()) if is_valid]
    if len(wrong) == len(column) - column.null_count:
        return pyarrow.nulls(len(column), planned), wrong
    is_wrong = frozenset(wrong)
    left = pyarrow.array([None if index in is_wrong else index for index in range(len(column))], pyarrow.int64())
    return column.take(left).cast(planned), wrong


def _rounded_by_cast(column: Any, cast: Any) -> list[int]:
    """Returns the rows of numbers that a cast to a float of fewer bits has changed, which Arrow does not refuse."""
    import pyarrow
    from pyarrow import compute, types

    if not types.is_floating(cast.type):
        return []
    given, found = (each.cast(pyarrow.float64(), safe=False) for each in (column, cast))
    is_same = compute.or_(compute.equal(given, found), compute.is_nan(given)).fill_null(True)
    return (~is_same.to_numpy(zero_copy_only=False)).nonzero()[0].tolist()  # type: ignore[no-any-return]


def _fits(cell: Any, planned: Any) -> bool:
    import pyarrow

    try:
        return not _rounded_by_cast(cell, cell.cast(planned))
    except pyarrow.ArrowException:
        return False


def _holds(planned: Any, given: Any) -> bool:
    """Returns whether a type has values of the same kind as another one, so that a cast keeps what they are."""
    from pyarrow import types

    kinds = (
        types.is_integer,
        lambda kind: types.is_string(kind) or types.is_large_string(kind),
        lambda kind: types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind),
        types.is_decimal,
        types.is_date,
        lambda kind: types.is_timestamp(kind) and (kind.tz is None) == (planned.tz is None),
    )
    if types.is_null(given) or (types.is_floating(planned) and (types.is_integer(given) or types.is_floating(given))):
        return True
    return any(of_kind(planned) and of_kind(given) for of_kind in kinds)
