"""Values of columns in messages of Debezium, by the semantic type that Debezium has for a column.

A message with a schema names the type of each field. One without does not, so the codec is told it in ``columns=``.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from clonos.connectors.json_text import parse_json

EPOCH: Final = datetime(1970, 1, 1)
EPOCH_DAYS: Final = EPOCH.toordinal()
MICROSECOND: Final = timedelta(microseconds=1)
DECIMAL: Final = re.compile(r"Decimal\((\d{1,5})\)")
NANOSECONDS: Final = re.compile(r"[.,]\d{6}0*[1-9]")
PREFIXES: Final = ("io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data.")


class ColumnType(NamedTuple):
    """How a value is read and written: both raise ValueError, TypeError or OverflowError for what is none."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def type_named(name: str) -> ColumnType | None:
    """Returns the type that ``columns=`` names, such as "Decimal(2)" or "MicroTimestamp"; None if there is none."""
    if found := DECIMAL.fullmatch(name):
        return _decimal(int(found[1]))
    return TYPES.get(name)


def type_of(schema: Mapping[str, Any]) -> ColumnType | None:
    """Returns the type of a field by its schema; None if its value is the one of JSON.

    Raises: KeyError, TypeError, ValueError, AttributeError: it is no schema of Kafka Connect.
    """
    name, kind = schema.get("name") or "", schema["type"]
    short = next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), "")
    if short == "Decimal":
        return _decimal(int(schema["parameters"]["scale"]))
    if short in TYPES and short != "bytes":
        return TYPES[short]
    if kind == "bytes":
        return TYPES["bytes"]
    if kind == "array":
        item = type_of(schema["items"])
        return None if item is None else _list_of(item)
    if kind == "struct":
        fields = types_of(schema)
        return _struct_of(fields) if fields else None
    return None


def types_of(schema: Mapping[str, Any]) -> dict[str, ColumnType]:
    """Returns the types of the fields of a struct, without those whose values are as JSON has them.

    Raises: as ``type_of``.
    """
    found = {field["field"]: type_of(field) for field in schema["fields"]}
    return {name: kind for name, kind in found.items() if kind is not None}


def _bytes_of(text: str) -> bytes:
    return b64decode(text, validate=True)


def _text_of(data: bytes) -> str:
    return b64encode(_a(bytes, data)).decode()


def _decimal(scale: int) -> ColumnType:
    def read(text: str) -> Decimal:
        unscaled = int.from_bytes(_bytes_of(text), "big", signed=True)
        return Decimal(f"{unscaled}E{-scale}")

    def write(value: Decimal | int) -> str:
        sign, digits, exponent = Decimal(value).as_tuple() if type(value) is int else _a(Decimal, value).as_tuple()
        if not isinstance(exponent, int):
            raise ValueError(f"a Decimal({scale}) of Debezium has neither NaN nor infinities")
        shift = exponent + scale
        unscaled, rest = int("".join(map(str, digits))), 0
        if shift >= 0:
            unscaled *= 10**shift
        else:
            unscaled, rest = divmod(unscaled, 10**-shift)
        if rest:
            raise ValueError(f"it has more than {scale} digits after the point")
        unscaled = -unscaled if sign else unscaled
        return b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()

    return ColumnType(read, write)


def _read_any_scale(given: Mapping[str, Any]) -> Decimal:
    value: Decimal = _decimal(_int(given["scale"])).read(given["value"])
    return value


def _write_any_scale(value: Decimal) -> dict[str, Any]:
    exponent = _a(Decimal, value).as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    return {"scale": scale, "value": _decimal(scale).write(value)}


def _list_of(item: ColumnType) -> ColumnType:
    def each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda values: [None if value is None else change(value) for value in values]

    return ColumnType(each(item.read), each(item.write))


def _struct_of(fields: Mapping[str, ColumnType]) -> ColumnType:
    def each(part: int) -> Callable[[Any], Any]:
        def change(values: Any) -> dict[str, Any]:
            return {
                name: value if value is None or name not in fields else fields[name][part](value)
                for name, value in values.items()
            }

        return change

    return ColumnType(each(0), each(1))


def _timestamp(nanoseconds: int) -> ColumnType:
    return ColumnType(
        lambda count: EPOCH + _micros(count, nanoseconds) * MICROSECOND,
        lambda value: _count((_naive(value) - EPOCH) // MICROSECOND, nanoseconds),
    )


def _time(nanoseconds: int) -> ColumnType:
    def read(count: int) -> time:
        moment = EPOCH + _micros(count, nanoseconds) * MICROSECOND
        if moment.date() != EPOCH.date():
            raise ValueError(f"{count} is beyond the end of a day")
        return moment.time()

    def write(value: time) -> int:
        if _a(time, value).tzinfo is not None:
            raise ValueError("it has a time zone")
        return _count((datetime.combine(EPOCH, value) - EPOCH) // MICROSECOND, nanoseconds)

    return ColumnType(read, write)


def _micros(count: int, nanoseconds: int) -> int:
    micros, rest = divmod(_int(count) * nanoseconds, 1_000)
    if rest:
        raise ValueError(f"{count} ns is no whole number of microseconds, which Python's times have")
    return micros


def _count(micros: int, nanoseconds: int) -> int:
    count, rest = divmod(micros * 1_000, nanoseconds)
    if rest:
        raise ValueError(f"it is no whole number of {nanoseconds // 1_000} us")
    return count


def _int(given: Any) -> int:
    if type(given) is not int:
        raise TypeError(f"{given!r:.60} is not a whole number")
    return given


def _a(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"it is not of the type {kind.__name__}")
    return value


def _naive(value: Any) -> datetime:
    if _a(datetime, value).tzinfo is not None:
        raise ValueError("it has a time zone")
    return value  # type: ignore[no-any-return]


def _clock_text(text: str) -> str:
    """Returns the text of a time, which has no more than microseconds: ``fromisoformat`` drops further digits."""
    if NANOSECONDS.search(text):
        raise ValueError(f"{text!r:.60} is no whole number of microseconds, which Python's times have")
    return text


def _aware(text: str) -> datetime:
    found = datetime.fromisoformat(_clock_text(text))
    if found.tzinfo is None:
        raise ValueError(f"{text!r:.60} has no offset")
    return found


def _json_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _iso(value: Any) -> str:
    return str(value.isoformat())


_days: Final = ColumnType(
    lambda days: date.fromordinal(EPOCH_DAYS + _int(days)), lambda value: _a(date, value).toordinal() - EPOCH_DAYS
)
MS, US, NS = 1_000_000, 1_000, 1

TYPES: Final[Mapping[str, ColumnType]] = {
    "bytes": ColumnType(_bytes_of, _text_of),
    "Bits": ColumnType(_bytes_of, _text_of),
    "VariableScaleDecimal": ColumnType(_read_any_scale, _write_any_scale),
    "Date": _days,
    "Time": _time(MS),
    "MicroTime": _time(US),
    "NanoTime": _time(NS),
    "ZonedTime": ColumnType(lambda text: time.fromisoformat(_clock_text(text)), _iso),
    "Timestamp": _timestamp(MS),
    "MicroTimestamp": _timestamp(US),
    "NanoTimestamp": _timestamp(NS),
    "ZonedTimestamp": ColumnType(_aware, _iso),
    "MicroDuration": ColumnType(lambda count: _int(count) * MICROSECOND, lambda value: value // MICROSECOND),
    "Json": ColumnType(lambda text: parse_json(text.encode()), _json_of),
    "Uuid": ColumnType(UUID, str),
}
"""By the last part of the names of Debezium and Kafka Connect; decimals are ``Decimal(scale)``."""
