"""Decoding of a batch's payload, by the kind of its elements."""

from __future__ import annotations

from typing import Any, assert_never

from clonos.core.model.element_kind import ElementKind
from clonos.core.values.columns import decode_columns
from clonos.core.values.rows import decode_rows
from clonos.core.values.timed_rows import TimedRows, are_timed, decode_timed_rows, joined
from clonos.core.values.value_errors import ValueMalformed


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
    rows: list[Any] = records if isinstance(records, list) else records.to_pylist()
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
                return joined(timed)
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
