"""Numbers in texts that a float would change: it holds 15 to 17 digits, and no number below about 1e-308 with all of
them.
"""

from __future__ import annotations

import sys
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from math import isfinite
from typing import Final

DIGITS_HELD: Final = 15
"""Digits that every float keeps."""

FLOAT_DIGITS_MAX: Final = 800
"""Digits that a float has at most, written without rounding, and some more."""

SMALLEST: Final = sys.float_info.min
"""Smallest float that has all digits."""


def is_held(text: str, value: float) -> bool:
    """Returns whether a float is the number of a text to all its digits: within half a unit of the last one.

    ``text``: as ``float`` reads it, without blanks. NaN and infinities of their own name are held.
    """
    mantissa = text.lower().partition("e")[0].lstrip("+-")
    digits = mantissa.replace(".", "").lstrip("0")
    if not any(map(str.isdigit, mantissa)):
        return True  # nan or inf
    if not isfinite(value):
        return False
    if "." in mantissa:
        digits = digits.rstrip("0")
    if not digits or (len(digits) <= DIGITS_HELD and abs(value) >= SMALLEST):
        return True
    if not value:
        return False
    given, context = Decimal(text), Context(prec=len(digits) + FLOAT_DIGITS_MAX, Emin=MIN_EMIN, Emax=MAX_EMAX)
    difference = context.subtract(Decimal(value), given).copy_abs()
    return context.add(difference, difference) <= Decimal((0, (1,), given.adjusted() - len(digits) + 1))
