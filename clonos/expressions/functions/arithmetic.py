"""Arithmetic of numbers, times and lengths of time, and rounding.

A result that its type of integers or of times does not hold is an error of its record. A division or remainder of
integers by 0 is null. Division and remainder round down.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final

import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import CannotBind
from clonos.expressions.functions.binder import Binder, BoundValue, Kernel
from clonos.expressions.functions.constants import arrow_scalar
from clonos.expressions.functions.numpy_arrays import checked, floor_divided, remainder
from clonos.expressions.functions.value_types import (
    common_type,
    is_number,
    is_text,
    is_time,
    kind_name,
    mismatch,
    settled,
    typed,
    unified,
)

OF_FLOATS: Final[dict[str, Kernel]] = {"+": compute.add, "-": compute.subtract, "*": compute.multiply}
CHECKED: Final[dict[str, Kernel]] = {
    "+": checked(compute.add_checked),
    "-": checked(compute.subtract_checked),
    "*": checked(compute.multiply_checked),
}
MICROSECONDS: Final = pyarrow.duration("us")


def arithmetic(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds + - * / // %.

    Raises: CannotBind: a type does not fit.
    """
    left, right = inputs
    function = node.function
    if _is_null(left) or _is_null(right):
        other = settled(binder, right if _is_null(left) else left)
        return binder.constant(None, pyarrow.float64() if function == "/" and is_number(other.type) else other.type)
    if is_number(left.type) and is_number(right.type):
        return _of_numbers(binder, function, left, right)
    if is_text(left.type) and is_text(right.type) and function == "+":
        return binder.call("+", _joined, *unified(binder, inputs))
    kinds = (left.type, right.type)
    if any(is_time(each) or types.is_duration(each) for each in kinds):
        found = _of_times(binder, function, left, right)
        if found is not None:
            return found
    raise CannotBind("", _no_arithmetic(function, left.type, right.type))


def _is_null(value: BoundValue) -> bool:
    return bool(types.is_null(value.type))


def _joined(left: Any, right: Any) -> Any:
    return compute.binary_join_element_wise(left, right, arrow_scalar("", left.type))


def _no_arithmetic(function: str, left: Any, right: Any) -> str:
    bools = [each for each in (left, right) if types.is_boolean(each)]
    advice = "a bool is no number: cast it with cast(int)" if bools else "cast one of them"
    if is_text(left) or is_text(right):
        advice = "cast the text to a number, or join texts with concat_str"
    return f"{kind_name(left)} {function} {kind_name(right)} is not defined; {advice}"


def _of_numbers(binder: Binder, function: str, left: BoundValue, right: BoundValue) -> BoundValue:
    type_ = common_type((left, right))
    if types.is_decimal(type_):
        return _of_decimals(binder, function, left, right)
    if function == "/" and not types.is_floating(type_):
        type_ = pyarrow.float64()
    both = [typed(binder, each, type_) for each in (left, right)]
    is_float = types.is_floating(type_)
    if function in CHECKED:
        return binder.call(function, (OF_FLOATS if is_float else CHECKED)[function], *both, type_=type_)
    if function == "/":
        return binder.call("/", compute.divide, *both, type_=type_)
    if function == "//":
        return binder.call("//", _float_floor_divided if is_float else floor_divided, *both, type_=type_)
    return binder.call("%", _float_remainder if is_float else remainder, *both, type_=type_)


def _float_floor_divided(left: Any, right: Any) -> Any:
    return compute.floor(compute.divide(left, right))


def _float_remainder(left: Any, right: Any) -> Any:
    return compute.subtract(left, compute.multiply(_float_floor_divided(left, right), right))


def _of_decimals(binder: Binder, function: str, left: BoundValue, right: BoundValue) -> BoundValue:
    if function in ("/", "//", "%"):
        both = [typed(binder, each, pyarrow.float64()) for each in (left, right)]
        if function == "/":
            return binder.call("/", compute.divide, *both, type_=pyarrow.float64())
        raise CannotBind("", f"{function} is not defined for decimals; cast them with cast(float)")
    both = [typed(binder, each, _own_decimal(each)) if each.is_literal else each for each in (left, right)]
    try:
        return binder.call(function, CHECKED[function], *both)
    except CannotBind:
        raise CannotBind("", "the result needs more than 38 digits; cast one of them with cast(float)") from None


def _own_decimal(value: BoundValue) -> Any:
    if types.is_decimal(value.type):
        return value.type
    return pyarrow.decimal128(max(1, len(str(abs(value.literal)))), 0)


def _of_times(binder: Binder, function: str, left: BoundValue, right: BoundValue) -> BoundValue | None:
    """Binds arithmetic with times and lengths of time, None if it means nothing."""
    if function == "-" and is_time(left.type) and is_time(right.type):
        type_ = common_type((left, right))
        if types.is_date32(type_):
            type_ = pyarrow.timestamp("us")
        return binder.call("-", CHECKED["-"], *(typed(binder, each, type_) for each in (left, right)))
    if function == "+" and is_time(right.type) and types.is_duration(left.type):
        left, right = right, left
    if function in "+-" and is_time(left.type) and types.is_duration(right.type):
        return _moved(binder, function, settled(binder, left), settled(binder, right))
    if types.is_duration(left.type) and types.is_duration(right.type) and function in "+-":
        return binder.call(function, CHECKED[function], *unified(binder, (left, right)))
    if function == "*" and types.is_duration(right.type):
        left, right = right, left
    if function == "*" and types.is_duration(left.type) and types.is_integer(right.type):
        factor = typed(binder, right, pyarrow.int64())
        return binder.call("*", CHECKED["*"], settled(binder, left), factor, type_=left.type)
    return None


def _moved(binder: Binder, function: str, time: BoundValue, length: BoundValue) -> BoundValue:
    if types.is_timestamp(time.type):
        return binder.call(function, CHECKED[function], time, length)
    instant = binder.cast(time, pyarrow.timestamp("us"))
    moved = binder.call(function, CHECKED[function], instant, binder.cast(length, MICROSECONDS))
    return binder.cast(moved, pyarrow.date32())


def power(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds **: integers to the power of a constant that is not negative stay integers.

    Raises: CannotBind: a type does not fit.
    """
    base, exponent = inputs
    for each in inputs:
        if not is_number(each.type) or types.is_decimal(each.type):
            raise CannotBind("", mismatch(base.type, exponent.type))
    if types.is_integer(base.type) and types.is_integer(exponent.type):
        if not exponent.is_literal or exponent.literal < 0:
            raise CannotBind("", "an integer needs a constant of at least 0 as its exponent; cast it with cast(float)")
        base = settled(binder, base)
        return binder.call(
            "**", checked(compute.power_checked), base, typed(binder, exponent, base.type), type_=base.type
        )
    return binder.call("**", compute.power, *unified(binder, inputs))


def negate(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds unary minus.

    Raises: CannotBind: a type does not fit.
    """
    value = settled(binder, inputs[0])
    if types.is_unsigned_integer(value.type):
        raise CannotBind("", f"{kind_name(value.type)} has no negative numbers; cast it with cast(int)")
    number = _number(value, or_duration=True)
    if types.is_duration(value.type):
        return binder.call("-", CHECKED["-"], binder.constant(timedelta(), value.type), number, type_=value.type)
    kernel = compute.negate if types.is_floating(value.type) else checked(compute.negate_checked)
    return binder.call("negate", kernel, number, type_=value.type)


def absolute(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds abs."""
    value = _number(settled(binder, inputs[0]))
    if types.is_unsigned_integer(value.type):
        return value
    kernel = compute.abs if types.is_floating(value.type) else checked(compute.abs_checked)
    return binder.call("abs", kernel, value, type_=value.type)


def rounded(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds round; integers stay as they are."""
    value = _number(settled(binder, inputs[0]))
    if types.is_integer(value.type):
        return value
    mode = "half_to_even" if node.option("mode") is None else "half_towards_infinity"
    decimals = node.option("decimals", 0)
    is_plain = types.is_decimal(value.type) or not decimals
    kernel = partial(compute.round, ndigits=decimals, round_mode=mode) if is_plain else partial(_round, decimals, mode)
    return binder.call("round", kernel, value, type_=value.type, options=(decimals, mode))


def _round(decimals: int, mode: str, column: Any) -> Any:
    """Rounds floats after the point as Polars does; Arrow leaves 771.8000000000001 as it is."""
    factor = 10.0**decimals
    scaled = compute.multiply(compute.cast(column, pyarrow.float64()), factor)
    found = compute.divide(compute.round(scaled, ndigits=0, round_mode=mode), factor)
    return compute.if_else(compute.is_finite(found), compute.cast(found, column.type, safe=False), column)


def floor_or_ceil(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds floor and ceil; integers stay as they are."""
    value = _number(settled(binder, inputs[0]))
    if types.is_integer(value.type):
        return value
    kernel = compute.floor if node.function == "floor" else compute.ceil
    return binder.cast(binder.call(node.function, kernel, value), value.type)


def clip(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds clip; a bound that is null does not limit."""
    value = settled(binder, inputs[0])
    for bound, kernel in zip(inputs[1:], (_raised, _lowered), strict=True):
        if not types.is_null(bound.type):
            common_type((value, bound))
            limit = _as_bound(binder, bound, value.type)
            value = binder.call(kernel.__name__, kernel, value, limit, type_=value.type)
    return value


def _as_bound(binder: Binder, bound: BoundValue, type_: Any) -> BoundValue:
    if bound.is_literal and types.is_integer(type_):
        return binder.constant(int(bound.literal), type_)
    return typed(binder, bound, type_)


def _raised(column: Any, bound: Any) -> Any:
    return _replaced(compute.less(column, bound), bound, column)


def _lowered(column: Any, bound: Any) -> Any:
    return _replaced(compute.greater(column, bound), bound, column)


def _replaced(condition: Any, bound: Any, column: Any) -> Any:
    return compute.if_else(compute.fill_null(condition, False), bound, column)


def _number(value: BoundValue, *, or_duration: bool = False) -> BoundValue:
    if is_number(value.type) or (or_duration and types.is_duration(value.type)):
        return value
    raise CannotBind("", f"it needs a number and gets {kind_name(value.type)}")


FUNCTIONS: Final = {
    **dict.fromkeys(("+", "-", "*", "/", "//", "%"), arithmetic),
    "**": power,
    "negate": negate,
    "abs": absolute,
    "round": rounded,
    "floor": floor_or_ceil,
    "ceil": floor_or_ceil,
    "clip": clip,
}
