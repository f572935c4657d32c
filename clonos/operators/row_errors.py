"""Errors about a single record: a field that it does not have, or a sink that cannot write it."""

from __future__ import annotations

from typing import Any, Final

from clonos.core.model.errors import JobError

FIELDS_MAX: Final = 12


ERRORS_ADVICE: Final = " Job(..., errors=sink) sets such records aside."


class RecordError(JobError):
    """Base of the errors of one record that go to the error output if there is one.

    A class writes ``set_aside_text``; or ``__str__``, if its text has no such advice anywhere.
    """

    def __str__(self) -> str:
        return f"{self.set_aside_text()}{ERRORS_ADVICE}"

    def set_aside_text(self) -> str:
        """Returns the text for the error output, without the advice to have one."""
        return str(self)


class FieldMissing(RecordError):
    """A record does not have the field that a step was given by name. It goes to the error output if there is one."""

    field: str
    problem: str
    advice: str

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        return f"{self.problem}. {self.advice}"


class InvalidGap(RecordError):
    """The function of a session window returned no length of time for a record."""

    reason: str

    def __str__(self) -> str:
        return f"the gap of a session, which the function of Session returned: {self.reason}"


class RowNotWritable(JobError):
    """The format of a sink cannot hold a row. ``index`` is the position of the row in the batch that was written."""

    output: str
    index: int
    row: str
    reason: str

    def __str__(self) -> str:
        return f"{self.output} cannot write the row {self.row}: {self.reason}."


def field_missing(field: str, record: Any) -> FieldMissing:
    """Creates the error for a record, or a batch of columns, of any type."""
    schema = getattr(record, "schema", None)
    if isinstance(record, dict) or schema is not None:
        names = list(map(str, record if schema is None else schema.names))
        more = [f"and {len(names) - FIELDS_MAX} more"] if len(names) > FIELDS_MAX else []
        has = ", ".join([*names[:FIELDS_MAX], *more]) or "none"
        what = f"record has no field {field!r}" if schema is None else f"batch has no column {field!r}"
        return FieldMissing(field, f"the {what}; it has {has}", "Correct the name, or give a function of the record.")
    problem = f"the record is a {type(record).__name__}, which has no field {field!r}"
    return FieldMissing(field, problem, "Give a function of the record.")
