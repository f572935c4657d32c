"""What a channel carries. mypy finds each place that a further kind concerns: they all end in ``assert_never``."""

from __future__ import annotations

from enum import Enum
from typing import assert_never


class ElementKind(Enum):
    """Kind of the elements of a batch."""

    ROWS = 0  # records as Python values
    COLUMNS = 1  # records as an Arrow RecordBatch
    BARRIER = 2
    END = 3  # of the stream

    is_data: bool  # records, any number in one batch
    is_control: bool  # of the protocol, always alone in a batch


def _is_data(kind: ElementKind) -> bool:
    match kind:
        case ElementKind.ROWS | ElementKind.COLUMNS:
            return True
        case ElementKind.BARRIER | ElementKind.END:
            return False
        case _:
            assert_never(kind)


for _kind in ElementKind:  # once, since this is asked for every batch
    _kind.is_data = _is_data(_kind)
    _kind.is_control = not _kind.is_data
