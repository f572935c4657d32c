"""Exact sums: numbers that are added without rounding, so that a sum does not depend on order or cuts.

A float is held as the pair (numerator, exponent), which means numerator / 2**exponent: every finite float is one. The
sum of floats is rounded once, when it is read. A timedelta is held as the pair (microseconds, None), so that only the
sum has to fit into one. An int and a Decimal represent themselves; so do the floats inf and nan, which absorb all other
numbers. Decimals are added as floats are where one is infinite or nan.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from math import inf, nan
from typing import Any, Final

from clonos.core.values.numpy_scalars import python_scalar

Exact = Any
"""int, (int, int), (int, None), Decimal, or one of the floats inf, -inf and nan."""

MICROSECOND: Final = timedelta(microseconds=1)

DECIMAL_DIGITS_MAX: Final = 10_000
"""Digits of a sum of decimals. A sum that needs more, such as 1E+9999 + 1E-9999, is an error."""

EXACT: Final = Context(
    prec=DECIMAL_DIGITS_MAX, Emin=-999_999, Emax=999_999, traps=[Inexact, InvalidOperation, Overflow]
)
"""Context of sums of decimals, which never rounds. The context of the thread is the user's."""

NOT_A_NUMBER: Final = Decimal("NaN")

QUOTIENT: Final = Context(prec=28, Emin=-999_999, Emax=999_999, traps=[InvalidOperation, Overflow])
"""Context of means of decimals: 28 digits, as Python has them without another context."""


def exact(number: object) -> Exact:
    """Returns a number in its exact form.

    Raises: TypeError: it is no number.
    """
    if type(number) is int:
        return number
    if type(number) is float:
        try:
            numerator, denominator = number.as_integer_ratio()
        except (OverflowError, ValueError):  # it is infinite or nan
            return number
        return numerator, denominator.bit_length() - 1
    if isinstance(number, bool):
        return int(number)
    if isinstance(number, Decimal):
        return NOT_A_NUMBER if number.is_nan() else number
    if isinstance(number, timedelta):
        return _microseconds(number), None
    scalar = python_scalar(number)
    if isinstance(scalar, (int, float)):
        return exact(int(scalar) if isinstance(scalar, int) else float(scalar))
    raise TypeError(f"{number!r:.100} is a {type(number).__qualname__}, not a number: convert it with int() or float()")


def plus(left: Exact, right: Exact) -> Exact:
    """Adds two exact numbers.

    Raises: TypeError: one is a Decimal or a timedelta and the other is of another kind. ArithmeticError: a sum of
    decimals has no exact value.
    """
    if type(left) is int and type(right) is int:
        return left + right
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _decimals("sum", EXACT.add, left, right)
    if is_duration(left) or is_duration(right):
        return _plus_durations(left, right)
    if type(left) is float or type(right) is float:
        return _plus_special(left, right)
    return _plus_pairs(_pair(left), _pair(right))


def square(number: Exact) -> Exact:
    """Returns the exact square of a number.

    Raises: TypeError: it is a timedelta. ArithmeticError: it is a decimal with too many digits.
    """
    if is_duration(number):
        raise TypeError("a length of time has no square: convert it with .total_seconds()")
    if type(number) is tuple:
        return number[0] * number[0], 2 * number[1]
    if isinstance(number, Decimal):
        return _decimals("square", EXACT.multiply, number, number)
    return number * number


def rounded(number: Exact) -> Any:
    """Returns the number as a user has it: the nearest float for a pair.

    Raises: OverflowError: it is a length of time that no timedelta can hold.
    """
    if is_duration(number):
        return _timedelta(number[0])
    return quotient(number[0], 1 << number[1]) if type(number) is tuple else number


def mean_of(total: Exact, count: int) -> Any:
    """Divides a total by a count: the nearest float for ints and floats."""
    if type(total) is int:
        return quotient(total, count)
    if is_duration(total):
        return _timedelta(round(Fraction(total[0], count)))
    if type(total) is tuple:
        return quotient(total[0], count << total[1])
    return QUOTIENT.divide(total, Decimal(count)) if isinstance(total, Decimal) else total / count


def is_duration(number: Exact) -> bool:
    """Returns whether an exact number is a length of time."""
    return type(number) is tuple and number[1] is None


def variance_of(total: Exact, squares: Exact, count: int, ddof: int) -> Any:
    """Returns the variance of numbers from their sum and the sum of their squares; ``count`` is above ``ddof``."""
    divisor = count * (count - ddof)
    if isinstance(total, Decimal) or isinstance(squares, Decimal):
        if not (Decimal(total).is_finite() and Decimal(squares).is_finite()):
            return NOT_A_NUMBER
        weighted = _decimals("variance", EXACT.multiply, squares, count)
        spread = _decimals("variance", EXACT.subtract, weighted, square(total))
        return QUOTIENT.divide(spread, Decimal(divisor))
    if type(total) is float or type(squares) is float:
        return nan
    (numerator, exponent), (squared, twice) = _pair(total), _pair(squares)
    common = max(twice, 2 * exponent)  # either may be larger: sums of columns are not in lowest terms
    deviation = (count * squared << common - twice) - (numerator * numerator << common - 2 * exponent)
    return quotient(deviation, divisor << common)


def quotient(numerator: int, denominator: int) -> float:
    """Returns the float that is nearest to a fraction, infinite if it is beyond all floats."""
    try:
        return numerator / denominator
    except OverflowError:
        return inf if numerator > 0 else -inf


def _plus_pairs(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    left_numerator, left_exponent = left
    right_numerator, right_exponent = right
    if left_exponent >= right_exponent:
        return left_numerator + (right_numerator << (left_exponent - right_exponent)), left_exponent
    return (left_numerator << (right_exponent - left_exponent)) + right_numerator, right_exponent


def _pair(number: Exact) -> tuple[int, int]:
    return number if type(number) is tuple else (number, 0)


def _plus_special(left: Exact, right: Exact) -> Exact:
    """Adds numbers of which at least one is an infinite float or nan."""
    return (left if type(left) is float else 0.0) + (right if type(right) is float else 0.0)


def _plus_durations(left: Exact, right: Exact) -> Exact:
    for number, other in ((left, right), (right, left)):
        if type(number) is int and number == 0:  # the sum of no durations
            return other
    if not is_duration(left) or not is_duration(right):
        raise _unlike(left, right)
    return left[0] + right[0], None


def _microseconds(duration: timedelta) -> int:
    if getattr(duration, "nanoseconds", 0):  # a Timedelta of pandas
        raise ValueError(f"{duration!r} has nanoseconds, which a timedelta cannot have: round it to microseconds")
    return duration // MICROSECOND


def _timedelta(microseconds: int) -> timedelta:
    try:
        return microseconds * MICROSECOND
    except OverflowError:
        days = microseconds // 86_400_000_000
        raise OverflowError(f"the sum, {days} days, is longer than a timedelta can be, 999999999 days") from None


def _decimals(what: str, operation: Any, left: Exact, right: Exact) -> Decimal:
    if not isinstance(left, (int, Decimal)) or not isinstance(right, (int, Decimal)):
        raise _unlike(left, right)
    try:
        return operation(left, right)  # type: ignore[no-any-return]
    except InvalidOperation:  # of infinities
        return NOT_A_NUMBER
    except (Inexact, Overflow):
        what = f"the exact {what} of decimals has more than {DECIMAL_DIGITS_MAX} digits"
        raise ArithmeticError(f"{what}, or an exponent beyond {EXACT.Emax}") from None


def _unlike(left: Exact, right: Exact) -> TypeError:
    kinds = [
        "timedelta" if is_duration(number) else "float" if type(number) is tuple else type(number).__name__
        for number in (left, right)
    ]
    return TypeError(f"a {kinds[0]} and a {kinds[1]} cannot be added: convert all to one type")
