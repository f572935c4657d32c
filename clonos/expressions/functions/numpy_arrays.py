"""Kernels of numpy between arrays of Arrow, without a copy of the numbers where there are no nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy
import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from clonos.expressions.expression_errors import NotComputable
from clonos.expressions.functions.constants import arrow_scalar
from clonos.expressions.functions.value_types import kind_name

DOES_NOT_FIT: Final = "a result does not fit {}; cast a part to a larger type, or to float"


def numbers_of(column: Any) -> Any:
    """Returns the numbers of an Arrow array or scalar of integers or times; where there are nulls, any number."""
    type_ = numpy.dtype(numpy.int64 if types.is_temporal(column.type) else column.type.to_pandas_dtype())
    if isinstance(column, pyarrow.Scalar):
        return type_.type(column.as_py())
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return numpy.zeros(len(column), type_)
    return numpy.frombuffer(buffer, type_, len(column), column.offset * type_.itemsize)


def with_numbers(numbers: Any, type_: Any, *columns: Any) -> Any:
    """Returns an Arrow array of numbers that is null wherever one of the columns is."""
    nulls = None
    for column in columns:
        if isinstance(column, pyarrow.Scalar):
            if not column.is_valid:
                return pyarrow.nulls(len(numbers), type_)
        elif column.null_count:
            mask = column.is_null().to_numpy(zero_copy_only=False)
            nulls = mask if nulls is None else nulls | mask
    if nulls is None and types.is_integer(type_) and numbers.dtype == type_.to_pandas_dtype():
        numbers = numpy.ascontiguousarray(numbers)
        return pyarrow.Array.from_buffers(type_, len(numbers), [None, pyarrow.py_buffer(numbers)])
    return pyarrow.array(numbers, type_, mask=nulls)


def checked(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a kernel whose error says that a result does not fit its type."""

    def computed(*columns: Any) -> Any:
        try:
            return kernel(*columns)
        except pyarrow.ArrowInvalid:
            raise NotComputable(DOES_NOT_FIT.format(kind_name(columns[0].type))) from None

    return computed


def by_zero_null(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a kernel for a division of integers that is null where the divisor is 0."""

    def divided(left: Any, right: Any) -> Any:
        if isinstance(left, pyarrow.Scalar) and isinstance(right, pyarrow.Scalar):
            return divided(pyarrow.array([left.as_py()], left.type), right)[0]
        type_ = left.type
        if isinstance(left, pyarrow.Scalar) and not left.is_valid:
            return pyarrow.nulls(len(right), type_)
        if isinstance(right, pyarrow.Scalar) and (not right.is_valid or right.as_py() == 0):
            return pyarrow.nulls(len(left), type_)
        divisor = numbers_of(right)
        is_zero = divisor == 0
        with numpy.errstate(all="ignore"):
            if isinstance(right, pyarrow.Scalar) or not is_zero.any():
                return with_numbers(function(numbers_of(left), divisor), type_, left, right)
            found = function(numbers_of(left), numpy.where(is_zero, divisor.dtype.type(1), divisor))
        result = with_numbers(found, type_, left, right)
        return compute.if_else(pyarrow.array(is_zero), arrow_scalar(None, type_), result)

    return divided


def _floor_divided(left: Any, right: Any) -> Any:
    """Divides numbers. Raises: NotComputable: the only result that does not fit, of the least number and -1."""
    type_ = numpy.result_type(left, right)
    if type_.kind == "i" and ((right == -1) & (left == numpy.iinfo(type_).min)).any():
        raise NotComputable(DOES_NOT_FIT.format(type_))
    return numpy.floor_divide(left, right)


floor_divided = by_zero_null(_floor_divided)
remainder = by_zero_null(numpy.remainder)
