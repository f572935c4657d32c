"""Conversion of values to plain trees and back. A tree is what msgpack carries exactly, in one call into C.

None, bool, int within 64 bits, float, str and bytes represent themselves. Every other value is a list that begins with
the number of its kind: the tuple ``("a", 1)`` is ``[1, "a", 1]``. There are no maps and no extension types.

Rules: equal values have equal bytes in every process (sets are sorted by the bytes of their items, dicts keep their
order). A kind's number never changes its meaning and is never reused. Types are matched exactly, because a subclass
would come back as its base.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from types import NoneType
from typing import Any, Final
from uuid import UUID, SafeUUID

import msgspec

from clonos.core.values import type_registry, value_limits
from clonos.core.values.numpy_scalars import python_scalar
from clonos.core.values.value_advice import advice
from clonos.core.values.value_errors import ValueBeyondLimit

PLAIN: Final = frozenset({NoneType, bool, int, float, str, bytes})
CAREFUL: Final = PLAIN - {int, str}
"""Plain types when an int exceeds 64 bits or a str has lone surrogates: each int and str is then checked."""

LIST: Final = 0
TUPLE: Final = 1
DICT: Final = 2
SET: Final = 3
FROZENSET: Final = 4
LARGE_INT: Final = 5
SURROGATES: Final = 6
DATETIME: Final = 7
DATE: Final = 8
TIME: Final = 9
TIMEDELTA: Final = 10
DECIMAL: Final = 11
UNIQUE_ID: Final = 12
RECORD: Final = 13
MEMBER: Final = 14
FLAGS: Final = 15

ENCODER: Final = msgspec.msgpack.Encoder()
DECODER: Final = msgspec.msgpack.Decoder()

MICROSECOND: Final = timedelta(microseconds=1)

Plain = frozenset[type]


class Unencodable(Exception):
    """Signal that a part of a value has no encoding. Callers that know the whole value add the path to that part."""

    def __init__(self, type_name: str, advice: str) -> None:
        super().__init__(type_name, advice)
        self.type_name = type_name
        self.advice = advice


def pack(lowering: Callable[[Any, Plain, int], object], value: object, depth: int) -> bytes:
    """Encodes the tree that ``lowering`` makes of a value. Checks each int and str only if one of them turns out not to
    be plain.
    """
    try:
        return ENCODER.encode(lowering(value, PLAIN, depth))
    except (OverflowError, UnicodeEncodeError):
        return ENCODER.encode(lowering(value, CAREFUL, depth))


def lower(value: object, plain: Plain, depth: int) -> object:
    """Returns the tree of a value that is nested in ``depth`` containers.

    Raises: Unencodable, if a part has no encoding; ValueBeyondLimit, if it is too long or too deep.
    """
    cls = type(value)
    if cls in plain:
        return value
    lowering = LOWERINGS.get(cls)
    if lowering is not None:
        return lowering(value, plain, depth)
    entry = type_registry.by_type.get(cls)
    if isinstance(entry, type_registry.RegisteredRecord):
        return _lower_record(value, entry, plain, depth)
    if isinstance(entry, type_registry.Choice):
        return _lower_choice(value, entry, plain, depth)
    if (scalar := python_scalar(value)) is not value:
        return lower(scalar, plain, depth)
    raise Unencodable(type_registry.class_name(cls), advice(cls))


def lower_all(values: Collection[object], plain: Plain, depth: int) -> Collection[object]:
    """Returns the trees of a container's items, which are nested in ``depth`` containers.

    Raises: Unencodable, if an item has no encoding; ValueBeyondLimit, if there are too many or they are too deep.
    """
    if depth > value_limits.VALUE_DEPTH_MAX:
        raise ValueBeyondLimit(
            "depth of a value (nested containers)",
            depth,
            value_limits.VALUE_DEPTH_MAX,
            "Does it contain itself? If not, keep it flatter.",
        )
    if len(values) > value_limits.VALUE_ITEMS_MAX:
        raise ValueBeyondLimit("items in one container of a value", len(values), value_limits.VALUE_ITEMS_MAX)
    if plain.issuperset(map(type, values)):
        return values
    return [lower(item, plain, depth) for item in values]


def _lower_list(value: list[object], plain: Plain, depth: int) -> object:
    return [LIST, *lower_all(value, plain, depth + 1)]


def _lower_tuple(value: tuple[object, ...], plain: Plain, depth: int) -> object:
    return [TUPLE, *lower_all(value, plain, depth + 1)]


def _lower_dict(value: dict[object, object], plain: Plain, depth: int) -> object:
    tree: list[object] = [DICT] * (1 + 2 * len(value))
    tree[1::2] = lower_all(value.keys(), plain, depth + 1)
    tree[2::2] = lower_all(value.values(), plain, depth + 1)
    return tree


def _lower_set(value: set[object], plain: Plain, depth: int) -> object:
    return [SET, *sorted(lower_all(value, plain, depth + 1), key=ENCODER.encode)]


def _lower_frozenset(value: frozenset[object], plain: Plain, depth: int) -> object:
    return [FROZENSET, *sorted(lower_all(value, plain, depth + 1), key=ENCODER.encode)]


def _lower_int(value: int, plain: Plain, depth: int) -> object:
    if -(1 << 63) <= value < 1 << 64:
        return value
    return [LARGE_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)]


def _lower_str(value: str, plain: Plain, depth: int) -> object:
    try:
        value.encode()
    except UnicodeEncodeError:
        return [SURROGATES, value.encode("utf-8", "surrogatepass")]
    return value


def _lower_datetime(value: datetime, plain: Plain, depth: int) -> object:
    day = (value.year, value.month, value.day)
    clock = (value.hour, value.minute, value.second, value.microsecond, value.fold)
    return [DATETIME, *day, *clock, lower_zone(value.tzinfo)]


def _lower_date(value: date, plain: Plain, depth: int) -> object:
    return [DATE, value.year, value.month, value.day]


def _lower_time(value: time, plain: Plain, depth: int) -> object:
    return [TIME, value.hour, value.minute, value.second, value.microsecond, value.fold, lower_zone(value.tzinfo)]


def _lower_timedelta(value: timedelta, plain: Plain, depth: int) -> object:
    return [TIMEDELTA, value.days, value.seconds, value.microseconds]


def _lower_decimal(value: Decimal, plain: Plain, depth: int) -> object:
    return [DECIMAL, decimal_text(value)]


def decimal_text(value: Decimal) -> str:
    """Returns all digits of a decimal number, with a capital E because its case depends on the thread's decimal
    context.
    """
    return str(value).upper()


def _lower_uuid(value: UUID, plain: Plain, depth: int) -> object:
    if value.is_safe is SafeUUID.unknown:
        return [UNIQUE_ID, value.bytes]
    return [UNIQUE_ID, value.bytes, value.is_safe.value]


def lower_zone(zone: tzinfo | None) -> object:
    """Returns None, the offset in microseconds (with the zone's name if it has one), or the key of a zone with rules.

    Raises: Unencodable, if the zone's class has no encoding.
    """
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # typeshed does not know it
        microseconds = offset // MICROSECOND
        return [microseconds, *name] if name else microseconds
    from zoneinfo import ZoneInfo  # imported late: 5 ms that most jobs never need

    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    raise Unencodable(
        f"time with the zone class {type_registry.class_name(type(zone))}",
        "Use datetime.timezone or zoneinfo.ZoneInfo(key) as its zone.",
    )


def _lower_record(value: object, record: type_registry.RegisteredRecord, plain: Plain, depth: int) -> object:
    extras = record.extras((value,))
    if extras:
        name = type_registry.class_name(record.cls)
        raise Unencodable(
            name, f"Its attributes {sorted(extras)} are not fields and would be lost: declare them as fields of {name}."
        )
    try:
        fields = record.read(value)
    except AttributeError as error:
        raise Unencodable(type_registry.class_name(record.cls), f"One of its fields has no value: {error}.") from error
    return [RECORD, record.name, record.signature, *lower_all(fields, plain, depth + 1)]


def _lower_choice(value: Any, choice: type_registry.Choice, plain: Plain, depth: int) -> object:
    if choice.is_flag:
        return [FLAGS, choice.name, lower(value._value_, plain, depth)]
    name: str = value._name_
    if choice.cls.__members__.get(name) is not value:
        raise Unencodable(type_registry.class_name(choice.cls), "It is not one of the members that its class declares.")
    return [MEMBER, choice.name, name]


LOWERINGS: Final[dict[type, Callable[[Any, Plain, int], object]]] = {
    list: _lower_list,
    tuple: _lower_tuple,
    dict: _lower_dict,
    set: _lower_set,
    frozenset: _lower_frozenset,
    int: _lower_int,
    str: _lower_str,
    datetime: _lower_datetime,
    date: _lower_date,
    time: _lower_time,
    timedelta: _lower_timedelta,
    Decimal: _lower_decimal,
    UUID: _lower_uuid,
}


def lift(node: object, depth: int) -> object:
    """Returns the value of a tree that is nested in ``depth`` containers. Wrong trees raise any Exception, ValueError
    among them.
    """
    cls = type(node)
    if cls in PLAIN:
        return node
    if type(node) is not list or not node or type(node[0]) is not int:
        raise ValueError(f"a {cls.__name__} without the number of a kind")
    lifting = LIFTINGS.get(node[0])
    if lifting is None:
        raise ValueError(f"kind {node[0]}, and {max(LIFTINGS)} is the highest that this version of clonos knows")
    return lifting(node, depth)


def lift_all(nodes: list[object], depth: int) -> list[object]:
    """Returns the values of a container's items, which are nested in ``depth`` containers.

    Raises: ValueError, if they are too deep.
    """
    if depth > value_limits.VALUE_DEPTH_MAX:
        raise ValueError(f"more than {value_limits.VALUE_DEPTH_MAX} nested containers")
    if PLAIN.issuperset(map(type, nodes)):
        return nodes
    return [lift(node, depth) for node in nodes]


def _lift_list(node: list[Any], depth: int) -> object:
    return lift_all(node[1:], depth + 1)


def _lift_tuple(node: list[Any], depth: int) -> object:
    return tuple(lift_all(node[1:], depth + 1))


def _lift_dict(node: list[Any], depth: int) -> object:
    keys, values = lift_all(node[1::2], depth + 1), lift_all(node[2::2], depth + 1)
    return _all_of(dict(zip(keys, values, strict=True)), keys)


def _lift_set(node: list[Any], depth: int) -> object:
    items = lift_all(node[1:], depth + 1)
    return _all_of(set(items), items)


def _lift_frozenset(node: list[Any], depth: int) -> object:
    items = lift_all(node[1:], depth + 1)
    return _all_of(frozenset(items), items)


def _all_of(made: Collection[object], items: Sequence[object]) -> object:
    if len(made) != len(items):
        raise ValueError("a dict or a set has an item twice")
    return made


def _lift_large_int(node: list[Any], depth: int) -> object:
    _, data = node
    return int.from_bytes(_exactly(bytes, data), "big", signed=True)


def _lift_surrogates(node: list[Any], depth: int) -> object:
    _, data = node
    return _exactly(bytes, data).decode("utf-8", "surrogatepass")


def _lift_datetime(node: list[Any], depth: int) -> object:
    _, year, month, day, hour, minute, second, microsecond, fold, zone = node
    return datetime(year, month, day, hour, minute, second, microsecond, lift_zone(zone), fold=fold)


def _lift_date(node: list[Any], depth: int) -> object:
    _, year, month, day = node
    return date(year, month, day)


def _lift_time(node: list[Any], depth: int) -> object:
    _, hour, minute, second, microsecond, fold, zone = node
    return time(hour, minute, second, microsecond, lift_zone(zone), fold=fold)


def _lift_timedelta(node: list[Any], depth: int) -> object:
    _, days, seconds, microseconds = node
    return timedelta(_exactly(int, days), _exactly(int, seconds), _exactly(int, microseconds))


def _lift_decimal(node: list[Any], depth: int) -> object:
    _, text = node
    return Decimal(_exactly(str, text))


def _lift_uuid(node: list[Any], depth: int) -> object:
    _, data, *safe = node
    return UUID(bytes=_exactly(bytes, data), is_safe=SafeUUID(*safe) if safe else SafeUUID.unknown)


def lift_zone(node: Any) -> tzinfo | None:
    """Returns the zone that ``lower_zone`` was given."""
    if node is None:
        return None
    if type(node) is str:
        from zoneinfo import ZoneInfo

        return ZoneInfo(node)
    microseconds, *name = node if type(node) is list else [node]
    offset = timedelta(microseconds=_exactly(int, microseconds))
    return timezone(offset, *name)


def _lift_record(node: list[Any], depth: int) -> object:
    _, name, signature, *nodes = node
    record = type_registry.record_of(name)
    values = lift_all(nodes, depth + 1)
    if signature != record.signature:
        values = [values[index] for index in record.order(_exactly(str, signature).split())]
    return record.build([(value,) for value in values], 1)[0]


def _lift_member(node: list[Any], depth: int) -> enum.Enum:
    _, name, member = node
    return type_registry.choice_of(name).cls[member]


def _lift_flags(node: list[Any], depth: int) -> enum.Enum:
    _, name, value = node
    return type_registry.choice_of(name).cls(lift(value, depth))


def _exactly(cls: type, value: Any) -> Any:
    if type(value) is not cls:
        raise ValueError(f"a {type(value).__name__} instead of a {cls.__name__}")
    return value


LIFTINGS: Final[dict[int, Callable[[list[Any], int], object]]] = {
    LIST: _lift_list,
    TUPLE: _lift_tuple,
    DICT: _lift_dict,
    SET: _lift_set,
    FROZENSET: _lift_frozenset,
    LARGE_INT: _lift_large_int,
    SURROGATES: _lift_surrogates,
    DATETIME: _lift_datetime,
    DATE: _lift_date,
    TIME: _lift_time,
    TIMEDELTA: _lift_timedelta,
    DECIMAL: _lift_decimal,
    UNIQUE_ID: _lift_uuid,
    RECORD: _lift_record,
    MEMBER: _lift_member,
    FLAGS: _lift_flags,
}
