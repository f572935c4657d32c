"""Merged panes of sliding windows: the cost of a result does not grow with the number of panes of its window.

Panes are divided into blocks as long as a window. A window is the end of one block and the beginning of the next: each
key has the merged ends of the first one (``front``) and the merged beginning of the second (``back``). Which panes are
merged with which therefore follows from the end of the window alone. All of this is derived from the panes, so a
restored operator gives equal results.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clonos.core.values.copying import copied
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.state.keyed_state import Table
from clonos.operators.user_errors import RAISED
from clonos.operators.windows.grid import Spans


class KeyPanes:
    """Panes of one key and their merged accumulators.

    ``places`` are the places of the key in these panes. ``block`` is the first pane of ``back``, None if ``front`` and
    ``back`` are out of date; ``front`` has the end of the block before from each of its panes on, the oldest last;
    ``fresh`` are panes that ``back`` lacks.
    """

    __slots__ = ("panes", "places", "block", "front", "back", "fresh")

    def __init__(self) -> None:
        self.panes: deque[int] = deque()
        self.places: deque[int] = deque()
        self.block: int | None = None
        self.front: list[Any] = []
        self.back: list[Any] = []  # at most one accumulator
        self.fresh: list[int] = []


class MergedPanes:
    """Merged panes of all keys. Windows come in the order of their ends."""

    def __init__(self, aggregation: Aggregation[Any, Any], spans: Spans, tables: Mapping[int, Table]) -> None:
        """Creates it for windows whose accumulators are in ``tables``."""
        self._aggregation, self._spans, self._tables = aggregation, spans, tables
        self._keys: dict[Any, KeyPanes] = {}
        self._covered: int | None = None  # the end of the last window
        self._block = 0

    def change(self, pane: int, keys: Iterable[Any]) -> None:
        """Takes note that accumulators of a pane have changed, which a window may have had already."""
        if self._covered is None or pane >= self._covered:
            return
        for key in keys:
            found = self._keys.get(key)
            index = 0 if found is None else bisect_left(found.panes, pane)
            if found is not None and index < len(found.panes) and found.panes[index] == pane:
                found.block = None
            else:  # it was added just now, so it is one of the last
                entries = self._tables[pane].contents()
                after = next(count for count, each in enumerate(reversed(entries)) if each == key)
                found = self._keys.setdefault(key, KeyPanes())
                found.block = None
                found.panes.insert(index, pane)
                found.places.insert(index, len(entries) - 1 - after)

    def window(self, end: int) -> Iterator[tuple[Any, list[Any]]]:
        """Goes on to the window that ends in front of the pane ``end``.

        Yields its keys, by the first pane that has them, then by arrival, each with its merged accumulator; with those
        of its panes if they cannot be merged.
        """
        for key in self._reach(end):
            try:
                parts = [self._merge(key)]
            except RAISED:  # a part that cannot be merged is left out later
                parts = [self._tables[pane].entries[key] for pane in self._keys[key].panes]
            yield key, parts

    def _reach(self, end: int) -> list[Any]:
        start = self._spans.first_pane_of(end)
        for pane in range(start if self._covered is None else max(start, self._covered), end):
            if pane in self._tables:
                self._cover(pane)
        self._covered, self._block = end, self._spans.block_of(end)
        ordered: list[tuple[int, int, Any]] = []
        for key, found in list(self._keys.items()):
            while found.panes and found.panes[0] < start:
                found.panes.popleft()
                found.places.popleft()
                if found.block == self._block:
                    found.front.pop()
            if found.panes:
                ordered.append((found.panes[0], found.places[0], key))
            else:
                del self._keys[key]
        ordered.sort()  # a place of a pane has one key, so that keys are never compared
        return [key for _, _, key in ordered]

    def _cover(self, pane: int) -> None:
        for place, key in enumerate(self._tables[pane].contents()):
            found = self._keys.get(key)
            if found is None:
                found = self._keys[key] = KeyPanes()
            found.panes.append(pane)
            found.places.append(place)
            found.fresh.append(pane)

    def _merge(self, key: Any) -> Any:
        found, merge = self._keys[key], self._aggregation.merge
        if found.block != self._block:
            self._divide(key, found)
        while found.fresh:
            accumulator = self._tables[found.fresh[0]].entries[key]
            found.back = [merge(copied(found.back[0]), accumulator) if found.back else accumulator]
            del found.fresh[0]
        if not found.front or not found.back:
            return (found.front or found.back)[-1]
        return merge(copied(found.front[-1]), found.back[0])

    def _divide(self, key: Any, found: KeyPanes) -> None:
        """Merges the panes in front of the block from the newest on; those after are fresh."""
        front: list[Any] = []
        for pane in reversed(found.panes):
            if pane < self._block:
                accumulator = self._tables[pane].entries[key]
                front.append(self._aggregation.merge(copied(accumulator), front[-1]) if front else accumulator)
        found.front, found.back = front, []
        found.fresh = [pane for pane in found.panes if pane >= self._block]
        found.block = self._block
