"""fold: an accumulator of each key, or of all records, that is emitted now and then, and at the end of the input.

What has changed since it was last emitted is in a table in the order of its first change, so it leaves in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

from clonos.core.values.copying import IMMUTABLE, copied
from clonos.core.values.keys import key_of, state_keys
from clonos.operators.operator import DueTimer, Operator, Scope, Times

VALUES_NAME: Final = "values"
"""Table of the accumulators: key -> accumulator."""

CHANGED_NAME: Final = "changed"
"""Table of what is not emitted yet: key -> records since it was last emitted."""

DUE_NAME: Final = "due"
"""Table with at most one entry, the time of the next emission in nanoseconds since the Unix epoch."""


class Fold(Operator):
    """Function (accumulator, value) -> accumulator; None if it has changed the old one in place."""

    has_timers: ClassVar[bool] = True

    def __init__(
        self,
        step: str,
        initial: Any,
        function: Callable[[Any, Any], Any],
        is_keyed: bool,
        count: int | None,
        interval_ns: int | None,
    ) -> None:
        """Creates the operator. It emits after ``count`` records, or at multiples of ``interval_ns``."""
        self._step = step
        self._initial, self._function = initial, function
        self._is_keyed = is_keyed
        self._count, self._interval_ns = count, interval_ns

    def open(self, scope: Scope) -> None:
        self._recorder = scope.context.recorder
        self._values = scope.state.table(f"{self._step}/{VALUES_NAME}")
        self._changed = scope.state.table(f"{self._step}/{CHANGED_NAME}")
        self._due = scope.state.table(f"{self._step}/{DUE_NAME}", is_small=True)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        pairs = rows if self._is_keyed else [(None, row) for row in rows]
        stored = state_keys([key for key, _ in pairs])
        results: list[Any] = []
        failed = self.guard.run(
            lambda records: self._consume(records, results), list(zip(stored, pairs, strict=True)), pairs=pairs
        )
        if self._interval_ns is not None and len(failed) < len(rows) and not self._due.entries:
            now_ns = self._recorder.instant_ns(False)
            self._due.set(0, now_ns - now_ns % self._interval_ns + self._interval_ns)
        if results:
            self.out.rows(results)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        values, changed, function, count = self._values, self._changed, self._function, self._count
        for key, (user_key, value) in records:
            entries = values.entries
            before = entries[key] if key in entries else copied(self._initial)
            after = function(before, value)
            values.set(key, before if after is None else after)
            gathered = changed.entries.get(key, 0) + 1
            if gathered == count:
                changed.delete(key)
                results.append(self._result(user_key, values.entries[key]))
            else:
                changed.set(key, gathered)

    def _result(self, key: Any, value: Any) -> Any:
        if type(value) not in IMMUTABLE:
            value = copied(value)  # the state may change in place
        return (key, value) if self._is_keyed else value

    def next_timer_ns(self) -> int | None:
        found: int | None = self._due.entries.get(0)
        return found

    def due(self, until_ns: int | None) -> list[DueTimer]:
        due_ns = self.next_timer_ns()
        return [] if due_ns is None or until_ns is None or due_ns > until_ns else [DueTimer(due_ns, None)]

    def fire(self, due: Sequence[DueTimer]) -> None:
        if due:
            self._due.delete(0)
            self._emit()

    def end_of_time(self) -> None:
        self._due.delete(0)
        self._emit()

    def _emit(self) -> None:
        """Emits what has changed."""
        keys = list(self._changed.contents())
        for key in keys:
            self._changed.delete(key)
        if keys:
            self.out.rows([self._result(key_of(key), self._values.entries[key]) for key in keys])
