"""A second decoder of values and rows, by the package msgpack, from the description of the format alone: what the wire
carries is msgpack as another library reads it, and not only what msgspec makes of its own bytes."""

from __future__ import annotations

import datetime
import decimal
import itertools
import uuid
import zoneinfo
from typing import Any

import msgpack

from clonos.core.values import registered


def value_of(data: bytes) -> Any:
    """The value in the bytes of ``encode_value``."""
    return _value(msgpack.unpackb(data, strict_map_key=False))


def rows_of(data: bytes) -> list[Any]:
    """The rows in the bytes of ``encode_rows``."""
    assert data[0] == 1, data[:1]
    return _cells(*msgpack.unpackb(data[1:], strict_map_key=False))


def _value(node: Any) -> Any:
    if type(node) is not list:
        return node
    kind, *rest = node
    match kind:
        case 0:
            return list(map(_value, rest))
        case 1:
            return tuple(map(_value, rest))
        case 2:
            return {_value(rest[at]): _value(rest[at + 1]) for at in range(0, len(rest), 2)}
        case 3:
            return set(map(_value, rest))
        case 4:
            return frozenset(map(_value, rest))
        case 5:
            return int.from_bytes(rest[0], "big", signed=True)
        case 6:
            return rest[0].decode("utf-8", "surrogatepass")
        case 7:
            return datetime.datetime(*rest[:7]).replace(tzinfo=_zone(rest[8]), fold=rest[7])
        case 8:
            return datetime.date(*rest)
        case 9:
            return datetime.time(*rest[:4]).replace(tzinfo=_zone(rest[5]), fold=rest[4])
        case 10:
            return datetime.timedelta(*rest)
        case 11:
            return decimal.Decimal(rest[0])
        case 12:
            return uuid.UUID(bytes=rest[0], is_safe=uuid.SafeUUID(rest[1]) if rest[1:] else uuid.SafeUUID.unknown)
        case 13:
            return _record(rest[0], dict(zip(rest[1].split(), map(_value, rest[2:]), strict=True)))
        case 14:
            return registered()[rest[0]][rest[1]]  # type: ignore[index]
        case 15:
            return registered()[rest[0]](_value(rest[1]))
    raise AssertionError(node)


def _zone(node: Any) -> datetime.tzinfo | None:
    if node is None:
        return None
    if type(node) is str:
        return zoneinfo.ZoneInfo(node)
    microseconds, *name = node if type(node) is list else [node]
    return datetime.timezone(datetime.timedelta(microseconds=microseconds), *name)


def _record(name: str, fields: dict[str, Any]) -> Any:
    cls = registered()[name]
    if issubclass(cls, tuple) or hasattr(cls, "__struct_fields__"):
        return cls(**fields)
    made = object.__new__(cls)
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made


def _cells(kind: int, names: list[str] = [], data: bytes = b"", parts: list[Any] = []) -> list[Any]:  # noqa: B006
    if kind <= 6:
        cells = msgpack.unpackb(data, strict_map_key=False)
        return list(map(_value, cells)) if kind == 0 else list(cells)
    columns = [_cells(*part) for part in parts]
    rows = list(zip(*columns, strict=True))
    match kind:
        case 7:
            return rows
        case 8:
            return list(map(list, rows))
        case 9:
            return [dict(zip(names, row, strict=True)) for row in rows]
        case 10:
            return [_record(names[0], dict(zip(names[1:], row, strict=True))) for row in rows]
        case 11:
            epoch = datetime.datetime(1970, 1, 1, tzinfo=_zone(msgpack.unpackb(data)))
            return [epoch + datetime.timedelta(microseconds=wall) for wall in columns[0]]
        case 12:
            return list(map(datetime.date.fromordinal, columns[0]))
        case 13:
            return list(itertools.starmap(decimal.Decimal, rows))
    raise AssertionError(kind)
