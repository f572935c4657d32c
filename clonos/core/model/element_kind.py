"""Kinds of elements that a channel carries.

Each place that a new kind concerns ends in ``assert_never``, so mypy finds it.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

LAST_BARRIER = b"\x01"
"""Payload of a barrier at which the job stops. That of any other barrier is empty."""


class ElementKind(Enum):
    """Kind of all elements of a batch."""

    ROWS = 0  # records as Python values
    COLUMNS = 1  # records as an Arrow RecordBatch
    BARRIER = 2
    END = 3  # end of the stream
    WATERMARK = 4  # progress of event time

    is_data: bool  # records; a batch has one or more
    is_control: bool  # a protocol element; always alone in its batch
    has_checkpoint: bool  # belongs to a checkpoint, which its batch names


def _is_data(kind: ElementKind) -> bool:
    match kind:
        case ElementKind.ROWS | ElementKind.COLUMNS:
            return True
        case ElementKind.BARRIER | ElementKind.END | ElementKind.WATERMARK:
            return False
        case _:
            assert_never(kind)


def _has_checkpoint(kind: ElementKind) -> bool:
    match kind:
        case ElementKind.BARRIER:
            return True
        case ElementKind.ROWS | ElementKind.COLUMNS | ElementKind.END | ElementKind.WATERMARK:
            return False
        case _:
            assert_never(kind)


for _kind in ElementKind:  # computed once, because every batch reads it
    _kind.is_data = _is_data(_kind)
    _kind.is_control = not _kind.is_data
    _kind.has_checkpoint = _has_checkpoint(_kind)
