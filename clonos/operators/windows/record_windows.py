"""Windows of each record: the records of its key that came up to it in time, by a length of time or by their number.

State: ``step/windows`` has the last records of each key with their times, and how many came since the last result. A
key is forgotten when no later window reaches its last record, by the watermark or, without timestamps, by the clock.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count, repeat
from operator import itemgetter
from typing import Any, Final

from clonos.core.ports.recorder import Recorder
from clonos.core.values.keys import state_keys
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.event_time.in_order import InOrder
from clonos.operators.operator import Scope, Times
from clonos.operators.state.state_spec import StateSpec, keyed
from clonos.operators.windows.gathered import Failure, GatheredValues
from clonos.operators.windows.window_results import window_of
from clonos.operators.windows.window_rules import ApplyFunction, Results, WindowRules

WINDOWS: Final = keyed("windows")

SEEN, ITEMS = range(2)
"""Places in the entry of a key: records since its last result, and its last records as [time in ns, record]."""

TIME_NS: Final = itemgetter(0)


@dataclass(frozen=True, slots=True)
class Preceding:
    """Which records are in the window of a record: those of the last ``length_ns``, which excludes the record that is
    as far back, or the last ``count``. Every ``every``-th record of a key has a result. A key begins anew after
    ``ttl_ns`` without a record.
    """

    length_ns: int | None = None
    count: int | None = None
    every: int = 1
    ttl_ns: int | None = None

    @property
    def retained_ns(self) -> int | None:
        """How long after its last record a key is kept; None: for ever."""
        return min((each for each in (self.length_ns, self.ttl_ns) if each is not None), default=None)


class RecordWindows(InOrder):
    """Operator of windows of each record."""

    runs_user_code = True
    keeps_times = False

    def __init__(
        self,
        step: str,
        bound: Preceding,
        aggregation: Aggregation[Any, Any],
        rules: WindowRules,
        apply: ApplyFunction | None = None,
    ) -> None:
        super().__init__(step, rules.late_tag)
        self._bound, self._rules, self._retained_ns = bound, rules, bound.retained_ns
        self._is_keyed = rules.is_keyed
        gathered = aggregation if isinstance(aggregation, GatheredValues) else GatheredValues(aggregation)
        self._results = Results(gathered, apply)
        self._ends: list[tuple[int, int, Any]] = []  # (last time that was, number, key) of each key

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, WINDOWS.by_key(self._is_keyed))

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._recorder: Recorder = scope.context.recorder
        self._table = scope.state.table(WINDOWS)
        self._counter = count()
        if self._retained_ns is not None:
            contents = self._table.contents().items()
            self._ends = [(entry[ITEMS][-1][0], next(self._counter), stored) for stored, entry in contents]
            heapify(self._ends)

    def placed(self, row: Any) -> tuple[int, Any, Any]:
        return 0, row, row[1] if self._rules.is_keyed else row

    def in_order(self, rows: list[Any], times: Times) -> None:
        pairs = rows if self._rules.is_keyed else [(None, row) for row in rows]
        now_ns = self._recorder.instant_ns(False) if times is None else 0
        own_times = repeat(now_ns, len(rows)) if times is None else times
        results: list[Any] = []
        result_times: list[int] = []
        failures: list[Failure] = []
        routes = self.guard.routes
        stored_keys = state_keys([key for key, _ in pairs])
        for stored, (_, value), time_ns in zip(stored_keys, pairs, own_times, strict=True):
            items = self._added(stored, value, time_ns)
            if items is None:
                continue
            window, values = window_of(items[0][0], time_ns), [each for _, each in items]
            found, failed = self._results.of(stored, [values], window, routes=routes)
            results += found
            result_times += repeat(time_ns, len(found))
            failures += failed
        for error, record in failures:
            self.guard.caught(error, record)
        if results:
            self.out.rows(results, result_times if self._rules.has_times else None)
        if times is None:
            self.passed(now_ns)

    def _added(self, stored: Any, value: Any, time_ns: int) -> list[Any] | None:
        """Adds a record. Returns the records of its window with their times, None if it has no result."""
        bound, entry = self._bound, self._table.entries.get(stored)
        if entry is None:
            entry = [0, []]
            if self._retained_ns is not None:
                heappush(self._ends, (time_ns, next(self._counter), stored))
        elif bound.ttl_ns is not None and entry[ITEMS][-1][0] <= time_ns - bound.ttl_ns:
            entry = [0, []]  # as if the watermark had come between them
        items: list[Any] = entry[ITEMS]
        items.append([time_ns, value])
        if bound.length_ns is not None:
            del items[: bisect_right(items, time_ns - bound.length_ns, key=TIME_NS)]
        elif bound.count is not None:
            del items[: -bound.count]
        entry[SEEN] = (entry[SEEN] + 1) % bound.every
        self._table.set(stored, entry)
        return None if entry[SEEN] else items

    def passed(self, watermark_ns: int) -> None:
        retained_ns = self._retained_ns
        while retained_ns is not None and self._ends and self._ends[0][0] <= watermark_ns - retained_ns:
            _, number, stored = heappop(self._ends)
            last_ns = self._table.entries[stored][ITEMS][-1][0]
            if last_ns <= watermark_ns - retained_ns:
                self._table.delete(stored)
            else:
                heappush(self._ends, (last_ns, number, stored))
