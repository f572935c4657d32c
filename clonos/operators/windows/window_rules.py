"""Rules of a windowed step that all kinds of windows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clonos.core.values.copying import copied
from clonos.core.values.keys import key_of
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.steps.function_results import checked_items
from clonos.operators.user_errors import RAISED
from clonos.operators.windows.gathered import Failure, GatheredValues
from clonos.operators.windows.window_results import Window, result_of

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

    def of(self, stored: Any, parts: list[Any], window: Window, *, routes: bool) -> tuple[list[Any], list[Failure]]:
        """Returns the rows of a window for one state key, and what the user's code has raised.

        ``parts`` are accumulators, to be merged in their order; it leaves them as they are. If failures are routed, a
        part that cannot be merged is left out, and so is each gathered value that cannot be added.
        """
        failures: list[Failure] = []
        try:
            return self._rows(stored, self._merged(parts, failures, routes), window), failures
        except RAISED as error:
            failures.append((error, self._shown(parts)))
        aggregation = self._aggregation
        if not routes or not isinstance(aggregation, GatheredValues):
            return [], failures
        left, left_out = aggregation.without_failed([item for part in parts for item in part])
        if not left_out:
            return [], failures
        rows, others = self.of(stored, [left], window, routes=True) if left else ([], [])
        return rows, left_out + others

    def _rows(self, stored: Any, accumulator: Any, window: Window) -> list[Any]:
        apply = self._apply
        key, value = key_of(stored), self._aggregation.result(accumulator)
        return [result_of(key, window, value)] if apply is None else list(checked_items(apply(key, window, value)))

    def _merged(self, parts: list[Any], failures: list[Failure], routes: bool) -> Any:
        """Merges accumulators; those that cannot be merged become failures if these are routed."""
        first, *others = parts
        if not others:
            return first
        merge = self._aggregation.merge
        merged, joined = copied(first), [first]
        for other in others:
            try:
                merged = merge(merged, other)
            except RAISED as error:
                if not routes:
                    raise
                failures.append((error, copied(other)))
                merged = self._merged(joined, [], routes=False)  # the call may have changed it before it raised
                if len(joined) == 1:
                    merged = copied(merged)
            else:
                joined.append(other)
        return merged

    def _shown(self, parts: list[Any]) -> Any:
        """Returns what the error of a result shows: the values of the window, if it has them, or accumulators."""
        aggregation = self._aggregation
        if isinstance(aggregation, GatheredValues):
            return copied([value for part in parts for value in aggregation.values_of(part)])
        return copied(parts[0] if len(parts) == 1 else parts)
