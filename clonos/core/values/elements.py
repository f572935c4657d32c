"""Payloads of batches, by the kind of their elements; rows with timestamps have these as one column beside them.

The column is packed, eight bytes a timestamp. Timestamps beyond 64 bits, which only a timer can have, travel as a
column of ints. A decoded column stays packed: its ints are made where they are read.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence, Sized
from itertools import chain
from typing import Any, Final, NamedTuple, assert_never

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.values import value_limits
from clonos.core.values.column_rows import rows_of_columns
from clonos.core.values.columns import decode_columns
from clonos.core.values.rows import Column, LazyRows, column_of, decode_column, decode_rows, rows_of
from clonos.core.values.tree import ENCODER
from clonos.core.values.value import reason
from clonos.core.values.value_errors import ValueBeyondLimit, ValueMalformed

TIMED_ROWS_FORMAT: Final = 2
"""First byte of encoded rows with timestamps."""

INT64: Final = "q"
TIMESTAMP_BYTES: Final = 8


class TimedRows(NamedTuple):
    """Rows, and for each its timestamp in nanoseconds since the Unix epoch."""

    rows: list[Any]
    times: Sequence[int]


class _Encoded(msgspec.Struct, frozen=True, array_like=True):
    """Encoded batch. ``times``: signed, little-endian, of 64 bits each; or a column."""

    times: bytes | Column
    rows: Column


_decoder: Final = msgspec.msgpack.Decoder(_Encoded)


def encode_timed_rows(
    rows: list[Any],
    times: Sequence[int],
    keys: list[Any] | None = None,
    *,
    bytes_max: int = value_limits.BATCH_BYTES_MAX,
) -> bytes:
    """Returns the bytes of a batch of rows with a timestamp each. ``keys``: see ``column_of``.

    Raises: ValueUnsupported, if a part of a row has no encoding; ValueBeyondLimit, if the batch is too large.
    """
    assert len(rows) == len(times), "each row has a timestamp"
    encoded = ENCODER.encode(_Encoded(_packed(times), column_of(rows, keys)))
    data = b"".join((TIMED_ROWS_FORMAT.to_bytes(1, "big"), encoded))
    if len(data) > bytes_max:
        raise ValueBeyondLimit("bytes of an encoded batch", len(data), bytes_max)
    return data


def decode_timed_rows(data: bytes | memoryview, *, bytes_max: int = value_limits.BATCH_BYTES_MAX) -> TimedRows:
    """Returns exact copies of the encoded rows, and their timestamps.

    Raises: ValueMalformed, if the bytes are no valid batch.
    """
    column, times = _decode_timed(data, bytes_max)
    rows = rows_of(column)
    _check_count(rows, times)
    return TimedRows(rows, times)


def _decode_timed(data: bytes | memoryview, bytes_max: int) -> tuple[Column, Sequence[int]]:
    """Returns the column of the rows, whose cells are not looked at, and the timestamps."""
    if len(data) > bytes_max:
        raise ValueMalformed("batch", f"{len(data)} bytes, and the limit is {bytes_max}")
    if not are_timed(data):
        wanted = f"rows with timestamps begin with the byte {TIMED_ROWS_FORMAT}"
        raise ValueMalformed("batch", f"{wanted}, these with {bytes(data[:1])!r}")
    try:
        encoded = _decoder.decode(memoryview(data)[1:])
        return encoded.rows, _unpacked(encoded.times)
    # Wrong bytes may raise anything in the libraries below.
    except Exception as error:
        raise ValueMalformed("batch", reason(error)) from error


def _check_count(rows: Sized, times: Sequence[int]) -> None:
    if len(rows) != len(times):
        raise ValueMalformed("batch", f"{len(times)} timestamps for {len(rows)} rows")


class RowParts:
    """Rows of a payload with their timestamps, if they have them, in order; rows are made when they are taken."""

    __slots__ = ("_rows", "_taken", "_times")

    def __init__(self, payload: bytes | memoryview) -> None:
        """Raises: ValueMalformed, if the bytes are no valid batch; for cells that ``take`` makes, it does."""
        self._taken = 0
        column, self._times = timed_column(payload)
        self._rows = LazyRows(column)
        if self._times is not None:
            _check_count(self._rows, self._times)

    def __len__(self) -> int:
        """Returns how many rows there are, with those that were taken."""
        return len(self._rows)

    def take(self, count: int) -> list[Any] | TimedRows:
        """Returns the next ``count`` rows, which were not returned before.

        Raises: ValueMalformed, if a row is malformed, or something follows after the last one.
        """
        rows, first = self._rows.take(count), self._taken
        self._taken += count
        return rows if self._times is None else TimedRows(rows, self._times[first : first + count])


def timed_column(payload: bytes | memoryview) -> tuple[Column, Sequence[int] | None]:
    """Returns the column of encoded rows, whose cells are not looked at, and their timestamps, if they have them.

    Raises: ValueMalformed, if the bytes are no valid batch.
    """
    if are_timed(payload):
        return _decode_timed(payload, value_limits.BATCH_BYTES_MAX)
    return decode_column(payload), None


def are_timed(data: bytes | memoryview) -> bool:
    """Returns whether encoded rows have timestamps."""
    return len(data) > 0 and data[0] == TIMED_ROWS_FORMAT


def decode_elements(kind: ElementKind, payload: bytes | memoryview) -> Any:
    """Returns the records of a payload, as a list, as ``TimedRows`` or as a ``pyarrow.RecordBatch``."""
    match kind:
        case ElementKind.ROWS:
            return decode_timed_rows(payload) if are_timed(payload) else decode_rows(payload)
        case ElementKind.COLUMNS:
            return decode_columns(payload)
        case ElementKind.BARRIER | ElementKind.END | ElementKind.WATERMARK:
            raise AssertionError(kind)
        case _:
            assert_never(kind)


def decode_records(kind: ElementKind, payload: bytes | memoryview) -> list[Any]:
    """Returns the records of a payload as a list of Python values, without timestamps."""
    records = decode_elements(kind, payload)
    if isinstance(records, TimedRows):
        return records.rows
    rows: list[Any] = records if isinstance(records, list) else rows_of_columns(records)
    return rows


def cut_elements(kind: ElementKind, elements: Any, start: int, count: int) -> Any:
    """Returns ``count`` of the decoded records, starting at index ``start``."""
    match kind:
        case ElementKind.ROWS:
            cut = slice(start, start + count)
            if isinstance(elements, TimedRows):
                return TimedRows(elements.rows[cut], elements.times[cut])
            return elements[cut]
        case ElementKind.COLUMNS:
            return elements.slice(start, count)
        case ElementKind.BARRIER | ElementKind.END | ElementKind.WATERMARK:
            raise AssertionError(kind)
        case _:
            assert_never(kind)


def can_join(kind: ElementKind, first: Any, second: Any) -> bool:
    """Returns whether decoded records of two batches can be one: columns need the same schema."""
    return kind is not ElementKind.COLUMNS or bool(first.schema.equals(second.schema, check_metadata=True))


def join_elements(kind: ElementKind, parts: list[Any]) -> Any:
    """Returns the decoded records of several batches as one batch.

    Raises: ValueMalformed, if only some of them have timestamps.
    """
    match kind:
        case ElementKind.ROWS:
            timed = [part for part in parts if isinstance(part, TimedRows)]
            if timed:
                if len(timed) < len(parts):
                    raise ValueMalformed("batch", "rows with timestamps and without on one channel")
                return _joined(timed)
            rows: list[Any] = []
            for part in parts:
                rows += part
            return rows
        case ElementKind.COLUMNS:
            import pyarrow as pa

            return pa.concat_batches(parts)
        case ElementKind.BARRIER | ElementKind.END | ElementKind.WATERMARK:
            raise AssertionError(kind)
        case _:
            assert_never(kind)


def _joined(parts: Sequence[TimedRows]) -> TimedRows:
    """Returns several batches as one."""
    rows = list(chain.from_iterable([part.rows for part in parts]))
    times = [part.times for part in parts]
    packed = [each for each in times if isinstance(each, array)]
    if len(packed) == len(times):
        return TimedRows(rows, array(INT64, b"".join(packed)))
    return TimedRows(rows, list(chain.from_iterable(times)))


def _packed(times: Sequence[int]) -> bytes | Column:
    if isinstance(times, array) and sys.byteorder == "little":
        return times.tobytes()
    try:
        return struct.pack(f"<{len(times)}{INT64}", *times)
    except struct.error:  # beyond 64 bits
        return column_of(list(times))


def _unpacked(times: bytes | Column) -> Sequence[int]:
    if isinstance(times, Column):
        found = rows_of(times)
        if not all(type(each) is int for each in found):
            raise ValueError("a timestamp that is no int")
        return found
    if len(times) % TIMESTAMP_BYTES:
        raise ValueError(f"{len(times)} bytes of timestamps, which have {TIMESTAMP_BYTES} each")
    found_packed = array(INT64, times)
    if sys.byteorder == "big":
        found_packed.byteswap()
    return found_packed
