"""Encoding of user values: single values, batches of rows and batches of columns.

A decoded value equals the encoded one exactly, in every process. Supported are None, bool, int of any size, float, str,
bytes, list, tuple, dict, set, frozenset, datetime, date, time, timedelta, Decimal, UUID, and objects of registered
dataclasses, NamedTuples, msgspec.Structs and enums, nested as deep as the limits allow. Everything else is an error
that names the part of the value and what to do. Decoding runs no code and imports no class.
"""

from __future__ import annotations

from clonos.core.values.columns import decode_columns, encode_columns, get_ready_for_columns
from clonos.core.values.elements import TimedRows, decode_timed_rows, encode_timed_rows
from clonos.core.values.rows import Column, column_of, decode_rows, encode_rows, rows_of
from clonos.core.values.type_registry import register, registered
from clonos.core.values.value import decode_value, encode_value
from clonos.core.values.value_errors import RegistrationRefused, ValueBeyondLimit, ValueMalformed, ValueUnsupported

__all__ = [
    "encode_value",
    "decode_value",
    "encode_rows",
    "Column",
    "column_of",
    "rows_of",
    "decode_rows",
    "TimedRows",
    "encode_timed_rows",
    "decode_timed_rows",
    "encode_columns",
    "decode_columns",
    "get_ready_for_columns",
    "register",
    "registered",
    "RegistrationRefused",
    "ValueBeyondLimit",
    "ValueMalformed",
    "ValueUnsupported",
]
