"""Pairs of each record of a key with the one some records before or after it, in the order of their times.

State: ``step/neighbours`` has the last records of each key: those that later ones are paired with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.core.values.keys import state_keys
from clonos.operators.event_time.in_order import BY_TIME, InOrder
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import Scope, Times
from clonos.operators.state.state_spec import StateSpec, keyed

NEIGHBOURS: Final = keyed("neighbours")
"""Table of the last records of each key: key -> [[time in ns, record]]."""


class Lag(InOrder):
    """Pairs (record, the one ``count`` records before it), None without one."""

    @classmethod
    def facts(cls, given: KnownInputs, count: int, late: str | None) -> Facts:
        """Returns those for a distance. ``late``: the side output of late records."""
        return replace(
            facts_of(partial(cls, given.step, count, late, given.has_times), given),
            state=(("count", str(count)), ("event time", str(given.has_times))),
            side_tags=() if late is None else (late,),
            breaks_order=BY_TIME if given.has_times else "",
        )

    def __init__(self, step: str, count: int, late: str | None, has_times: bool) -> None:
        super().__init__(step, late)
        self._count, self._has_times = count, has_times

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, NEIGHBOURS)

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._table = scope.state.table(NEIGHBOURS)

    def placed(self, row: Any) -> tuple[int, Any, Any]:
        return 0, row, row[1]

    def in_order(self, rows: list[Any], times: Times) -> None:
        stored_keys = state_keys([key for key, _ in rows])
        found: list[Any] = []
        found_times: list[int] = []
        for place, (stored, (_, value)) in enumerate(zip(stored_keys, rows, strict=True)):
            time_ns = 0 if times is None else times[place]
            last = self._table.entries.get(stored, [])
            earlier = last.pop(0) if len(last) == self._count else None
            last.append([time_ns, value])
            self._table.set(stored, last)
            pair = self._pair(value, earlier)
            if pair is not None:
                found.append(copied(pair))
                found_times.append(time_ns)
        if found:
            self.out.rows(found, None if times is None else found_times)

    def _pair(self, value: Any, earlier: list[Any] | None) -> tuple[Any, Any] | None:
        return value, None if earlier is None else earlier[1]


class Lead(Lag):
    """Pairs (record, the one ``count`` records after it), which leave with the later one; None at the end of the input.

    The timestamp of a pair is that of the later record.
    """

    def _pair(self, value: Any, earlier: list[Any] | None) -> tuple[Any, Any] | None:
        return None if earlier is None else (earlier[1], value)

    def end_of_time(self) -> None:
        super().end_of_time()
        last = [(time_ns, value) for items in self._table.contents().values() for time_ns, value in items]
        last.sort(key=lambda item: item[0])
        for stored in list(self._table.entries):  # a task that is restored after this must not emit them again
            self._table.delete(stored)
        if last:
            times = [max(time_ns, self._reached.entries.get(0, time_ns)) for time_ns, _ in last]
            self.out.rows([(value, None) for _, value in last], times if self._has_times else None)
