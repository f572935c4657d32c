"""Dumb twins of windows: they keep all records and look at all of them again for each result."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

Span = tuple[int, int]


@dataclass
class SlidingTwin:
    """Tumbling and sliding windows in event time; ``every`` equals ``size`` for tumbling ones.

    ``results`` are (key, start, end, values); the values of a pane come before those of later ones.
    """

    size: int
    every: int
    offset: int = 0
    lateness: int = 0
    accumulates: bool = True
    watermark: int | None = None
    results: list[tuple[Any, int, int, list[Any]]] = field(default_factory=list)
    late: list[tuple[Any, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._records: list[tuple[Any, Any, int]] = []
        self._again: dict[tuple[Span, Any], int] = {}  # windows with further records, by the first of these

    def windows_of(self, time: int) -> list[Span]:
        """Returns the windows of an instant, by their end."""
        last = (time - self.offset) // self.every * self.every + self.offset
        starts = range(last, time - self.size, -self.every)
        return sorted((start, start + self.size) for start in starts)

    def record(self, key: Any, value: Any, time: int) -> None:
        """Takes one record."""
        windows = self.windows_of(time)
        if all(self._is_behind(end + self.lateness) for _, end in windows):
            self.late.append((value, time))
            return
        number = len(self._records)
        self._records.append((key, value, time))
        for window in windows:
            if self._is_behind(window[1]) and not self._is_behind(window[1] + self.lateness):
                self._again.setdefault((window, key), number)

    def reach(self, watermark: int | None) -> None:
        """Takes a watermark; None for the end."""
        for window in sorted({window for window, _ in self._again}, key=lambda each: each[1]):
            keys = [key for each, key in self._again if each == window]
            for key in keys:
                first = 0 if self.accumulates else self._again[window, key]
                self._emit(window, key, first)
        self._again = {}
        windows = {window for _, _, time in self._records for window in self.windows_of(time)}
        for window in sorted(windows, key=lambda each: each[1]):
            if not self._is_behind(window[1]) and (watermark is None or window[1] <= watermark):
                ordered = self._in_order(window, 0)
                for key in dict.fromkeys(key for key, _, _ in ordered):
                    self._emit(window, key, 0)
        if watermark is not None:
            self.watermark = watermark

    def _emit(self, window: Span, key: Any, first: int) -> None:
        values = [value for each, value, _ in self._in_order(window, first) if each == key]
        self.results.append((key, *window, values))

    def _in_order(self, window: Span, first: int) -> list[tuple[Any, Any, int]]:
        pane = gcd(self.size, self.every)
        found = [each for each in self._records[first:] if window in self.windows_of(each[2])]
        return sorted(found, key=lambda each: (each[2] - self.offset) // pane) if first == 0 else found

    def _is_behind(self, time: int) -> bool:
        return self.watermark is not None and time <= self.watermark
