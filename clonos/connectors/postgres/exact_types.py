"""Which values a column of PostgreSQL holds as they are.

The server refuses some of the others. It converts the rest without a word: it rounds to the digits of a ``numeric``,
drops the hours of a ``date`` and the zone of a ``timestamp``, and cuts blanks at the end of a ``varchar``.
Types that are not listed here are left to the server.
"""

from __future__ import annotations

import enum
import json
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from math import inf, isfinite
from typing import Any, Final
from uuid import UUID

from clonos.connectors.json_text import scalar_text
from clonos.connectors.postgres.vectors import vector_type
from clonos.connectors.tables.exact_columns import Check, NotStored, TableColumn

_TYPE: Final = re.compile(
    r"(?P<name>[a-z ]+?)(\((?P<first>\d+)(,(?P<second>-?\d+))?\))?(?P<rest> with(out)? time zone)?"
)
_INT: Final = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FAR: Final = re.compile(r"-?infinity|\d+-\d\d-\d\d.* BC|\d{5,}-\d\d-\d\d( .*)?")
_MIDNIGHT: Final = re.compile(r"24:00(:00)?")
"""Texts of instants, dates and times that Python has no object for, and PostgreSQL has."""

_INT_BITS: Final = {"smallint": 16, "integer": 32, "bigint": 64}
DIGITS_BEFORE_MAX, DIGITS_AFTER_MAX = 131_072, 16_383
"""Limits of a ``numeric`` without digits of its own."""


def check_of(type_name: str, round_vectors: bool = False) -> Check | None:
    """Returns the check of a column by its type as ``format_type`` writes it; None if the server decides.

    ``round_vectors``: a column of vectors may round their numbers.
    """
    vectors = vector_type(type_name)
    check = _check_of(type_name) if vectors is None else partial(vectors.check, round_vectors)
    return None if check is None else partial(_check_member, check)


def _check_member(check: Check, value: Any) -> None:
    """Checks a value, a member of an enumeration by what is written for it."""
    check(scalar_text(value) if isinstance(value, enum.Enum) else value)


def _check_of(type_name: str) -> Check | None:
    if type_name.endswith("[]"):
        return _check_array
    found = _TYPE.fullmatch(type_name)
    if found is None:
        return None
    name, rest = found["name"], (found["rest"] or "").strip()
    first = None if found["first"] is None else int(found["first"])
    if name in _INT_BITS:
        return partial(_check_int, type_name, 1 << (_INT_BITS[name] - 1))
    match name:
        case "numeric":
            return partial(_check_numeric, type_name, first, int(found["second"] or 0))
        case "real" | "double precision":
            return partial(_check_float, name)
        case "text":
            return partial(_check_text, type_name, None)
        case "character varying" | "character":
            return partial(_check_text, type_name, first)
        case "timestamp":
            return partial(_check_instant, type_name, datetime.fromisoformat, rest == "with time zone", first)
        case "time":
            return partial(_check_instant, type_name, time.fromisoformat, rest == "with time zone", first)
        case "json" | "jsonb":
            return partial(_check_json, name)
        case _:
            kinds = _KINDS.get(name)
            return None if kinds is None else partial(_check_kind, name, *kinds)


def _refuse(value: Any, type_name: str, what: str = "") -> NotStored:
    return NotStored(f"is {value!r:.80}, which a column of the type {type_name} does not hold{what}")


def _check_kind(type_name: str, kind: type, read: Callable[[str], Any], value: Any) -> None:
    """Checks the class of a value, and that the type reads a text."""
    if type(value) is str:
        try:
            read(value)
        except ValueError:
            raise _refuse(value, type_name) from None
    elif type(value) is not kind:
        raise _refuse(value, type_name)


def _no_text(text: str) -> Any:
    raise ValueError(text)


def _matches(pattern: str) -> Callable[[str], Any]:
    found = re.compile(pattern, re.IGNORECASE | re.ASCII)
    return lambda text: found.fullmatch(text) or _no_text(text)


_is_interval: Final = _matches(
    r"P(?!T?$)(-?\d+Y)?(-?\d+M)?(-?\d+W)?(-?\d+D)?(T(?!$)(-?\d+H)?(-?\d+M)?(-?\d+(\.\d{1,6})?S)?)?"
)

_KINDS: Final[dict[str, tuple[type, Callable[[str], Any]]]] = {
    "boolean": (bool, _matches(r"t|true|f|false|yes|no|on|off|1|0")),
    "bytea": (bytes, _matches(r"\\x([0-9a-f]{2})*")),
    "date": (date, lambda text: _FAR.fullmatch(text) or date.fromisoformat(text)),
    "interval": (timedelta, _is_interval),
    "uuid": (UUID, UUID),
}


def _check_array(value: Any) -> None:
    if type(value) is not str:
        raise _refuse(value, "of arrays", ", because the sink writes lists as JSON: give it the type jsonb")
    check_characters(value)


def _check_int(type_name: str, end: int, value: Any) -> None:
    number = int(value) if type(value) is str and _INT.fullmatch(value) else value
    if type(number) is not int or not -end <= number < end:
        raise _refuse(value, type_name)


def _check_numeric(type_name: str, digits: int | None, scale: int, value: Any) -> None:
    if type(value) in (int, Decimal) or (type(value) is str and _NUMBER.fullmatch(value)):
        number = Decimal(value)
    elif type(value) is float:
        number = Decimal(repr(value))
    else:
        raise _refuse(value, type_name)
    if not number.is_finite():
        if number.is_snan() or (number.is_infinite() and digits is not None):
            raise _refuse(value, type_name)
        return
    _, found, exponent = number.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    before, after = (len(found) + exponent if any(found) else 0), -exponent
    if digits is None:
        is_held = before <= DIGITS_BEFORE_MAX and after <= DIGITS_AFTER_MAX
    else:
        trailing = len(found) - len("".join(map(str, found)).rstrip("0")) if any(found) else len(found)
        is_held = before <= digits - scale and (after - trailing <= scale or not any(found))
    if not is_held:
        raise _refuse(value, type_name, " without a change")


def _check_float(name: str, value: Any) -> None:
    """Checks a number. A float in a column ``real`` is rounded, because that is asked for, but not to 0 or infinity."""
    if type(value) is float:
        if name == "real" and isfinite(value):
            held = _float32(value)
            if not isfinite(held) or (value and not held):
                raise _refuse(value, name)
        return
    text = str(value) if type(value) in (int, Decimal, str) else ""
    if not _NUMBER.fullmatch(text):
        raise _refuse(value, name)
    held = _float32(float(text)) if name == "real" else float(text)
    shown = f"{held:.6g}" if name == "real" else repr(held)  # what every reader shows of it
    is_exact = held == value and (name != "real" or abs(held) <= 1 << 24) if type(value) is int else isfinite(held)
    if not is_exact or (type(value) is not int and Decimal(shown) != Decimal(text)):
        raise _refuse(value, name, " without a change")


def _float32(value: float) -> float:
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return inf
    return found


def check_characters(text: str) -> None:
    """Checks the characters of a text.

    Raises: NotStored: PostgreSQL does not store one of them.
    """
    if "\0" in text:
        raise NotStored(f"is {text!r:.80}, with a character NUL, which PostgreSQL does not store")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotStored(f"is {text!r:.80}, with half a character, which UTF-8 does not have") from None


def _check_text(type_name: str, length: int | None, value: Any) -> None:
    if type(value) in (bool, bytes, bytearray, timedelta, UUID) or (type(value) is Decimal and value.is_snan()):
        raise _refuse(value, type_name, ": make it a text with a map before the sink")
    text = value if type(value) is str else scalar_text(value)
    check_characters(text)
    if length is not None and len(text) > length:
        raise _refuse(value, type_name, f": it has {len(text)} characters")


def _check_instant(
    type_name: str, read: Callable[[str], datetime | time], has_zone: bool, digits: int | None, value: Any
) -> None:
    """Checks an instant, or a time of a day: its zone, and the digits of its second."""
    given: Any = value
    is_instant = read == datetime.fromisoformat
    if type(value) is str:
        if _FAR.fullmatch(value) if is_instant else _MIDNIGHT.fullmatch(value) and not has_zone:
            return
        try:
            given = read(value)
        except ValueError:
            raise _refuse(value, type_name) from None
    elif type(value) is date and is_instant and not has_zone:
        return  # the begin of the day
    if not isinstance(given, datetime if is_instant else time):
        raise _refuse(value, type_name)
    is_aware = given.utcoffset() is not None
    if has_zone and not is_aware:
        raise _refuse(value, type_name, ", because it has no time zone")
    if is_aware and not has_zone:
        raise _refuse(value, type_name, " with its time zone")
    if digits is not None and given.microsecond % 10 ** (6 - digits):
        raise _refuse(value, type_name, " with all its digits")


def _check_json(name: str, value: Any) -> None:
    text = value if type(value) is str else scalar_text(value)
    check_characters(text)
    try:
        if type(value) is bool:
            raise ValueError("the driver writes it as t or f")
        if name == "jsonb":
            json.loads(text, object_pairs_hook=_object, parse_constant=_no_text, parse_float=_number, parse_int=_number)
        else:
            json.loads(text, parse_constant=_no_text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        raise _refuse(value, name, ", because it is not JSON") from None
    if name == "jsonb" and "\\u" in text and re.search(r"(?<!\\)(\\\\)*\\u(0000|[dD][89a-fA-F])", text):
        raise _refuse(value, name, ", because it has a character that jsonb lacks")


def _number(text: str) -> None:
    _check_numeric("numeric", None, 0, text)


def _object(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name is there twice")


WHOLE: Final = {"smallint": 16, "integer": 32, "bigint": 64}
_NUMERIC: Final = re.compile(r"numeric\((\d+),(-?\d+)\)")
SECONDS_BEFORE, SECONDS_END = -62_135_596_800, 253_402_300_800
"""The years 1 to 9999, in seconds since the Unix epoch."""


def is_held(column: Any, target: TableColumn) -> bool:
    """Returns whether a column holds all values of a ``pyarrow.Array``; False if each has to be looked at."""
    from pyarrow import compute, types

    kind, name = column.type, target.type_name
    if target.is_required and column.null_count:
        return False
    if types.is_integer(kind):
        bits = kind.bit_width + types.is_unsigned_integer(kind)
        return name == "numeric" or WHOLE.get(name, 0) >= bits
    if types.is_string(kind) or types.is_large_string(kind):
        return name in ("text", "character varying") and not compute.any(compute.match_substring(column, "\0")).as_py()
    if types.is_decimal(kind):
        found = _NUMERIC.fullmatch(name)
        if found is None:
            return name == "numeric"
        digits, scale = int(found[1]), int(found[2])
        return bool(kind.scale <= scale and kind.precision - kind.scale <= digits - scale)
    if types.is_timestamp(kind):
        wanted = "timestamp with time zone" if kind.tz else "timestamp without time zone"
        scale = {"s": 1, "ms": 1_000, "us": 1_000_000}.get(kind.unit, 0)
        return name == wanted and bool(scale) and _is_within(column, "int64", scale)
    if types.is_date32(kind):
        return name == "date" and _is_within(column, "int32", 1 / 86_400)
    plain = {"double": "double precision", "float": "real", "bool": "boolean"}
    vectors = vector_type(name)
    return name == plain.get(str(kind)) or (vectors is not None and vectors.are_held(column))


def _is_within(column: Any, width: str, per_second: float) -> bool:
    """Returns whether all instants are in the years that Python has."""
    import pyarrow
    from pyarrow import compute

    ends = compute.min_max(column.view(getattr(pyarrow, width)()))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    return first is None or (first >= SECONDS_BEFORE * per_second and last < SECONDS_END * per_second)
