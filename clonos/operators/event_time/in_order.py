"""Steps that take records in the order of their timestamps, such as a merge of streams: a record waits until the
watermark has passed it.

State: ``step/rows`` has the records that wait. Equal timestamps are in the order of arrival, which the log has. Without
timestamps the order is that of arrival, and no record waits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.core.values.copying import copied
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import Operator, Scope, Times
from clonos.operators.state.state_spec import Numbers, StateScope, StateSpec, keyed, small

ARRIVAL: Final = "arrival"
"""Sequence of the numbers of the records."""

ROWS: Final = keyed("rows", key_place=(1, 2, 0), numbers=(Numbers(ARRIVAL, (0,)),))
"""Table of the records that wait: number -> (timestamp in ns, place, record), a record (key, value) if it has a key."""

WATERMARK: Final = small("watermark", StateScope.EQUAL)
NUMBERS: Final = small("numbers", StateScope.NEXT, ARRIVAL)
"""Table with one entry, the number of the next record."""


BY_TIME: Final = "in the order of timestamps"


class InOrder(Operator):
    """Base of these steps. A record behind the watermark is late."""

    breaks_order: ClassVar[str] = BY_TIME
    holds_watermarks: ClassVar[bool] = True
    _is_keyed = True

    def __init__(self, step: str, late: str | None) -> None:
        self._step, self._late_tag = step, late

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return tuple(spec.by_key(self._is_keyed) for spec in (WATERMARK, NUMBERS, ROWS))

    def open(self, scope: Scope) -> None:
        state = scope.state
        self._reached = state.table(WATERMARK)
        self._numbers = state.table(NUMBERS)
        self._next_number: int = self._numbers.entries.get(0, 0)
        self._waiting_rows = state.table(ROWS)
        self._waiting: list[tuple[int, int, int, Any]] = [
            (timestamp_ns, place, number, row)
            for number, (timestamp_ns, place, row) in self._waiting_rows.contents().items()
        ]
        heapify(self._waiting)
        self._late = LateBatch(self._step, self._late_tag, self, scope)

    def prepare(self, checkpoint: int) -> None:
        if self._numbers.entries.get(0, 0) != self._next_number:
            self._numbers.set(0, self._next_number)

    @abstractmethod
    def in_order(self, rows: list[Any], times: Times) -> None:
        """Takes rows in their order."""

    def placed(self, row: Any) -> tuple[int, Any, Any]:
        """Returns the place of a row among those of equal timestamps, the row itself, and what a late one has of it."""
        return 0, row, row

    def passed(self, watermark_ns: int) -> None:
        """Forgets what no later record needs."""

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if times is None:
            self.in_order(rows, None)
        else:
            self._keep(rows, times)

    def _keep(self, rows: list[Any], times: Sequence[int]) -> None:
        reached_ns: int | None = self._reached.entries.get(0)
        for marked, timestamp_ns in zip(rows, times, strict=True):
            place, row, late = self.placed(marked)
            if reached_ns is not None and timestamp_ns < reached_ns:
                self._late.add(late, timestamp_ns)
                continue
            self._waiting_rows.set(self._next_number, (timestamp_ns, place, row))
            heappush(self._waiting, (timestamp_ns, place, self._next_number, row))
            self._next_number += 1
        self._late.emit(reached_ns)

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
            self._take_before(watermark)
            self.passed(watermark)
        self.pass_watermark(watermark)

    def end_of_time(self) -> None:
        self._take_before(None)

    def _take_before(self, timestamp_ns: int | None) -> None:
        """Takes the rows that are earlier (None: all) in their order."""
        rows: list[Any] = []
        times: list[int] = []
        while self._waiting and (timestamp_ns is None or self._waiting[0][0] < timestamp_ns):
            at_ns, _, number, row = heappop(self._waiting)
            self._waiting_rows.delete(number)
            rows.append(copied(row))
            times.append(at_ns)
        if rows:
            self.in_order(rows, times)


class NumberInput(Operator):
    """Mark of one input of a merge: rows (number of the input, row)."""

    is_per_record = True
    is_one_to_one = True
    changes_rows = False

    def __init__(self, number: int) -> None:
        self._number = number

    def rows(self, rows: list[Any], times: Times = None) -> None:
        number = self._number
        self.out.rows([(number, row) for row in rows], times)


class MergeOrdered(InOrder):
    """Merge of marked rows: a row leaves when the watermark has passed it, by (timestamp, input, arrival)."""

    _is_keyed = False

    @classmethod
    def facts(cls, given: KnownInputs, late: str | None, inputs: int) -> Facts:
        """Returns those for a number of streams. ``late``: the side output of late records."""
        facts = facts_of(partial(cls, given.step, late), given)
        return replace(facts, side_tags=() if late is None else (late,), state=(("inputs", str(inputs)),))

    def placed(self, row: Any) -> tuple[int, Any, Any]:
        return (*row, row[1])

    def in_order(self, rows: list[Any], times: Times) -> None:
        self.out.rows(rows, times)
