"""Constants as scalars of Arrow, made from their bytes where their type allows.

``pyarrow.scalar`` and ``pyarrow.array`` import pandas, if it is installed, which takes a quarter of the processor time
with which a job starts.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import pyarrow
from pyarrow import types

DIGITS_MAX: Final = 38
"""Digits of ``decimal128``."""


def arrow_scalar(value: Any, type_: Any) -> Any:
    """Returns ``pyarrow.scalar(value, type_)``."""
    if value is None:
        return pyarrow.nulls(1, type_)[0]
    found = _from_bytes([value], type_)
    return pyarrow.scalar(value, type_) if found is None else found[0]


def arrow_array(values: Sequence[Any], type_: Any) -> Any:
    """Returns ``pyarrow.array(values, type_)`` for values that are not null."""
    found = None if types.is_boolean(type_) else _from_bytes(values, type_)
    return pyarrow.array(values, type_) if found is None else found


def decimal_type(value: Decimal) -> Any:
    """Returns ``pyarrow.scalar(value).type``, None for a number that ``decimal128`` does not hold."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    precision = max(len(digits) + max(exponent, 0), -exponent)
    return pyarrow.decimal128(precision, max(-exponent, 0)) if precision <= DIGITS_MAX else None


def _from_bytes(values: Sequence[Any], type_: Any) -> Any | None:
    """Returns the array of the values, None if one is to be converted by Arrow; of bools it takes one."""
    parts = []
    for value in values:
        data = _bytes_of(value, type_)
        if data is None:
            return None
        parts.append(data)
    buffers: list[Any] = [None, pyarrow.py_buffer(b"".join(parts))]
    if types.is_string(type_) or types.is_large_string(type_):
        letter = "q" if types.is_large_string(type_) else "i"
        ends = accumulate(map(len, parts), initial=0)
        buffers.insert(1, pyarrow.py_buffer(struct.pack(f"={len(parts) + 1}{letter}", *ends)))
    return pyarrow.Array.from_buffers(type_, len(parts), buffers)


def _bytes_of(value: Any, type_: Any) -> bytes | None:
    """Returns the bytes of a value in the buffer of its array, None if it is to be converted by Arrow."""
    if type(value) is int and types.is_integer(type_):
        width, is_signed = type_.bit_width, types.is_signed_integer(type_)
        least, above = (-(1 << width - 1), 1 << width - 1) if is_signed else (0, 1 << width)
        return value.to_bytes(width // 8, sys.byteorder, signed=is_signed) if least <= value < above else None
    if type(value) is float and types.is_float64(type_):
        return struct.pack("=d", value)
    if type(value) is bool and types.is_boolean(type_):
        return bytes([value])
    if type(value) is Decimal and types.is_decimal128(type_):
        return _decimal_bytes(value, type_)
    is_text = types.is_string(type_) or types.is_large_string(type_)
    if type(value) is str and is_text and not _has_surrogates(value):
        return value.encode("utf-8")
    return None


def _decimal_bytes(value: Decimal, type_: Any) -> bytes | None:
    """Returns the bytes of a number, None if the type has too few digits for it."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent + type_.scale < 0:
        return None
    if len(digits) + exponent + type_.scale > type_.precision:
        return None
    unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + type_.scale)
    return (-unscaled if sign else unscaled).to_bytes(16, sys.byteorder, signed=True)


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)
