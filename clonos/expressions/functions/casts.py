"""Casts. A strict cast fails for a value that the type cannot hold; otherwise such a value becomes null."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import CannotBind, NotComputable
from clonos.expressions.functions.binder import Binder, BoundValue, Kernel
from clonos.expressions.functions.constants import arrow_scalar
from clonos.expressions.functions.numpy_arrays import floor_divided
from clonos.expressions.functions.value_types import is_bytes, is_number, is_text, is_time, kind_name, settled
from clonos.expressions.functions.zones import PER_SECOND
from clonos.expressions.type_names import arrow_type

WHOLE: Final = r"^[+-]?[0-9]+$"
FLOAT: Final = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity|nan)$"
SIGN: Final = r"^\+([0-9])"
HEXADECIMAL: Final = "x"

REFUSED: Final = "a cast from {} to {} is not defined"


def cast(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds cast."""
    value, type_ = binder.plain(settled(binder, inputs[0])), arrow_type(node.option("dtype"))
    if value.type == type_:
        return value
    if types.is_null(value.type):
        return binder.constant(None, type_)
    is_strict = node.option("strict") is not False
    kernel = _kernel(value.type, type_, is_strict)
    return binder.call("cast", kernel, value, type_=type_, options=(str(type_), is_strict))


def _kernel(given: Any, wanted: Any, is_strict: bool) -> Kernel:
    """Returns the kernel of a cast.

    Raises: CannotBind: there is none.
    """
    if is_number(given) and is_number(wanted):
        return _of_numbers(given, wanted, is_strict)
    if types.is_boolean(given) and (is_number(wanted) or is_text(wanted)):
        return _plain(wanted)
    if types.is_boolean(wanted) and is_number(given):
        return _plain(wanted)
    if is_text(wanted) and (is_number(given) or is_time(given) or is_text(given)):
        return _plain(wanted)
    if is_text(given) and is_number(wanted):
        return _of_text(wanted, is_strict)
    if is_text(given) and is_time(wanted) and is_strict:
        return _failing(wanted, lambda column: compute.cast(column, wanted))
    if is_time(given) and is_time(wanted):
        return _of_times(given, wanted)
    if _is_count(given) and types.is_integer(wanted):
        return lambda column: compute.cast(compute.cast(_in_utc(column), _count_type(given)), wanted)
    if types.is_integer(given) and _is_count(wanted):
        return lambda column: compute.cast(compute.cast(column, _count_type(wanted)), wanted)
    if types.is_duration(given) and types.is_duration(wanted):
        is_finer = PER_SECOND[wanted.unit] > PER_SECOND[given.unit]
        return _failing(wanted, lambda column: compute.cast(column, wanted)) if is_finer else _plain(wanted)
    if (is_bytes(given) or is_text(given)) and (is_bytes(wanted) or is_text(wanted)):
        return _failing(wanted, lambda column: compute.cast(column, wanted))
    advice = "" if is_strict or not is_text(given) else " with strict=False"
    raise CannotBind("", REFUSED.format(kind_name(given), kind_name(wanted)) + advice)


def _is_count(type_: Any) -> bool:
    return is_time(type_) or bool(types.is_duration(type_))


def _count_type(type_: Any) -> Any:
    """Returns the type of the numbers that a date, timestamp or length of time is made of."""
    return pyarrow.int32() if types.is_date32(type_) else pyarrow.int64()


def _plain(wanted: Any) -> Kernel:
    return lambda column: compute.cast(column, wanted, safe=False)


def _failing(wanted: Any, convert: Callable[[Any], Any]) -> Kernel:
    """Returns a kernel whose error shows the first value of those that it gets."""

    def checked(column: Any) -> Any:
        try:
            return convert(column)
        except pyarrow.ArrowInvalid as error:
            raise NotComputable(_failure(column, kind_name(wanted), error)) from None

    return checked


def _failure(column: Any, wanted: str, error: Exception) -> str:
    values = [column] if isinstance(column, pyarrow.Scalar) else column
    with suppress(OverflowError, ValueError):  # a time that Python does not have
        if len(values) == 1:  # the record that fails, as the step finds it
            return f"{values[0].as_py()!r:.80} is no {wanted}"
    return f"a value is no {wanted} ({str(error).splitlines()[0]:.120})"


def _of_numbers(given: Any, wanted: Any, is_strict: bool) -> Kernel:
    if types.is_floating(wanted):
        is_narrower = wanted.bit_width < (given.bit_width if types.is_floating(given) else 32)
        return _failing(wanted, partial(_narrowed, wanted)) if is_strict and is_narrower else _plain(wanted)
    if types.is_floating(given) and types.is_integer(wanted):
        whole = compute.trunc
    elif types.is_decimal(given) and types.is_integer(wanted):
        whole = _truncated_decimal
    else:
        whole = None

    def convert(column: Any) -> Any:
        return compute.cast(column if whole is None else whole(column), wanted)

    if is_strict:
        return _failing(wanted, convert)
    if not types.is_integer(wanted):
        raise CannotBind("", REFUSED.format(kind_name(given), kind_name(wanted)) + " with strict=False")
    return lambda column: convert(_within(column, wanted))


def _narrowed(wanted: Any, column: Any) -> Any:
    """Returns numbers as narrower floats. Raises: pyarrow.ArrowInvalid: one would become infinite."""
    found = compute.cast(column, wanted, safe=False)
    wide, narrow = (compute.is_inf(compute.cast(each, pyarrow.float64())) for each in (column, found))
    if compute.any(compute.and_not(narrow, wide)).as_py():
        raise pyarrow.ArrowInvalid("a number is beyond its range")
    return found


def _truncated_decimal(column: Any) -> Any:
    return compute.round(column, ndigits=0, round_mode="towards_zero")


def _within(column: Any, wanted: Any) -> Any:
    """Returns numbers with null in place of those that an integer type does not hold."""
    bits, is_signed = wanted.bit_width, types.is_signed_integer(wanted)
    low, above = (-(1 << bits - 1), 1 << bits - 1) if is_signed else (0, 1 << bits)
    type_ = column.type
    if types.is_floating(type_):
        whole = compute.trunc(column)
        holds = compute.and_(compute.greater_equal(whole, float(low)), compute.less(whole, float(above)))
        return compute.if_else(holds, column, None)
    both = compute.cast(column, pyarrow.decimal128(38, 0)) if types.is_integer(type_) else column
    limits = [arrow_scalar(Decimal(each), pyarrow.decimal128(38, 0)) for each in (low, above - 1)]
    holds = compute.and_(compute.greater_equal(both, limits[0]), compute.less_equal(both, limits[1]))
    return compute.if_else(holds, column, None)


def _of_text(wanted: Any, is_strict: bool) -> Kernel:
    is_whole = types.is_integer(wanted)
    if is_strict:
        return _failing(wanted, _parsed_whole(wanted) if is_whole else lambda column: compute.cast(column, wanted))
    if not is_whole and not types.is_floating(wanted):
        raise CannotBind("", REFUSED.format("string", kind_name(wanted)) + " with strict=False")
    pattern = WHOLE if is_whole else FLOAT

    def convert(column: Any) -> Any:
        found = compute.if_else(compute.match_substring_regex(column, pattern=pattern), column, None)
        if not is_whole:
            return compute.cast(found, wanted)
        # 38 digits are more than any integer has; a text that is longer counts as too large.
        is_short = compute.less(compute.utf8_length(found), 38)
        plain = compute.replace_substring_regex(compute.if_else(is_short, found, None), SIGN, r"\1")
        return compute.cast(_within(compute.cast(plain, pyarrow.decimal128(38, 0)), wanted), wanted)

    return convert


def _parsed_whole(wanted: Any) -> Kernel:
    def parsed(column: Any) -> Any:
        is_hexadecimal = compute.any(compute.match_substring(column, HEXADECIMAL, ignore_case=True))
        if is_hexadecimal.as_py():
            raise pyarrow.ArrowInvalid("a text has a letter")
        try:
            return compute.cast(column, wanted)
        except pyarrow.ArrowInvalid:  # Arrow takes no plus sign
            return compute.cast(compute.replace_substring_regex(column, SIGN, r"\1"), wanted)

    return parsed


def _in_utc(column: Any) -> Any:
    type_ = column.type
    if types.is_timestamp(type_) and type_.tz not in (None, "UTC"):
        return compute.cast(column, pyarrow.timestamp(type_.unit, "UTC"))
    return column


def _of_times(given: Any, wanted: Any) -> Kernel:
    if types.is_timestamp(given) and types.is_date32(wanted):
        return lambda column: compute.cast(_in_utc(column), wanted, safe=False)
    if types.is_timestamp(given) and PER_SECOND[given.unit] > PER_SECOND[wanted.unit]:
        divisor = arrow_scalar(PER_SECOND[given.unit] // PER_SECOND[wanted.unit], pyarrow.int64())
        return lambda column: compute.cast(floor_divided(compute.cast(column, pyarrow.int64()), divisor), wanted)
    return _failing(wanted, lambda column: compute.cast(column, wanted))


def as_text(binder: Binder, value: BoundValue) -> BoundValue:
    """Returns a value as a text, for concat_str.

    Raises: CannotBind: it has none.
    """
    if is_text(value.type):
        return value
    if types.is_null(value.type):
        return binder.constant(None, pyarrow.string())
    kernel = _kernel(value.type, pyarrow.string(), True)
    return binder.call("cast", kernel, value, type_=pyarrow.string(), options=("string", True))


FUNCTIONS: Final = {"cast": cast}
