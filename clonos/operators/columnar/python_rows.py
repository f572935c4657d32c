"""Records of columns for steps that take rows: those that Python cannot hold are errors of their own.

Python has no instant with nanoseconds, and none outside the years 1 to 9999. Steps on columns and sinks of columns take
such values, so only a step that makes rows of them looks for them, and only once they are in its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from clonos.core.values.column_rows import NoPythonValue, values_of_column
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.row_forms import rows_of
from clonos.operators.row_errors import RecordError

if TYPE_CHECKING:
    from clonos.operators.user_errors import Guard


class FieldNotPython(RecordError):
    """Python has no value that equals a field of a record of columns. It goes to the error output if there is one."""

    field: str
    value: str
    type_name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the field {self.field!r} is {self.value}, a {self.type_name}, which Python has no value for:"
            f" {self.reason}. Convert the column in front of this step, such as with_columns and cast, or keep to steps"
            " on columns."
        )


def python_rows(batch: RecordBatch, guard: Guard) -> tuple[list[Any], Any]:
    """Returns the rows of a batch and the batch that has just these records; the others go to the error output.

    Raises: StepFailed: Python cannot hold the value of a field, and the job has no error output.
    """
    try:
        return rows_of(batch), batch
    except NoPythonValue:
        batch = batch.filter(retained_records(batch, guard))
        return rows_of(batch) if batch.num_rows else [], batch


def retained_records(batch: RecordBatch, guard: Guard) -> Any:
    """Returns which records Python can hold, as an array of booleans; the others go to the error output."""
    import pyarrow

    is_retained = [True] * batch.num_rows
    for index, error in _refused(batch, 0):
        is_retained[index] = False
        _set_aside(batch.slice(index, 1), index, error, guard)
    return pyarrow.array(is_retained, pyarrow.bool_())


def _refused(batch: RecordBatch, first: int) -> Iterator[tuple[int, NoPythonValue]]:
    """Yields the index of each record that Python does not hold, and why: halves are searched while they fail."""
    try:
        rows_of(batch)
    except NoPythonValue as error:
        if batch.num_rows == 1:
            yield first, error
            return
        half = batch.num_rows // 2
        yield from _refused(batch.slice(0, half), first)
        yield from _refused(batch.slice(half), first + half)


def _set_aside(batch: RecordBatch, index: int, error: NoPythonValue, guard: Guard) -> None:
    record, refused = only_record(batch)
    guard.refused(refused or error, record, index)


def record_at(batch: RecordBatch, index: int) -> dict[str, Any]:
    """Returns a record for an error. The text of Arrow stands for a value that Python does not have."""
    return only_record(batch.slice(index, 1))[0]


def only_record(batch: RecordBatch) -> tuple[dict[str, Any], FieldNotPython | None]:
    """Returns the only record of a batch, and the first field that Python does not have.

    The text of Arrow stands for each of these.
    """
    record: dict[str, Any] = {}
    refused = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            (record[name],) = values_of_column(column)
        except NoPythonValue as reason:
            record[name] = _text(column)
            refused = refused or FieldNotPython(name, record[name], str(column.type), str(reason).rstrip("."))
    return record, refused


def _text(value: Any) -> str:
    """Returns the only value of an array as Arrow writes it."""
    from pyarrow import types

    if types.is_struct(value.type):
        fields = zip(value.type, value.flatten(), strict=True)
        return "{" + ", ".join(f"{field.name}: {_text(column)}" for field, column in fields) + "}"
    text: str = value.to_string(indent=0, skip_new_lines=True)
    return text.removeprefix("[").removesuffix("]")
