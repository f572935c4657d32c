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
                first = None if self.accumulates else self._again[window, key]
                self._emit(window, key, first)
        self._again = {}
        windows = {window for _, _, time in self._records for window in self.windows_of(time)}
        for window in sorted(windows, key=lambda each: each[1]):
            if not self._is_behind(window[1]) and (watermark is None or window[1] <= watermark):
                ordered = self._in_order(window, None)
                for key in dict.fromkeys(key for key, _, _ in ordered):
                    self._emit(window, key, None)
        if watermark is not None:
            self.watermark = watermark

    def _emit(self, window: Span, key: Any, first: int | None) -> None:
        values = [value for each, value, _ in self._in_order(window, first) if each == key]
        self.results.append((key, *window, values))

    def _in_order(self, window: Span, first: int | None) -> list[tuple[Any, Any, int]]:
        pane = gcd(self.size, self.every)
        found = [each for each in self._records[first or 0 :] if window in self.windows_of(each[2])]
        return sorted(found, key=lambda each: (each[2] - self.offset) // pane) if first is None else found

    def _is_behind(self, time: int) -> bool:
        return self.watermark is not None and time <= self.watermark


class CumulativeTwin(SlidingTwin):
    """Cumulative windows in event time."""

    def windows_of(self, time: int) -> list[Span]:
        start = (time - self.offset) // self.size * self.size + self.offset
        return [(start, end) for end in range(start + self.every, start + self.size + 1, self.every) if end > time]


@dataclass
class SessionTwin:
    """Sessions in event time: each is the list of its records (number, value, time)."""

    gap: int
    length_max: int | None = None
    lateness: int = 0
    accumulates: bool = True
    watermark: int | None = None
    results: list[tuple[Any, int, int, list[Any]]] = field(default_factory=list)
    late: list[tuple[Any, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sessions: list[dict[str, Any]] = []
        self._arrived = 0

    def record(self, key: Any, value: Any, time: int) -> None:
        """Takes one record."""
        self._arrived += 1
        start, end = time, time + self.gap
        joined = []
        for session in sorted(self._of(key), key=lambda each: (each["start"], each["number"])):
            if session["start"] < end and start < session["end"]:
                widened = min(start, session["start"]), max(end, session["end"])
                if self.length_max is None or widened[1] - widened[0] <= self.length_max:
                    joined.append(session)
                    start, end = widened
        if self._is_behind(end + self.lateness):
            self.late.append((value, time))
            return
        new = {
            "key": key,
            "start": start,
            "end": end,
            "number": min([each["number"] for each in joined] + [self._arrived]),
            "values": [each for session in joined for each in session["values"]] + [value],
            "rest": [each for session in joined for each in session["rest"]] + [value],
        }
        self._sessions = [each for each in self._sessions if not any(each is one for one in joined)] + [new]

    def reach(self, watermark: int | None) -> None:
        """Takes a watermark; None for the end."""
        for session in sorted(self._sessions, key=lambda each: (each["end"], each["number"])):
            has_ended = watermark is None or session["end"] <= watermark
            if has_ended and session["rest"]:
                values = session["values"] if self.accumulates else session["rest"]
                self.results.append((session["key"], session["start"], session["end"], list(values)))
                session["rest"] = []
        if watermark is not None:
            self.watermark = watermark
            self._sessions = [each for each in self._sessions if each["end"] + self.lateness > watermark]

    def _of(self, key: Any) -> list[dict[str, Any]]:
        return [each for each in self._sessions if each["key"] == key]

    def _is_behind(self, time: int) -> bool:
        return self.watermark is not None and time <= self.watermark
