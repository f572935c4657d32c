"""Constants as scalars of Arrow, made from their bytes where their type allows.

``pyarrow.scalar`` and ``pyarrow.array`` import pandas, if it is installed, which takes a quarter of the processor time
with which a job starts.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import pyarrow
from pyarrow import types


def arrow_scalar(value: Any, type_: Any) -> Any:
    """Returns ``pyarrow.scalar(value, type_)``."""
    data = _bytes_of(value, type_)
    if data is None:
        return pyarrow.scalar(value, type_)
    buffers: list[Any] = [None, pyarrow.py_buffer(data)]
    if isinstance(value, str):
        offsets = struct.pack("=qq" if types.is_large_string(type_) else "=ii", 0, len(data))
        buffers.insert(1, pyarrow.py_buffer(offsets))
    return pyarrow.Array.from_buffers(type_, 1, buffers)[0]


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
    is_text = types.is_string(type_) or types.is_large_string(type_)
    if type(value) is str and is_text and not _has_surrogates(value):
        return value.encode("utf-8")
    return None


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)
