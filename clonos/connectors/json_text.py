"""Rows as JSON lines, and back.

Values without a JSON type are written as follows:

- datetime, date, time, timedelta: ISO 8601; UUID, Decimal: their text; bytes: base64;
- tuple, set, frozenset: an array, for sets sorted by the JSON of the items;
- NamedTuple, dataclass, msgspec.Struct: an object with the field names; enum: its value;
- dict keys that are not str: the text that they would have as a value.

An int is written with all its digits. JSON has no NaN and no infinities: a line of a file with one is refused, and text
for people has them as Python writes them. Reading gives dict, list, str, int, float, bool and None, and accepts the NaN
and Infinity that other programs write, and a byte order mark. It refuses what would not be the same value: a number
beyond the range of a float or with more digits than it holds, more containers in each other than a value may have, and
an object with a key twice.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from clonos.connectors.connector_errors import row_not_writable
from clonos.connectors.exact_floats import is_held
from clonos.connectors.json_keys import check_keys, have_all_keys, unique
from clonos.connectors.value_depth import TOO_DEEP, NotAValue, check_depth
from clonos.core.values.value_limits import VALUE_DEPTH_MAX
from clonos.kernels.texts import rounds_numbers

_AS_IT_IS = frozenset(
    {NoneType, bool, int, float, str, bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID}
)
_WITHOUT_ZONES = _AS_IT_IS - {datetime, time}
_STR = frozenset({str})
_KEYS_AS_THEY_ARE = _AS_IT_IS - {NoneType, bool, bytes, bytearray}
_MAY_BE_INFINITE = frozenset({float, dict, list, tuple})
_FLOATS = frozenset({float})
_KEY_WORDS: dict[Any, str] = {None: "null", True: "true", False: "false"}

NULL = b"null"
BYTE_ORDER_MARK = "\ufeff"

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class _NotJson(Exception):
    """A part of a row has no JSON representation."""


def json_lines(rows: Iterable[Any], output: str) -> bytes:
    """Encodes each row as one line. ``output`` names the sink in the error.

    Raises: RowNotWritable: a row has no JSON representation.
    """
    rows = rows if isinstance(rows, list) else list(rows)
    lines = [_json_value_of_row(row, index, output) for index, row in enumerate(rows)]
    try:
        encoded = _encoder.encode_lines(lines)
    except UnicodeEncodeError:  # a str with a lone surrogate, which JSON can escape
        _refuse_infinite(lines, rows, output)
        return b"".join(json.dumps(msgspec.to_builtins(line)).encode() + b"\n" for line in lines)
    if NULL in encoded:  # the encoder writes it for NaN and infinities too
        texts = encoded.split(b"\n")
        suspects = [line if NULL in text else None for line, text in zip(lines, texts, strict=False)]
        _refuse_infinite(suspects, rows, output)
    return encoded


def json_text(value: Any) -> str:
    """Encodes a value on one line as JSON, with NaN and Infinity.

    Raises: RowNotWritable: the value has no JSON representation.
    """
    plain = _json_value_of_row(value, 0, "JSON")
    if _infinite(plain):
        return json.dumps(msgspec.to_builtins(plain), ensure_ascii=False, separators=(",", ":"))
    return json_lines((plain,), "JSON").decode().removesuffix("\n")


def scalar_text(value: Any) -> str:
    """Formats a value for a table cell: without quotes if JSON would write a str, any other value as JSON."""
    if type(value) is str:
        return value
    plain = msgspec.to_builtins(_json_value_of_row(value, 0, "a cell"))
    return plain if type(plain) is str else json_text(value)


def parse_json(line: str | bytes) -> Any:
    """Parses one line.

    Raises: ValueError: the line is not JSON; the message says why. NotAValue: it is, but no value of a record.
    """
    check_depth(line)
    line = line if isinstance(line, str) else bytes(line)
    if not rounds_numbers([line]):
        try:
            value = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            check_keys(line if isinstance(line, str) else line.decode(), value)
            return value
    text = line.removeprefix(BYTE_ORDER_MARK) if isinstance(line, str) else without_mark(line)
    try:
        # Slower, but accepts NaN, Infinity and lone surrogates, and sees the digits of each number.
        return json.loads(text, parse_float=exact_float, object_pairs_hook=unique)
    except RecursionError:
        raise NotAValue(TOO_DEEP) from None


def parse_json_lines(lines: list[str]) -> list[Any] | None:
    """Parses lines at once if all are plain JSON; returns None if one needs ``parse_json``.

    The caller has seen that none of them ``may_be_deep``.
    """
    if rounds_numbers(lines):
        return None
    decode = _decoder.decode
    try:
        values = [decode(line) for line in lines]
    except (msgspec.DecodeError, RecursionError):
        return None
    return values if have_all_keys(lines, values) else None


def without_mark(data: bytes) -> bytes:
    """Returns bytes without the byte order mark of UTF-8, with which some programs begin a text."""
    return bytes(data).removeprefix(BYTE_ORDER_MARK.encode())


def exact_float(digits: str) -> float:
    """Returns a number of a text as a float. Raises: NotAValue: it would not be the same number."""
    number = float(digits)
    if not isfinite(number):
        raise NotAValue(f"its number {digits[:40]} is beyond the range of a float")
    if not is_held(digits, number):
        raise NotAValue(f"its number {digits[:60]} has more digits than a float holds")
    return number


def _json_value_of_row(row: Any, index: int, output: str) -> Any:
    try:
        return _json_value(row, 0)
    except _NotJson as refused:
        raise row_not_writable(output, index, row, str(refused)) from None


def _refuse_infinite(lines: list[Any], rows: list[Any], output: str) -> None:
    for index, line in enumerate(lines):
        if found := _infinite(line):
            advice = "replace it in a map before the sink, by None or a text"
            raise row_not_writable(output, index, rows[index], f"{found}, which JSON cannot express; {advice}")


def _infinite(value: Any, place: str = "row") -> str:
    """Describes where a converted value has a NaN or an infinity; "" if it has none."""
    cls = type(value)
    if cls is float:
        return "" if isfinite(value) else f"{place} is {value}"
    if (cls is list or cls is tuple) and _FLOATS.issuperset(map(type, value)) and isfinite(sum(value)):
        return ""  # such as a vector
    items: Any = value.items() if cls is dict else enumerate(value) if cls is list or cls is tuple else ()
    for key, item in items:
        if type(item) in _MAY_BE_INFINITE and (found := _infinite(item, f"{place}[{key!r}]")):
            return found
    return ""


def _json_value(value: Any, depth: int) -> Any:
    """Converts a value to what msgspec encodes as the module documents."""
    cls = type(value)
    if cls in _AS_IT_IS:
        return _zoned(value) if cls is datetime or cls is time else value
    if depth >= VALUE_DEPTH_MAX:
        raise _NotJson(TOO_DEEP)
    depth += 1
    if cls is dict:
        if _STR.issuperset(map(type, value)) and _WITHOUT_ZONES.issuperset(map(type, value.values())):
            return value
        found = {key if type(key) is str else _key(key): _json_value(item, depth) for key, item in value.items()}
        if len(set(map(type, value))) > 1:
            _check_texts(found, len(value))
        return found
    if cls is list or cls is tuple:
        return value if _WITHOUT_ZONES.issuperset(map(type, value)) else [_json_value(item, depth) for item in value]
    if cls is set or cls is frozenset:
        return sorted((_json_value(item, depth) for item in value), key=_encoder.encode)
    return _json_value_of_record(value, cls, depth)


def _json_value_of_record(value: Any, cls: type, depth: int) -> Any:
    fields = getattr(cls, "_fields", None)
    if issubclass(cls, tuple) and fields is not None:
        return _json_value(dict(zip(fields, value, strict=True)), depth - 1)
    if issubclass(cls, enum.Enum):
        return _json_value(value.value, depth)
    if dataclasses.is_dataclass(cls):
        return {field.name: _json_value(getattr(value, field.name), depth) for field in dataclasses.fields(cls)}
    if issubclass(cls, msgspec.Struct):
        return {name: _json_value(getattr(value, name), depth) for name in cls.__struct_fields__}
    raise _NotJson(f"its {cls.__module__}.{cls.__qualname__} has no JSON form; convert it with a map before the sink")


def _zoned(value: Any) -> Any:
    """Returns a datetime or time whose offset has whole minutes, as JSON has it: of others, the datetime in UTC."""
    zone = value.tzinfo
    if zone is None or zone is UTC:
        return value
    offset = value.utcoffset()
    if offset is None:
        raise _NotJson(f"its time {value} has no offset: the zone {zone} has one only with a date")
    if not (offset.seconds % 60 or offset.microseconds):
        return value
    if type(value) is datetime:
        try:
            return value.astimezone(UTC)
        except OverflowError:
            pass
    raise _NotJson(f"the offset of its {value} has seconds, which ISO 8601 has not")


def _check_texts(found: dict[Any, Any], count: int) -> None:
    """Checks that keys of several types differ as texts too: 1 and "1" do not."""
    if len({text for key in found for text in msgspec.to_builtins({key: None}, str_keys=True)}) < count:
        raise _NotJson("two keys of a dict have the same text in JSON; give it other keys with a map before the sink")


def _key(key: Any) -> Any:
    if type(key) in _KEYS_AS_THEY_ARE:
        return _zoned(key) if type(key) is datetime or type(key) is time else key
    if key is None or type(key) is bool:
        return _KEY_WORDS[key]
    if isinstance(key, enum.Enum):
        return _key(key.value)
    raise _NotJson(f"a {type(key).__name__} cannot be a key of a JSON object")
