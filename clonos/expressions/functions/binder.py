"""Binder: collects the calls of Arrow and numpy that compute expressions over one schema, each of them once.

A value has a number, the index of a register in which a run keeps its array. After a filter a value has another
number; what was computed in front of it is filtered rather than computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow
import pyarrow.compute

from clonos.expressions.expression_errors import CannotBind
from clonos.expressions.functions.constants import arrow_scalar

Kernel = Callable[..., Any]
"""Function of arrays or scalars of Arrow."""

ARROW_ERRORS: Final = (pyarrow.ArrowException, ValueError, TypeError, KeyError)


class BoundValue(NamedTuple):
    """Result of a call, a column or a constant. ``is_literal``: a constant of Python, whose type adapts to others."""

    number: int
    type: Any
    is_literal: bool = False
    literal: Any = None


class BoundCall(NamedTuple):
    """Computes a register from others. ``text`` is the expression, ``stage`` the number of its step."""

    kernel: Kernel
    inputs: tuple[int, ...]
    output: int
    text: str
    stage: int


class FilterCall(NamedTuple):
    """Leaves the rows for which a register is true in registers (before, behind)."""

    mask: int
    pairs: list[tuple[int, int]]
    stage: int


class Binder:
    """Calls of a program. ``text`` and ``stage`` are those of the expression that is bound now."""

    def __init__(self) -> None:
        self.calls: list[BoundCall | FilterCall] = []
        self.constants: dict[int, Any] = {}
        self.text = ""
        self.stage = 0
        self._types: list[Any] = []
        self._known: dict[tuple[Any, ...], BoundValue] = {}
        self._before: dict[int, int] = {}  # after a filter: number of a value in front of it
        self._behind: dict[int, BoundValue] = {}

    @property
    def registers(self) -> int:
        """Number of registers."""
        return len(self._types)

    def new_value(self, type_: Any) -> BoundValue:
        """Returns a value with a register of its own."""
        self._types.append(type_)
        return BoundValue(len(self._types) - 1, type_)

    def constant(self, value: Any, type_: Any) -> BoundValue:
        """Returns a typed constant. ``value`` is one of Python, or a scalar of that type."""
        scalar = value if isinstance(value, pyarrow.Scalar) else arrow_scalar(value, type_)
        key = ("constant", str(type_), repr(scalar))
        if key not in self._known:
            found = self.new_value(type_)
            self.constants[found.number] = scalar
            self._known[key] = found
        return self._known[key]

    def is_constant(self, value: BoundValue) -> bool:
        """Returns whether a value is the same for all records."""
        return value.number in self.constants

    def scalar(self, value: BoundValue) -> Any:
        """Returns a constant as Arrow's scalar, None if the value is none."""
        return self.constants.get(value.number)

    def call(self, name: str, kernel: Kernel, *inputs: BoundValue, type_: Any = None, options: Any = ()) -> BoundValue:
        """Returns the result of a kernel; a call of the same name, options and inputs is not repeated.

        ``type_``: the type of the result; None to find it out.

        Raises: CannotBind: the kernel does not take the types.
        """
        numbers = tuple(each.number for each in inputs)
        key = (name, repr(options), *numbers)
        if key in self._known:
            return self._known[key]
        sources = tuple(self._before.get(number, number) for number in numbers)
        if sources != numbers and (earlier := self._known.get((name, repr(options), *sources))) is not None:
            return self.after_filter(earlier)
        if type_ is None:
            type_ = self._type_of_result(kernel, inputs)
        found = self._folded(kernel, inputs, type_)
        if found is None:
            found = self.new_value(type_)
            self.calls.append(BoundCall(kernel, numbers, found.number, self.text, self.stage))
        self._known[key] = found
        return found

    def _folded(self, kernel: Kernel, inputs: Sequence[BoundValue], type_: Any) -> BoundValue | None:
        """Returns the result of a call with constants only."""
        if not inputs or not all(map(self.is_constant, inputs)):
            return None
        try:
            scalar = kernel(*(self.constants[each.number] for each in inputs))
        except ARROW_ERRORS:
            return None  # it fails for the records, if there are any
        return self.constant(scalar, type_) if isinstance(scalar, pyarrow.Scalar) else None

    def _type_of_result(self, kernel: Kernel, inputs: Sequence[BoundValue]) -> Any:
        empty = [self.constants.get(each.number, pyarrow.nulls(0, each.type)) for each in inputs]
        try:
            return kernel(*empty).type
        except ARROW_ERRORS as error:
            types = " and ".join(str(each.type) for each in inputs)
            raise CannotBind("", f"it does not take {types} ({str(error).splitlines()[0]:.120})") from None

    def cast(self, value: BoundValue, type_: Any) -> BoundValue:
        """Returns a value as a type that holds it, or nearly: integers as floats, for example."""
        if value.type == type_:
            return value
        is_time = pyarrow.types.is_timestamp(type_) or pyarrow.types.is_duration(type_)
        may_overflow = is_time and getattr(value.type, "unit", "") != "ns"
        return self.call(
            "as",
            lambda column: pyarrow.compute.cast(column, type_, safe=may_overflow),
            value,
            type_=type_,
            options=str(type_),
        )

    def plain(self, value: BoundValue) -> BoundValue:
        """Returns a value without a dictionary and without a view, which few kernels take."""
        type_ = value.type
        if pyarrow.types.is_dictionary(type_):
            return self.plain(self.cast(value, type_.value_type))
        if type_ in PLAIN_TYPES:
            return self.cast(value, PLAIN_TYPES[type_])
        return value

    def filter(self, mask: BoundValue) -> None:
        """Leaves the records for which ``mask`` is true; ``after_filter`` returns values after it."""
        self.calls.append(FilterCall(mask.number, [], self.stage))
        self._before, self._behind = {}, {}

    def after_filter(self, value: BoundValue) -> BoundValue:
        """Returns a value in front of the last filter as it is after it."""
        if self.is_constant(value) or value.is_literal:
            return value
        if value.number not in self._behind:
            found = self.new_value(value.type)
            last = next(call for call in reversed(self.calls) if isinstance(call, FilterCall))
            last.pairs.append((value.number, found.number))
            self._behind[value.number] = found
            self._before[found.number] = value.number
        return self._behind[value.number]


PLAIN_TYPES: Final = {pyarrow.string_view(): pyarrow.string(), pyarrow.binary_view(): pyarrow.binary()}
