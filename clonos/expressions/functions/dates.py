"""Functions of dates and timestamps. Parts of a timestamp, and intervals, are those of its time zone."""

from __future__ import annotations

from typing import Any, Final

import numpy
import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import CannotBind
from clonos.expressions.functions.binder import Binder, BoundValue, Kernel
from clonos.expressions.functions.constants import arrow_scalar
from clonos.expressions.functions.numpy_arrays import checked, floor_divided, numbers_of, with_numbers
from clonos.expressions.functions.value_types import is_time, kind_name, settled
from clonos.expressions.functions.zones import PER_SECOND, instants, wall_times
from clonos.expressions.periods import Period, parsed_period

PARTS: Final[dict[str, tuple[Kernel, Any]]] = {
    "dt.year": (compute.year, pyarrow.int32()),
    "dt.month": (compute.month, pyarrow.int8()),
    "dt.day": (compute.day, pyarrow.int8()),
    "dt.hour": (compute.hour, pyarrow.int8()),
    "dt.minute": (compute.minute, pyarrow.int8()),
    "dt.second": (compute.second, pyarrow.int8()),
}

OF_TIME: Final = ("dt.hour", "dt.minute", "dt.second")
"""Parts that a date does not have."""

SECONDS_PER_DAY: Final = 86_400
FIRST_MONDAY_DAYS: Final = 4
"""Day of the first Monday after 1 January 1970, where weeks begin."""
MULTIPLIED: Final = checked(compute.multiply_checked)
DAY_NS: Final = 86_400_000_000_000


def time(value: BoundValue) -> BoundValue:
    """Returns a date or timestamp.

    Raises: CannotBind: the value is something else.
    """
    if not is_time(value.type):
        raise CannotBind("", f"it needs a date or timestamp and gets {kind_name(value.type)}")
    return value


def part(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds year, month, day, hour, minute and second.

    Raises: CannotBind: a type does not fit.
    """
    value = time(settled(binder, inputs[0]))
    if types.is_date32(value.type) and node.function in OF_TIME:
        raise CannotBind("", f"{kind_name(value.type)} has no time of day")
    kernel, type_ = PARTS[node.function]
    return binder.cast(binder.call(node.function, lambda column: kernel(wall_times(column)), value), type_)


def weekday(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds weekday."""
    value = time(settled(binder, inputs[0]))
    return binder.cast(binder.call("dt.weekday", _weekday, value), pyarrow.int8())


def _weekday(column: Any) -> Any:
    return compute.day_of_week(wall_times(column), count_from_zero=False, week_start=1)


def date(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds date."""
    return binder.call("dt.date", _date, time(settled(binder, inputs[0])), type_=pyarrow.date32())


def _date(column: Any) -> Any:
    if types.is_date32(column.type):
        return column
    return compute.cast(wall_times(column), pyarrow.date32(), safe=False)


def epoch(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds epoch."""
    value = time(settled(binder, inputs[0]))
    unit = node.option("unit", "us")
    type_ = pyarrow.int32() if unit == "d" else pyarrow.int64()
    return binder.call("dt.epoch", lambda column: _epoch(column, unit), value, type_=type_, options=unit)


def _epoch(column: Any, unit: str) -> Any:
    if types.is_date32(column.type):
        days = compute.cast(column, pyarrow.int32())
        if unit == "d":
            return days
        return MULTIPLIED(compute.cast(days, pyarrow.int64()), SECONDS_PER_DAY * PER_SECOND[unit])
    numbers = compute.cast(column, pyarrow.int64())
    given = PER_SECOND[column.type.unit]
    if unit == "d":
        return compute.cast(_floored(numbers, given * SECONDS_PER_DAY), pyarrow.int32())
    if PER_SECOND[unit] >= given:
        return MULTIPLIED(numbers, PER_SECOND[unit] // given)
    return _floored(numbers, given // PER_SECOND[unit])


def _floored(numbers: Any, divisor: int) -> Any:
    return floor_divided(numbers, arrow_scalar(divisor, pyarrow.int64()))


def truncate(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds truncate.

    Raises: CannotBind: a type does not fit.
    """
    value = time(settled(binder, inputs[0]))
    period = parsed_period(node.option("every"))
    assert period is not None, node
    if types.is_date32(value.type) and period.nanoseconds % DAY_NS:
        raise CannotBind("", f"{kind_name(value.type)} has no time of day; give whole days")
    return binder.call(
        "dt.truncate", lambda column: _truncated(column, period), value, type_=value.type, options=period
    )


def _truncated(column: Any, period: Period) -> Any:
    if isinstance(column, pyarrow.Scalar):
        return _truncated(pyarrow.array([column.as_py()], column.type), period)[0]
    type_ = column.type
    if types.is_date32(type_):
        day = compute.cast(column, pyarrow.timestamp("s"))
        return compute.cast(_truncated(day, period), type_, safe=False)
    if type_.tz in (None, "UTC"):
        return _begin(column, column, period)
    local = wall_times(column)
    begin = _begin(local, local, period)
    if not period.months and period.nanoseconds < DAY_NS:  # the distance holds where the clock is put back too
        numbers = numbers_of(column) - (numbers_of(local) - numbers_of(begin))
        return with_numbers(numbers, pyarrow.int64(), column).cast(type_)
    return instants(begin, type_)


def _begin(column: Any, nulls: Any, period: Period) -> Any:
    """Returns the begins of the intervals that hold timestamps of the local time."""
    type_, numbers = column.type, numbers_of(column).view(numpy.int64)
    if period.months:
        months = numbers.view(f"datetime64[{type_.unit}]").astype("datetime64[M]").astype(numpy.int64)
        begins = (months // period.months * period.months).astype("datetime64[M]")
        found = begins.astype(f"datetime64[{type_.unit}]").astype(numpy.int64)
    else:
        length = max(1, period.nanoseconds * PER_SECOND[type_.unit] // 1_000_000_000)
        shift = FIRST_MONDAY_DAYS * SECONDS_PER_DAY * PER_SECOND[type_.unit] if period.is_weeks else 0
        found = (numbers - shift) // length * length + shift
    return with_numbers(found, pyarrow.int64(), nulls).cast(type_)


FUNCTIONS: Final = {
    **dict.fromkeys(PARTS, part),
    "dt.weekday": weekday,
    "dt.date": date,
    "dt.epoch": epoch,
    "dt.truncate": truncate,
}
