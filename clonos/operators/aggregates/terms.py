"""Terms of records: what of a record an aggregate takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.row_errors import field_missing

Of = Callable[[Any], Any] | str | None
"""A function of the record, the name of a field, or None for the record itself."""


def term_of(of: Of) -> Callable[[Any], Any]:
    """Returns the function from a record to its term."""
    if of is None:
        return _itself
    return field_of(of) if isinstance(of, str) else of


def field_of(name: str) -> Callable[[Any], Any]:
    """Returns the function that reads a field: a key of a dict, or an attribute of any other record."""

    def read(record: Any) -> Any:
        if not isinstance(record, dict):
            return getattr(record, name)
        try:
            return record[name]
        except KeyError:
            raise field_missing(name, record) from None

    return read


def functions_of(of: Any) -> tuple[UserFunction, ...]:
    """Returns the function of the user that reads a term, if it is one: not the name of a field."""
    return () if of is None or isinstance(of, str) else (UserFunction(of, ("record",)),)


def text_of(of: Of) -> str:
    """Returns how a term stands in the text of an aggregation: a checkpoint has it, so it is the same in each run."""
    return "" if of is None else repr(of) if isinstance(of, str) else "a function"


def _itself(record: Any) -> Any:
    return record
