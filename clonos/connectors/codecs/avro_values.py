"""Which values a schema of Avro holds: fastavro checks none outside of unions, and cuts, rounds or converts others.

A number holds an equal number of another type, and ``float`` the next one to a float; everything else has the one type
that it has when it is read again. What has no type of Avro, as an int for a date, is refused like in Parquet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import isfinite
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

Check = Callable[[Any], None]

BITS: Final = MappingProxyType({"int": 31, "long": 63})
_PLAIN: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {"null": (type(None),), "boolean": (bool,), "string": (str,), "bytes": (bytes, bytearray), "double": (float,)}
)
_FLOAT: Final = struct.Struct("<f")


class NotOfSchema(ValueError):
    """A value is none that the schema holds."""


class Checks:
    """Checks of the values of a schema, as ``fastavro.parse_schema`` returns it."""

    def __init__(self, schema: Any, validate: Callable[..., bool]) -> None:
        self._named: Mapping[str, Any] = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
        if isinstance(schema, list):
            self._named = {
                name: each
                for one in schema
                if isinstance(one, dict)
                for name, each in one.get("__named_schemas", {}).items()
            }
        self._validate = validate
        self._made: dict[str, Check] = {}
        self._check = self._of(schema)

    def __call__(self, value: Any) -> None:
        """Checks a value. Raises: NotOfSchema."""
        self._check(value)

    def _of(self, schema: Any) -> Check:
        if isinstance(schema, list):
            return self._of_union(schema)
        if isinstance(schema, str) and schema in self._named:
            return self._of_name(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list):
            return self._of(kind)
        logical = None if isinstance(schema, str) else schema.get("logicalType")
        if make := _LOGICAL.get((kind, logical)):
            return make(schema)
        if kind in ("record", "error"):
            return self._of_record(schema)
        if kind == "array":
            return _each(self._of(schema["items"]))
        if kind == "map":
            return _values(self._of(schema["values"]))
        return _plain(kind, schema)

    def _of_name(self, name: str) -> Check:
        """Returns the check of a named type, which may have values of itself."""

        def check(value: Any) -> None:
            if name not in self._made:
                self._made[name] = self._of(self._named[name])
            self._made[name](value)

        return check

    def _of_record(self, schema: Any) -> Check:
        fields = [(field["name"], self._of(field["type"])) for field in schema["fields"]]

        def check(value: Any) -> None:
            if not isinstance(value, Mapping):
                raise _unfit(schema["name"], value)
            for name, of_field in fields:
                if name in value:  # fastavro refuses the lack of others, and fields without a place
                    try:
                        of_field(value[name])
                    except NotOfSchema as error:
                        raise NotOfSchema(f"in the field {name!r}, {error}") from None

        return check

    def _of_union(self, schemas: list[Any]) -> Check:
        checks = [(schema, self._of(schema)) for schema in schemas]
        others = [check for schema, check in checks if schema != "null"]
        if len(others) == 1 and len(checks) == 2:
            (only,) = others
            return lambda value: None if value is None else only(value)

        def check(value: Any) -> None:
            if type(value) is tuple:  # names its type
                return
            for schema, of_type in checks:
                if isinstance(value, Mapping):  # fastavro takes the record with most of its fields
                    if _is_held(of_type, value):
                        return
                elif self._takes(schema, value):
                    return of_type(value)
            raise NotOfSchema(f"none of its types holds the {type(value).__name__} {value!r:.80}")

        return check

    def _takes(self, schema: Any, value: Any) -> bool:
        """Returns whether fastavro takes a type of a union for a value."""
        resolved = self._named.get(schema, schema) if isinstance(schema, str) else schema
        try:
            return bool(self._validate(value, resolved, raise_errors=False))
        except Exception:  # noqa: BLE001  fastavro lets anything pass
            return False


def _unfit(kind: str, value: Any) -> NotOfSchema:
    return NotOfSchema(f"{kind} does not hold the {type(value).__name__} {value!r:.80}")


def _is_held(check: Check, value: Any) -> bool:
    try:
        check(value)
    except NotOfSchema:
        return False
    return True


def _each(check: Check) -> Check:
    def of_array(value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise _unfit("array", value)
        for item in value:
            check(item)

    return of_array


def _values(check: Check) -> Check:
    def of_map(value: Any) -> None:
        if not isinstance(value, Mapping) or not all(type(key) is str for key in value):
            raise _unfit("map", value)
        for item in value.values():
            check(item)

    return of_map


def _plain(kind: str, schema: Any) -> Check:
    if kind in BITS:
        end = 1 << BITS[kind]
        return _of(
            kind,
            lambda value: (type(value) is int or _is_number(value)) and value == int(value) and -end <= value < end,
        )
    if kind == "float":
        return _of(
            kind,
            lambda value: (
                (type(value) is float and _fits_float(value)) or (type(value) is int and _is_equal(value, 1 << 24))
            ),
        )
    if kind == "double":
        return _of(kind, lambda value: type(value) is float or (type(value) is int and _is_equal(value, 1 << 53)))
    if kind == "fixed":
        return _of(schema["name"], lambda value: isinstance(value, bytes | bytearray) and len(value) == schema["size"])
    if kind == "enum":
        return _of(schema["name"], lambda value: type(value) is str and value in schema["symbols"])
    types = _PLAIN.get(kind)
    return (lambda value: None) if types is None else _of(kind, lambda value: isinstance(value, types))


def _of(kind: str, is_held: Callable[[Any], bool]) -> Check:
    def check(value: Any) -> None:
        if not is_held(value):
            raise _unfit(kind, value)

    return check


def _is_number(value: Any) -> bool:
    return (type(value) is float and isfinite(value)) or (type(value) is Decimal and value.is_finite())


def _is_equal(value: int, end: int) -> bool:
    try:
        return -end <= value <= end or (end > 1 << 24 and float(value) == value)
    except OverflowError:
        return False


def _fits_float(value: float) -> bool:
    try:
        _FLOAT.pack(value)
    except OverflowError:
        return False
    return True


def _decimal(schema: Any) -> Check:
    precision, scale = schema["precision"], schema.get("scale", 0)

    def is_held(value: Any) -> bool:
        if type(value) is not Decimal or not value.is_finite():
            return False
        if not value:
            return not value.is_signed()  # which fastavro takes for another number
        # Zeros at the end are no digits: exact for any number of them.
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int), "it is finite"
        while digits[-1] == 0:
            digits, exponent = digits[:-1], exponent + 1
        return bool(exponent >= -scale and len(digits) + exponent + scale <= precision)

    return _of(f"decimal({precision}, {scale})", is_held)


def _instant(kind: str, is_aware: bool, is_whole: Callable[[Any], bool]) -> Callable[[Any], Check]:
    def is_held(value: Any) -> bool:
        if not isinstance(value, datetime) or (value.utcoffset() is not None) is not is_aware or not is_whole(value):
            return False
        try:
            return not is_aware or value.astimezone(UTC) is not None
        except OverflowError:  # its UTC is in no year from 1 to 9999
            return False

    return lambda schema: _of(kind, is_held)


def _milliseconds(value: Any) -> bool:
    return bool(value.microsecond % 1_000 == 0)


def _any(value: Any) -> bool:
    return True


def _uuid(schema: Any) -> Check:
    return _of("uuid", lambda value: type(value) is UUID)


_LOGICAL: Final[Mapping[tuple[str, str | None], Callable[[Any], Check]]] = MappingProxyType(
    {
        ("int", "date"): lambda schema: _of("date", lambda value: type(value) is date),
        ("int", "time-millis"): lambda schema: _of(
            "time-millis", lambda value: _is_time(value) and _milliseconds(value)
        ),
        ("long", "time-micros"): lambda schema: _of("time-micros", _is_time),
        ("long", "timestamp-millis"): _instant("timestamp-millis", True, _milliseconds),
        ("long", "timestamp-micros"): _instant("timestamp-micros", True, _any),
        ("long", "local-timestamp-millis"): _instant("local-timestamp-millis", False, _milliseconds),
        ("long", "local-timestamp-micros"): _instant("local-timestamp-micros", False, _any),
        ("bytes", "decimal"): _decimal,
        ("fixed", "decimal"): _decimal,
        ("string", "uuid"): _uuid,
        ("fixed", "uuid"): _uuid,
    }
)


def _is_time(value: Any) -> bool:
    return isinstance(value, time) and value.tzinfo is None
