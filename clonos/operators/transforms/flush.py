"""Records that wait in the state of a task and go on together: in front of a sink with ``flush``, or of a function of
batches with a size of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.watermark import Activity, Watermark, decode_watermark, encode_watermark
from clonos.core.values import decode_columns, encode_columns
from clonos.core.values.copying import copied_rows
from clonos.core.values.elements import cut_elements, join_elements
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.emission_times import Emission
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import Scope, Times
from clonos.operators.state.interval_timer import LeavesAtIntervals
from clonos.operators.state.state_spec import Encoding, StateKind, StateScope, StateSpec, small

WAITING: Final = StateSpec("waiting", StateKind.TABLE, StateScope.DRAINED)
"""Table of the rows that wait: number from 0 on -> row."""

COLUMNS: Final = StateSpec("columns", StateKind.TABLE, StateScope.DRAINED, encoding=Encoding.OPAQUE)
"""Table of the batches of columns that wait: number of the first record -> encoded batch. They have no rows."""

HELD: Final = small("held watermarks", StateScope.DRAINED, encoding=Encoding.INSTANTS)
"""Table of watermarks that came after the first record that waits: number from 0 on -> its encoding."""

ROWS_MAX: Final = 1 << 12
"""Rows that leave in one batch. Batches of columns are joined up to it."""


class Flush(LeavesAtIntervals):
    """Passes records on by groups of ``count``, or at multiples of an interval if any wait; the rest at the end.

    Columns stay columns. Records of a keyed input leave without their keys.
    """

    selects_rows = True
    passes_records = True
    passes_columns = True
    keeps_times = False
    _rows_max = ROWS_MAX

    @classmethod
    def facts(cls, given: KnownInputs, flush: Emission, is_keyed: bool) -> Facts:
        """Returns those of a step in front of a sink, which passes records on as ``flush`` says."""
        make = partial(cls, given.step, is_keyed=is_keyed, count=flush.count, interval_ns=flush.interval_ns)
        return replace(facts_of(make, given), state=(("when", str(flush)),), flush=flush)

    def __init__(self, step: str, *, is_keyed: bool, count: int | None, interval_ns: int | None) -> None:
        self._step, self._is_keyed = step, is_keyed
        self._count, self._interval_ns = count, interval_ns

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, WAITING, COLUMNS)

    def open(self, scope: Scope) -> None:
        self._waiting = scope.state.table(WAITING)
        self._columns = scope.state.table(COLUMNS)
        self.open_timer(self._interval_ns, scope)
        self._batches = {number: decode_columns(encoded) for number, encoded in self._columns.contents().items()}
        self._size: int = len(self._waiting.contents()) + sum(batch.num_rows for batch in self._batches.values())

    def prepare(self, checkpoint: int) -> None:
        """Encodes the batches of columns that came since the last barrier; most never wait for one."""
        for number, batch in self._batches.items():
            if number not in self._columns.entries:
                self._columns.set(number, encode_columns(batch))

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if self._is_keyed:
            rows = [value for _, value in rows]
        if whole := self._completed(len(rows)):
            self._flush(rows[:whole])
            rows = rows[whole:]
        if rows:
            self._waiting.update(dict(enumerate(copied_rows(rows), self._size)))
            self._wait(len(rows))

    def columns(self, batch: RecordBatch) -> None:
        if whole := self._completed(batch.num_rows):
            self._flush(batch.slice(0, whole))
            batch = batch.slice(whole)
        if batch.num_rows:
            self._batches[self._size] = batch
            self._wait(batch.num_rows)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self.columns(batch)

    def _completed(self, count: int) -> int:
        """Returns how many of the next ``count`` records complete groups."""
        if self._count is None or self._size + count < self._count:
            return 0
        return (self._size + count) // self._count * self._count - self._size

    def _wait(self, count: int) -> None:
        self._size += count
        self._timer.start()

    def _flush(self, more: Any = ()) -> None:
        """Passes on the records that wait, and ``more``, rows or a batch of columns."""
        parts = self._parts()
        for number in range(self._size):
            self._waiting.delete(number)
        for number in self._batches:
            self._columns.delete(number)
        self._size, self._batches = 0, {}
        self._timer.stop()
        for part in _joined([*parts, more], self._rows_max):
            if isinstance(part, list):
                self.out.rows(part)
            else:
                self.out.columns(part)

    def _parts(self) -> list[Any]:
        """Returns what waits, in order: lists of rows and batches of columns."""
        entries, parts, number = self._waiting.entries, list[Any](), 0
        while number < self._size:
            batch = self._batches.get(number)
            if batch is None:
                if not parts or not isinstance(parts[-1], list):
                    parts.append([])
                parts[-1].append(entries[number])
                number += 1
            else:
                parts.append(batch)
                number += batch.num_rows
        return parts

    def end_of_time(self) -> None:
        self._flush()

    def drain(self) -> None:
        self._flush()


class Gather(Flush):
    """Batches of ``count`` records, fewer when an interval or the input ends. A watermark waits with the records."""

    state = ()
    is_per_record = True
    requires_columns = True
    emits_columns = True
    keeps_times = True
    holds_watermarks: ClassVar[bool] = True

    def __init__(self, step: str, *, count: int, interval_ns: int | None) -> None:
        super().__init__(step, is_keyed=False, count=count, interval_ns=interval_ns)
        self._rows_max = count

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, HELD)

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._held = scope.state.table(HELD)

    def on_watermark(self, watermark: Watermark) -> None:
        if not self._size:
            self.pass_watermark(watermark)
            return
        number = len(self._held.entries)
        if number and not isinstance(watermark, Activity):
            last = decode_watermark(self._held.entries[number - 1])
            number -= not isinstance(last, Activity)  # a later instant stands for an earlier one
        self._held.set(number, encode_watermark(watermark))

    def _flush(self, more: Any = ()) -> None:
        super()._flush(more)
        held = [decode_watermark(self._held.entries[number]) for number in range(len(self._held.entries))]
        for number, watermark in enumerate(held):
            self._held.delete(number)
            self.pass_watermark(watermark)


def _joined(parts: Sequence[Any], rows_max: int) -> list[Any]:
    """Joins neighbours of one kind, columns of one schema, and cuts them into batches of at most ``rows_max``
    records."""
    groups: list[list[Any]] = []
    for part in parts:
        if len(part):
            if not groups or _schema_of(groups[-1][0]) != _schema_of(part):
                groups.append([])
            groups[-1].append(part)
    found: list[Any] = []
    for group in groups:
        kind = ElementKind.ROWS if isinstance(group[0], list) else ElementKind.COLUMNS
        whole = join_elements(kind, group) if len(group) > 1 else group[0]
        found += [cut_elements(kind, whole, first, rows_max) for first in range(0, len(whole), rows_max)]
    return found


def _schema_of(part: Any) -> Any:
    return None if isinstance(part, list) else part.schema
