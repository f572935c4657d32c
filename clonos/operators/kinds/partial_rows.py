"""Partial aggregates of rows in front of an exchange by key: see ``PartialStep``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import repeat
from typing import Any

from clonos.core.values.keys import key_of, state_keys
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.aggregates.partial import PartialAggregate
from clonos.operators.kinds.object_pane_batch import by_pane
from clonos.operators.operator import Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.partial_step import PartialStep
from clonos.operators.windows.window_aggregates import window_aggregate


class PartialRows(PartialStep):
    """Operator between the keys of rows and their exchange. It passes on parts of records, and records as they are."""

    runs_user_code = True

    def __init__(self, step: str, spans: Spans | None, aggregation: Aggregation[Any, Any], is_event_time: bool) -> None:
        """Creates the operator. See ``PartialStep``."""
        super().__init__(step, spans, is_event_time)
        self._aggregate = window_aggregate(aggregation)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if len(rows) < self.rows_min:
            self.out.rows(rows, times)
        elif self._is_event_time:
            assert times is not None, "windows in event time are on streams with timestamps"
            self._by_pane(rows, times)
        elif self._is_gain([rows]):
            if parts := self.partials(rows):
                self.out.rows(parts)
        else:
            self.out.rows(rows, times)

    def _by_pane(self, rows: list[Any], times: Sequence[int]) -> None:
        reached_ns = self._reached_ns
        if reached_ns is None:
            self.out.rows(rows, times)
            return
        assert self._spans is not None, "panes are those of windows"
        grid = self._spans.grid
        panes = by_pane(grid, rows, times)
        first = self._first_open(min(panes), max(panes), reached_ns)
        if min(panes) < first:
            open_ns = grid.start_of(first)
            behind = [place for place, time_ns in enumerate(times) if time_ns < open_ns]
            self.out.rows([rows[place] for place in behind], [times[place] for place in behind])
            ahead = [place for place, time_ns in enumerate(times) if time_ns >= open_ns]
            rows, times = [rows[place] for place in ahead], [times[place] for place in ahead]
            panes = {pane: part for pane, part in panes.items() if pane >= first}
        if not rows:
            return
        if not self._is_gain(panes.values()):
            self.out.rows(rows, times)
            return
        found, found_times = list[Any](), list[int]()
        for pane, of_pane in panes.items():
            parts = self.partials(of_pane)
            found += parts
            found_times += repeat(grid.start_of(pane), len(parts))
        if found:
            self.out.rows(found, found_times)

    def _is_gain(self, runs: Collection[list[Any]]) -> bool:
        """Returns whether the parts of some rows are fewer than they."""
        # Told before functions of the user run: each record calls them once.
        parts = sum(len({*state_keys([key for key, _ in run])}) for run in runs)
        return parts * self.gain_min <= sum(map(len, runs))

    def partials(self, rows: list[Any]) -> list[Any]:
        """Returns (key, part) of each key, by first arrival; rows that raise go to the error output."""
        table = Table({})
        self._aggregate.add(table, rows, self.guard)
        return list(zip(map(key_of, table.entries), map(PartialAggregate, table.entries.values()), strict=True))
