"""Decoding of a batch's payload, by the kind of its elements."""

from __future__ import annotations

from typing import Any, assert_never

from clonos.core.model.element_kind import ElementKind
from clonos.core.values.columns import decode_columns
from clonos.core.values.rows import decode_rows


def decode_elements(kind: ElementKind, payload: bytes | memoryview) -> Any:
    """Returns the records of a payload, as a list or as a ``pyarrow.RecordBatch``."""
    match kind:
        case ElementKind.ROWS:
            return decode_rows(payload)
        case ElementKind.COLUMNS:
            return decode_columns(payload)
        case ElementKind.BARRIER | ElementKind.END | ElementKind.WATERMARK:
            raise AssertionError(kind)
        case _:
            assert_never(kind)


def decode_records(kind: ElementKind, payload: bytes | memoryview) -> list[Any]:
    """Returns the records of a payload as a list of Python values."""
    records = decode_elements(kind, payload)
    rows: list[Any] = records if isinstance(records, list) else records.to_pylist()
    return rows


def cut_elements(kind: ElementKind, elements: Any, start: int, count: int) -> Any:
    """Returns ``count`` of the decoded records, starting at index ``start``."""
    match kind:
        case ElementKind.ROWS:
            return elements[start : start + count]
        case ElementKind.COLUMNS:
            return elements.slice(start, count)
        case ElementKind.BARRIER | ElementKind.END | ElementKind.WATERMARK:
            raise AssertionError(kind)
        case _:
            assert_never(kind)


def join_elements(kind: ElementKind, parts: list[Any]) -> Any:
    """Returns the decoded records of several batches as one batch."""
    match kind:
        case ElementKind.ROWS:
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
