"""Numbers of CSV whose type was inferred: a text that the number would not give again is no number.

``01234`` loses its zero, and a float holds 15 to 17 digits. The bytes of a block say quickly that it has no such text.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy
import pyarrow
from pyarrow import compute, types

from clonos.connectors.exact_floats import SMALLEST, is_held
from clonos.kernels.record_batch import RecordBatch

ZERO, POINT, LINE_END, QUOTE, BLANK, PLUS, MINUS, EXPONENT, SMALL = b'0.\n" +-e\x20'
LEADING_ZERO: Final = r"^\s*[+-]?0[0-9]"
LONG_CHARACTERS: Final = 16
"""Characters of a number that a float may not hold, with the point."""

PIECE_BYTES: Final = 1 << 16
"""Bytes that are looked at together, which stay in the cache of the processor."""

OVERLAP_BYTES: Final = 32
"""Bytes of a piece that the next one has too, so that no text is divided in both."""

_ONES_AT_END: Final = numpy.array([len(f"0{n:08b}") - len(f"0{n:08b}".rstrip("1")) for n in range(256)])
_ONES_AT_BEGIN: Final = numpy.array([8 - len(f"{n:08b}".lstrip("1")) for n in range(256)])


class Signs(NamedTuple):
    """Signs that some cell of a block has a zero before other digits, more digits than a float, or a small exponent."""

    leading_zeros: bool
    many_digits: bool
    small_exponents: bool


def numbers_of(schema: Any) -> list[str]:
    """Returns the names of the columns of integers and floats."""
    return [field.name for field in schema if types.is_integer(field.type) or types.is_floating(field.type)]


def signs_of(data: Any, delimiter: int) -> Signs:
    """Returns what the bytes of a block, which begins with a line, show."""
    found = numpy.frombuffer(data, numpy.uint8)
    signs = [False, False, False]
    for begin in range(0, len(found), PIECE_BYTES):
        piece = found[max(begin - OVERLAP_BYTES, 0) : begin + PIECE_BYTES]
        if not begin:
            piece = numpy.concatenate([numpy.full(2, LINE_END, numpy.uint8), piece])
        is_zero, is_digit = piece == ZERO, piece - ZERO < 10  # of bytes, in which other characters are larger
        is_edge = (piece == delimiter) | (piece == LINE_END) | (piece == QUOTE)
        is_sign = (piece == PLUS) | (piece == MINUS) | (piece == BLANK)
        is_before = is_edge[1:-2] | ((is_edge | is_sign)[:-3] & is_sign[1:-2])
        signs[0] |= bool((is_before & is_zero[2:-1] & is_digit[3:]).any())
        signs[1] |= _has_long_numbers(is_digit | (piece == POINT))
        signs[2] |= bool((((piece | SMALL) == EXPONENT)[:-1] & (piece == MINUS)[1:]).any())
    return Signs(*signs)


def _has_long_numbers(is_number: Any) -> bool:
    """Returns whether 16 digits and points follow each other: 8 of them lie on a multiple of 8, others beside it."""
    eights = numpy.packbits(is_number)
    full = numpy.flatnonzero(eights == 255)
    if not len(full):
        return False
    padded = numpy.concatenate([[0], eights, [0]])
    lengths = 8 + _ONES_AT_END[padded[full]] + _ONES_AT_BEGIN[padded[full + 2]]
    return bool((lengths >= LONG_CHARACTERS).any())


def may_differ(signs: Signs, batch: RecordBatch) -> bool:
    """Returns whether a number of a batch may differ from its text."""
    if signs.leading_zeros:
        return True
    columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns if types.is_floating(column.type)]
    return bool(columns) and (
        signs.many_digits
        or any(numpy.isinf(column).any() for column in columns)
        or (signs.small_exponents and any((numpy.abs(column) < SMALLEST).any() for column in columns))
    )


def has_leading_zeros(texts: Any) -> bool:
    """Returns whether a cell of a column of texts begins with a zero and another digit."""
    return bool(compute.any(compute.match_substring_regex(texts, LEADING_ZERO)).as_py())


def problem_with(name: str, texts: Any, numbers: Any) -> str:
    """Says which cell of a column is not the number that it became; "" if none is."""
    is_other = compute.not_equal(numbers.cast(pyarrow.string()), texts)
    others, values = texts.filter(is_other), numbers.filter(is_other)
    zeros = others.filter(compute.match_substring_regex(others, LEADING_ZERO))
    if len(zeros):
        return f"its {name}, {zeros[0].as_py()!r}, has a leading zero, which the column of numbers would drop"
    if not types.is_floating(numbers.type):
        return ""
    lengths = compute.binary_length(others).to_numpy(zero_copy_only=False)
    given = values.to_numpy(zero_copy_only=False)
    for row in numpy.flatnonzero(
        (lengths >= LONG_CHARACTERS) | numpy.isinf(given) | (numpy.abs(given) < SMALLEST)
    ).tolist():
        text = others[row].as_py()
        if not is_held(text.strip(), float(given[row])):
            return f"its {name}, {text!r}, is a number that the column of floats would round"
    return ""
