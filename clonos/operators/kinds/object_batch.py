"""Batch of records that are Python objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.fields import Field
from clonos.operators.operator import Operator, Times
from clonos.operators.user_errors import Guard


class ObjectBatch:
    """Rows (key, record) with what is compared of each, as tables have it."""

    __slots__ = ("keys", "rows", "times")

    def __init__(self, keys: list[Any], rows: list[Any], times: Times) -> None:
        self.keys, self.rows, self.times = keys, rows, times

    def at(self, instant_ns: int) -> Sequence[int]:
        """See ``KeyedBatch``."""
        return [instant_ns] * len(self.keys)

    def emit(self, out: Operator, places: list[int]) -> None:
        """See ``KeyedBatch``."""
        if places:
            rows, times = self.rows, self.times
            out.rows([rows[place][1] for place in places], None if times is None else [times[i] for i in places])

    def pass_late(self, late_records: LateRecords, places: Sequence[int], times: Any, watermark_ns: int) -> None:
        """See ``KeyedBatch``."""
        late_records.take([self.rows[place][1] for place in places], [times[place] for place in places], watermark_ns)


def found_of_each(by: Callable[[Any], Any], records: list[Any], guard: Guard) -> tuple[list[Any], Collection[int]]:
    """Returns what ``by`` returns of each record, and the indexes of the records that failed and are routed."""
    return by.of_each(records, guard) if isinstance(by, Field) else guard.each(by, records)
