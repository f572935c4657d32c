"""Values as SQLite stores them. A declared type gives a column an affinity, which converts texts and numbers.

https://www.sqlite.org/datatype3.html
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from math import copysign
from typing import Any, Final

from clonos.connectors.json_text import scalar_text
from clonos.connectors.tables.exact_columns import Check, NotStored

INT_END: Final = 1 << 63

TABLE_COLUMNS: Final = 'SELECT name, type, "notnull" AND dflt_value IS NULL FROM pragma_table_info(:table, :schema)'
"""The columns of a table, with whether each refuses NULL."""

_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def stored_value(value: Any) -> Any:
    """Returns a value as it is written: bool as 0 or 1, larger ints and what SQLite has no type for as text.

    Raises: NotStored: SQLite does not hold it. RowNotWritable: it has no JSON form.
    """
    if type(value) is int:
        return value if -INT_END <= value < INT_END else str(value)
    if type(value) is str:
        if not value.isascii():
            _check_text(value)
        return value
    if value is None or type(value) in (float, bytes):
        if value != value:
            raise NotStored("is nan, for which SQLite stores NULL: give None or a text, with a map before the sink")
        return value
    return int(value) if type(value) is bool else scalar_text(value)


def check_of(declared: str) -> Check | None:
    """Returns the check of a column by its declared type; None if it holds each value as it is written."""
    affinity = _affinity(declared.upper())
    return None if affinity == "BLOB" else _CHECKS[affinity]


def _affinity(declared: str) -> str:
    if "INT" in declared:
        return "INTEGER"
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in declared or not declared:
        return "BLOB"
    if any(word in declared for word in ("REAL", "FLOA", "DOUB")):
        return "REAL"
    return "NUMERIC"


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotStored(f"is {value!r:.80}, with half a character, which UTF-8 does not have") from None


def _check_texts(value: Any) -> None:
    """Checks a value of a column of texts, in which SQLite writes numbers with 15 digits."""
    if type(value) is float and not value == float(f"{value:.15g}"):
        raise NotStored(f"is {value!r}, of which a column of texts keeps 15 digits: declare it REAL, or give a text")


def _check_numbers(value: Any) -> None:
    """Checks a value of a column of integers or numbers, in which SQLite reads texts as numbers."""
    if type(value) is float:
        _check_zero(value)
    elif isinstance(text := stored_value(value), str) and _NUMBER.fullmatch(text):
        number = Decimal(text.strip())
        is_int = abs(number) < INT_END and number == number.to_integral_value()
        _check_read(value, text, int(number) if is_int else float(text))


def _check_reals(value: Any) -> None:
    """Checks a value of a column of floats, in which SQLite reads integers and texts as floats."""
    if type(value) is float:
        _check_zero(value)
    elif type(text := stored_value(value)) is int:
        if int(float(text)) != text:
            raise NotStored(f"is {text}, which a column of floats rounds to {float(text):.0f}: declare it INTEGER")
    elif isinstance(text, str) and _NUMBER.fullmatch(text):
        _check_read(value, text, float(text))


def _check_zero(value: float) -> None:
    if not value and copysign(1, value) < 0:
        raise NotStored("is -0.0, and a column of this type has no zero with a sign: declare it BLOB, or add 0.0")


def _check_read(value: Any, text: str, read: int | float) -> None:
    """Checks a value whose text the column reads as a number."""
    is_same = str(read) == text if isinstance(value, str) else Decimal(repr(read)) == Decimal(text)
    if not is_same:
        raise NotStored(
            f"is {value!r:.80}, which becomes the number {read!r} in a column of this type: declare it TEXT"
        )


_CHECKS: Final[dict[str, Callable[[Any], None]]] = {
    "TEXT": _check_texts,
    "INTEGER": _check_numbers,
    "NUMERIC": _check_numbers,
    "REAL": _check_reals,
}
