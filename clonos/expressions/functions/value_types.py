"""Types of values: the common type of several operands, and the types that constants take beside columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow
from pyarrow import types

from clonos.expressions.expression_errors import CannotBind
from clonos.expressions.functions.binder import Binder, BoundValue
from clonos.expressions.functions.constants import arrow_scalar, decimal_type

UNITS: Final = ("s", "ms", "us", "ns")
SIGNED: Final = tuple(map(pyarrow.type_for_alias, ("int8", "int16", "int32", "int64")))
UNSIGNED: Final = tuple(map(pyarrow.type_for_alias, ("uint8", "uint16", "uint32", "uint64")))
NARROW_BITS: Final = 16
"""Bits of the integers that a float of 32 bits holds exactly, so that both stay one."""


def is_text(type_: Any) -> bool:
    """Returns whether values are texts."""
    return bool(types.is_string(type_) or types.is_large_string(type_))


def is_bytes(type_: Any) -> bool:
    """Returns whether values are bytes."""
    return bool(types.is_binary(type_) or types.is_large_binary(type_))


def is_number(type_: Any) -> bool:
    """Returns whether values are integers, floats or decimals; bools are none."""
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_))


def is_time(type_: Any) -> bool:
    """Returns whether values are dates or timestamps."""
    return bool(types.is_date32(type_) or types.is_timestamp(type_))


def joined_type(left: Any, right: Any) -> Any | None:
    """Returns the type that holds the values of two types, None if there is none."""
    if left == right or types.is_null(right):
        return left
    if types.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return _joined_number(left, right)
    if is_text(left) and is_text(right):
        return pyarrow.large_string()
    if is_bytes(left) and is_bytes(right):
        return pyarrow.large_binary()
    if is_time(left) and is_time(right):
        return _joined_time(left, right)
    if types.is_duration(left) and types.is_duration(right):
        return pyarrow.duration(_finer(left, right))
    return None


def _joined_number(left: Any, right: Any) -> Any | None:
    if types.is_floating(left) or types.is_floating(right):
        floats = [each for each in (left, right) if types.is_floating(each)]
        whole = [each for each in (left, right) if not types.is_floating(each)]
        is_wide = any(each.bit_width == 64 for each in floats)
        is_wide |= any(types.is_decimal(each) or each.bit_width > NARROW_BITS for each in whole)
        return pyarrow.float64() if is_wide else pyarrow.float32()
    if types.is_decimal(left) or types.is_decimal(right):
        return _joined_decimal(left, right)
    if types.is_signed_integer(left) == types.is_signed_integer(right):
        return left if left.bit_width >= right.bit_width else right
    signed, unsigned = (left, right) if types.is_signed_integer(left) else (right, left)
    wanted = max(signed.bit_width, 2 * unsigned.bit_width)
    return next((each for each in SIGNED if each.bit_width == wanted), None)


def _joined_decimal(left: Any, right: Any) -> Any | None:
    both = [each if types.is_decimal(each) else pyarrow.decimal128(20, 0) for each in (left, right)]
    scale = max(each.scale for each in both)
    precision = max(each.precision - each.scale for each in both) + scale
    return pyarrow.decimal128(precision, scale) if precision <= 38 else None


def _joined_time(left: Any, right: Any) -> Any | None:
    if types.is_date32(left) or types.is_date32(right):
        return right if types.is_date32(left) else left
    if (left.tz is None) != (right.tz is None):
        return None
    return pyarrow.timestamp(_finer(left, right), left.tz if left.tz == right.tz else "UTC")


def _finer(left: Any, right: Any) -> str:
    return UNITS[max(UNITS.index(left.unit), UNITS.index(right.unit))]


def literal_type(value: Any) -> Any:
    """Returns the type of a constant beside other constants only."""
    if value is None:
        return pyarrow.null()
    if isinstance(value, bool):
        return pyarrow.bool_()
    if isinstance(value, int):
        return next(each for each in (SIGNED[2], SIGNED[3], UNSIGNED[3]) if fits(value, each))
    if isinstance(value, datetime):
        return pyarrow.timestamp("us", None if value.tzinfo is None else "UTC")
    if isinstance(value, date):
        return pyarrow.date32()
    if isinstance(value, timedelta):
        return pyarrow.duration("us")
    if isinstance(value, float):
        return pyarrow.float64()
    if isinstance(value, str):
        return pyarrow.string()
    return (type(value) is Decimal and decimal_type(value)) or pyarrow.scalar(value).type


def fits(value: int, type_: Any) -> bool:
    """Returns whether an integer type holds a value."""
    bits = type_.bit_width
    if types.is_signed_integer(type_):
        return bool(-(1 << bits - 1) <= value < 1 << bits - 1)
    return bool(0 <= value < 1 << bits)


def _type_beside(type_: Any, value: Any) -> Any | None:
    """Returns the type of columns of ``type_`` beside a constant."""
    if value is None:
        return type_
    if type(value) is int and is_number(type_):
        if types.is_floating(type_) or (types.is_integer(type_) and fits(value, type_)):
            return type_
        if types.is_decimal(type_):
            return joined_type(type_, pyarrow.decimal128(max(1, len(str(abs(value)))), 0))
        own = UNSIGNED if value >= 0 and types.is_unsigned_integer(type_) else SIGNED
        return next((joined_type(type_, each) for each in own if fits(value, each)), None)
    if isinstance(value, float) and is_number(type_):
        return type_ if types.is_floating(type_) else pyarrow.float64()
    return joined_type(type_, literal_type(value))


def common_type(values: Sequence[BoundValue]) -> Any:
    """Returns the type that holds all values.

    Raises: CannotBind: there is none.
    """
    literals = [each for each in values if each.is_literal]
    typed = [each for each in values if not each.is_literal] or literals[:1]
    found = typed[0].type
    for each in typed[1:]:
        found = _of_both(found, each.type, joined_type(found, each.type))
    for each in literals:
        found = _of_both(found, each.type, _type_beside(found, each.literal))
    return found


def _of_both(left: Any, right: Any, joined: Any | None) -> Any:
    if joined is None:
        raise CannotBind("", mismatch(left, right))
    return joined


def mismatch(left: Any, right: Any) -> str:
    """Returns why two types do not go together, and what helps."""
    names = f"{kind_name(left)} and {kind_name(right)} have no common type"
    if is_time(left) and is_time(right):
        return f"{names}: one has a time zone; cast the other, as with cast(datetime), which has UTC"
    if is_text(left) != is_text(right):
        other = right if is_text(left) else left
        if is_time(other):
            return f"{names}: cast the text, or give a datetime, with tzinfo=UTC for a timestamp in UTC"
    return f"{names}: cast one of them"


def kind_name(type_: Any) -> str:
    """Returns the name of a type for messages."""
    return "null" if types.is_null(type_) else str(type_)


def typed(binder: Binder, value: BoundValue, type_: Any) -> BoundValue:
    """Returns a value as one of a type that holds it."""
    if not value.is_literal:
        return binder.cast(value, type_)
    literal = value.literal
    if literal is None or types.is_integer(type_):
        return binder.constant(literal, type_)
    if types.is_floating(type_):
        return binder.constant(float(literal), type_)
    if types.is_decimal(type_):
        return binder.constant(Decimal(literal), type_)
    if isinstance(literal, datetime) and literal.tzinfo is not None:
        literal = literal.astimezone(UTC)
    return binder.constant(arrow_scalar(literal, value.type).cast(type_), type_)


def settled(binder: Binder, value: BoundValue) -> BoundValue:
    """Returns a value with a type of its own, whatever stands beside it."""
    return typed(binder, value, value.type) if value.is_literal else value


def unified(binder: Binder, values: Sequence[BoundValue]) -> list[BoundValue]:
    """Returns values of one type, which holds all of them.

    Raises: CannotBind: there is none.
    """
    type_ = common_type(values)
    return [typed(binder, each, type_) for each in values]
