"""Comparisons, Boolean operators and nulls. NaN equals NaN and is greater than any number, as Polars has it."""

from __future__ import annotations

import math
from typing import Any, Final

import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import CannotBind
from clonos.expressions.functions.binder import Binder, BoundValue, Kernel
from clonos.expressions.functions.constants import arrow_array
from clonos.expressions.functions.value_types import (
    joined_type,
    kind_name,
    literal_type,
    mismatch,
    settled,
    typed,
    unified,
)

KERNELS: Final[dict[str, Kernel]] = {
    "==": compute.equal,
    "!=": compute.not_equal,
    "<": compute.less,
    "<=": compute.less_equal,
    ">": compute.greater,
    ">=": compute.greater_equal,
}

SWAPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

KLEENE: Final[dict[str, Kernel]] = {"&": compute.and_kleene, "|": compute.or_kleene, "^": compute.xor}

BOUNDS: Final = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}

BIG_INTEGER: Final = pyarrow.decimal128(20, 0)
"""Type that holds integers of 64 bits with and without a sign."""


def comparison(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds == != < <= > >=."""
    return compared(binder, node.function, *inputs)


def compared(binder: Binder, function: str, left: BoundValue, right: BoundValue) -> BoundValue:
    """Binds a comparison of two values.

    Raises: CannotBind: a type does not fit.
    """
    if left.is_literal and not right.is_literal:
        return compared(binder, SWAPPED[function], right, left)
    if types.is_null(left.type) or types.is_null(right.type):
        return binder.constant(None, pyarrow.bool_())
    if all(types.is_integer(each.type) for each in (left, right)) and joined_type(left.type, right.type) is None:
        both = [typed(binder, each, BIG_INTEGER) for each in (left, right)]
    else:
        both = unified(binder, (left, right))
    kernel = KERNELS[function]
    if types.is_floating(both[0].type):
        number = right.literal if right.is_literal else None
        kernel = _with_constant(function) if number is not None and not math.isnan(number) else _with_nans(function)
    elif types.is_nested(both[0].type):
        raise CannotBind("", f"{kind_name(both[0].type)} cannot be compared")
    return binder.call(function, kernel, *both, type_=pyarrow.bool_())


def _with_constant(function: str) -> Kernel:
    """Returns the comparison of floats with a number: NaN is greater."""
    if function in (">", ">="):
        opposite = compute.less_equal if function == ">" else compute.less
        return lambda left, right: compute.invert(opposite(left, right))
    return KERNELS[function]


def _with_nans(function: str) -> Kernel:
    if function in ("<", "<="):
        swapped = _with_nans(SWAPPED[function])
        return lambda left, right: swapped(right, left)
    return {
        "==": _equal,
        "!=": lambda left, right: compute.invert(_equal(left, right)),
        ">": _greater,
        ">=": _not_less,
    }[function]


def _equal(left: Any, right: Any) -> Any:
    return compute.or_(compute.equal(left, right), compute.and_(compute.is_nan(left), compute.is_nan(right)))


def _greater(left: Any, right: Any) -> Any:
    is_above = compute.and_(compute.is_nan(left), compute.invert(compute.is_nan(right)))
    return compute.or_(compute.greater(left, right), is_above)


def _not_less(left: Any, right: Any) -> Any:
    return compute.or_(compute.greater_equal(left, right), compute.is_nan(left))


def boolean(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds & | ^ of bools.

    Raises: CannotBind: one of them is a number or another constant.
    """
    for each in inputs:
        if each.is_literal and not types.is_boolean(each.type) and not types.is_null(each.type):
            problem = (
                f"{node.function} binds more tightly than a comparison, so it takes {each.literal!r:.40}; put each"
                f' comparison in parentheses: (col("x") > 1) {node.function} (col("y") < 5)'
            )
            raise CannotBind("", problem)
    both = [condition(binder, each) for each in inputs]
    return binder.call(node.function, KLEENE[node.function], *both, type_=pyarrow.bool_())


def invert(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds ~ of a bool."""
    return binder.call("invert", compute.invert, condition(binder, inputs[0]), type_=pyarrow.bool_())


def condition(binder: Binder, value: BoundValue) -> BoundValue:
    """Returns a bool.

    Raises: CannotBind: the value is something else.
    """
    if types.is_null(value.type):
        return binder.constant(None, pyarrow.bool_())
    if not types.is_boolean(value.type):
        raise CannotBind("", f"it needs a condition and gets {kind_name(value.type)}; compare it, as in (...) != 0")
    return settled(binder, value)


def null_test(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds is_null and is_not_null."""
    kernel = compute.is_null if node.function == "is_null" else compute.is_valid
    return binder.call(node.function, kernel, settled(binder, inputs[0]), type_=pyarrow.bool_())


def nan_test(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds is_nan.

    Raises: CannotBind: a type does not fit.
    """
    value = settled(binder, inputs[0])
    if not types.is_floating(value.type):
        raise CannotBind("", f"it needs a float and gets {kind_name(value.type)}; is_null() tests for nulls")
    return binder.call("is_nan", compute.is_nan, value, type_=pyarrow.bool_())


def coalesce(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds coalesce and fill_null."""
    both = unified(binder, inputs)
    return both[0] if len(both) == 1 else binder.call("coalesce", compute.coalesce, *both, type_=both[0].type)


def is_between(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds is_between."""
    value, lower, upper = inputs
    above, below = BOUNDS[node.option("closed", "both")]
    both = compared(binder, above, value, lower), compared(binder, below, value, upper)
    return binder.call("&", compute.and_kleene, *both, type_=pyarrow.bool_())


def is_in(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds is_in; null is in no list.

    Raises: CannotBind: a type does not fit.
    """
    value = settled(binder, inputs[0])
    wanted = [each for each in node.option("values") if each is not None]
    type_ = value.type
    for each in wanted:
        joined = joined_type(type_, literal_type(each))
        if joined is None and types.is_integer(type_):
            joined = BIG_INTEGER
        if joined is None:
            raise CannotBind("", f"the list has {each!r:.80}: {mismatch(type_, literal_type(each))}")
        type_ = joined
    constants = arrow_array([_constant(each, type_) for each in wanted], type_)
    found = binder.call(
        "is_in",
        lambda column: _is_member(column, constants),
        binder.cast(value, type_),
        type_=pyarrow.bool_(),
        options=node.option("values"),
    )
    return found


def _constant(value: Any, type_: Any) -> Any:
    if types.is_timestamp(type_) or types.is_date32(type_):
        return pyarrow.scalar(value, literal_type(value)).cast(type_).as_py()
    return value


def _is_member(column: Any, constants: Any) -> Any:
    if types.is_floating(column.type):  # a search by hashes would tell 0.0 from -0.0, which are equal
        column, constants = (compute.add(each, pyarrow.scalar(0.0, each.type)) for each in (column, constants))
    found = compute.is_in(column, value_set=constants)
    return compute.if_else(compute.is_valid(column), found, None)


FUNCTIONS: Final = {
    **dict.fromkeys(KERNELS, comparison),
    **dict.fromkeys(KLEENE, boolean),
    "invert": invert,
    "is_null": null_test,
    "is_not_null": null_test,
    "is_nan": nan_test,
    "fill_null": coalesce,
    "coalesce": coalesce,
    "is_between": is_between,
    "is_in": is_in,
}
