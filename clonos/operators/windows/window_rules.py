"""Rules of a windowed step that all kinds of windows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from clonos.core.values.copying import copied
from clonos.core.values.keys import key_of
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.steps.results import checked_items
from clonos.operators.user_errors import Guard
from clonos.operators.windows.merged_panes import MergedPanes
from clonos.operators.windows.results import Window, result_of

ApplyFunction = Callable[[Any, Window, list[Any]], Any]


@dataclass(frozen=True, slots=True)
class WindowRules:
    """Rules of a windowed step.

    - ``is_keyed``: its rows are (key, value). ``is_event_time``: its windows follow timestamps, else the task's clock.
    - ``lateness_ns``: how long a window takes records after its end. ``late_tag``: the side output of later ones.
    - ``accumulates``: a further result of a window has all its records, else those since the result before.
    - ``emits_at_end``: a window emits at its end what it has emitted before, too.
    - ``has_times``: results have timestamps.
    """

    is_keyed: bool = True
    is_event_time: bool = False
    lateness_ns: int = 0
    late_tag: str | None = None
    accumulates: bool = True
    emits_at_end: bool = True
    has_times: bool = False


class Results:
    """Maker of the results of windows from their accumulators."""

    __slots__ = ("_aggregation", "_apply")

    def __init__(self, aggregation: Aggregation[Any, Any], apply: ApplyFunction | None) -> None:
        """Creates it. ``apply`` gets key, window and result of the aggregation, and returns the rows to emit."""
        self._aggregation, self._apply = aggregation, apply

    def one(self, stored: Any, accumulator: Any, window: Window) -> list[Any]:
        """Returns the rows of a window for one state key. Code of the user may raise."""
        aggregation, apply = self._aggregation, self._apply
        key, value = key_of(stored), aggregation.result(accumulator)
        return [result_of(key, window, value)] if apply is None else list(checked_items(apply(key, window, value)))

    def of(self, guard: Guard, found: list[tuple[Any, list[Any]]], window: Window) -> list[Any]:
        """Returns the rows of a window. ``found`` are state keys with accumulators, to be merged in their order."""
        aggregation = self._aggregation

        def merged(entry: tuple[Any, list[Any]]) -> list[Any]:
            stored, (first, *others) = entry
            if others:
                first = copied(first)
                for other in others:
                    first = aggregation.merge(first, other)
            return self.one(stored, first, window)

        return self._each(
            guard, merged, found, [(stored, parts[0] if len(parts) == 1 else parts) for stored, parts in found]
        )

    def of_merged(self, guard: Guard, found: list[Any], panes: MergedPanes, window: Window) -> list[Any]:
        """Returns the rows of a sliding window for state keys, whose accumulators ``panes`` merges."""

        def result(stored: Any) -> list[Any]:
            return self.one(stored, panes.merged(stored), window)

        return self._each(guard, result, found, Parts(found, panes))

    def _each(self, guard: Guard, function: Callable[[Any], list[Any]], found: list[Any], shown: Any) -> list[Any]:
        rows, _ = guard.each(function, found, pairs=shown)
        return list(chain.from_iterable(rows))


class Parts:
    """State keys with the accumulators of their panes, made when an error shows one of them."""

    __slots__ = ("_found", "_panes")

    def __init__(self, found: list[Any], panes: MergedPanes) -> None:
        self._found, self._panes = found, panes

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        parts = self._panes.parts(self._found[index])
        return self._found[index], parts[0] if len(parts) == 1 else parts
