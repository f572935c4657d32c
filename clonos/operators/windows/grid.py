"""Panes: the division of time into numbered intervals, of which tumbling and sliding windows consist.

A sliding window is a run of panes of the greatest common divisor of size and slide. A record is added to one pane,
whatever the overlap of the windows. A grid in a time zone has days of 23 and 25 hours where its clocks change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from clonos.core.model.watermark import INSTANT_NS_MIN
from clonos.operators.event_time.timestamps import from_timestamp_ns, to_timestamp_ns

NANOSECONDS_PER_DAY: Final = 86_400_000_000_000
EPOCH_DAY: Final = datetime(1970, 1, 1)


class Grid(ABC):
    """Panes of one length, numbered from the Unix epoch, moved by the offset."""

    @abstractmethod
    def index_of(self, instant_ns: int) -> int:
        """Returns the number of the pane that has an instant."""

    @abstractmethod
    def start_of(self, index: int) -> int:
        """Returns the start of a pane in nanoseconds since the Unix epoch."""

    @abstractmethod
    def indexes_of(self, instants_ns: Any) -> Any:
        """Returns the numbers of the panes that have the instants of a numpy array, as an array of int64."""


class UtcGrid(Grid):
    """Panes of equal length."""

    __slots__ = ("_pane_ns", "_offset_ns")

    def __init__(self, pane_ns: int, offset_ns: int) -> None:
        self._pane_ns, self._offset_ns = pane_ns, offset_ns

    def index_of(self, instant_ns: int) -> int:
        return (instant_ns - self._offset_ns) // self._pane_ns

    def indexes_of(self, instants_ns: Any) -> Any:
        if not self._offset_ns:
            return instants_ns // self._pane_ns
        import numpy

        panes, rests = numpy.divmod(instants_ns, self._pane_ns)  # before the offset, which may lead beyond 64 bits
        moved, offset_ns = divmod(self._offset_ns, self._pane_ns)
        return panes - moved - (rests < offset_ns)

    def start_of(self, index: int) -> int:
        return index * self._pane_ns + self._offset_ns


class ZoneGrid(Grid):
    """Panes of whole days in a time zone. They begin when its clocks show the offset after midnight."""

    __slots__ = ("_days", "_offset", "_zone", "_starts")

    def __init__(self, days: int, offset_ns: int, timezone: str) -> None:
        self._days = days
        self._offset = timedelta(microseconds=offset_ns // 1_000)
        self._zone = ZoneInfo(timezone)
        self._starts: dict[int, int] = {}

    def index_of(self, instant_ns: int) -> int:
        local = from_timestamp_ns(instant_ns).astimezone(self._zone).replace(tzinfo=None)
        index = (local - self._offset - EPOCH_DAY) // timedelta(days=self._days)
        while self.start_of(index) > instant_ns:  # the offset may lie in an hour that the clocks skip or repeat
            index -= 1
        while self.start_of(index + 1) <= instant_ns:
            index += 1
        return index

    def indexes_of(self, instants_ns: Any) -> Any:
        import numpy

        # The panes of the days in UTC that occur: one record of 1970 among those of today adds one day.
        days = numpy.unique(instants_ns // NANOSECONDS_PER_DAY).tolist()
        indexes = sorted({index for day in days for index in self._indexes_in(day * NANOSECONDS_PER_DAY)})
        starts = numpy.array([max(self.start_of(index), INSTANT_NS_MIN) for index in indexes], numpy.int64)
        return numpy.array(indexes, numpy.int64)[numpy.searchsorted(starts, instants_ns, "right") - 1]

    def _indexes_in(self, day_ns: int) -> range:
        return range(self.index_of(day_ns), self.index_of(day_ns + NANOSECONDS_PER_DAY - 1) + 1)

    def start_of(self, index: int) -> int:
        found = self._starts.get(index)
        if found is None:
            local = EPOCH_DAY + timedelta(days=index * self._days) + self._offset
            found = self._starts[index] = to_timestamp_ns(local.replace(tzinfo=self._zone).astimezone(UTC))
            if len(self._starts) > 4_096:
                del self._starts[next(iter(self._starts))]
        return found


class Spans:
    """Windows over a grid: window k has ``panes`` panes from pane ``k * slide`` on. A window is named by its end."""

    __slots__ = ("grid", "panes", "slide")

    def __init__(self, grid: Grid, panes: int, slide: int) -> None:
        self.grid, self.panes, self.slide = grid, panes, slide

    def ends_of(self, pane: int) -> range:
        """Returns the ends of the windows that have a pane: the numbers of the panes after them."""
        first = -((self.panes - pane - 1) // self.slide) * self.slide
        return range(first + self.panes, self.last_end_of(pane) + 1, self.slide)

    def last_end_of(self, pane: int) -> int:
        """Returns the end of the last window that has a pane."""
        return pane // self.slide * self.slide + self.panes

    def panes_of(self, end: int) -> range:
        """Returns the panes of a window."""
        return range(self.first_pane_of(end), end)

    def first_pane_of(self, end: int) -> int:
        """Returns the first pane of a window."""
        return end - self.panes

    def block_of(self, end: int) -> int:
        """Returns the first pane of the block in which a window ends; a window has panes of two blocks at most."""
        return end // self.panes * self.panes

    def start_ns(self, end: int) -> int:
        """Returns the start of a window."""
        return self.grid.start_of(self.first_pane_of(end))

    def end_ns(self, end: int) -> int:
        """Returns the end of a window."""
        return self.grid.start_of(end)


class CumulativeSpans(Spans):
    """Windows that grow by a pane until they have ``panes`` panes; then the next one begins with one pane."""

    __slots__ = ()

    def __init__(self, grid: Grid, panes: int) -> None:
        super().__init__(grid, panes, 1)

    def ends_of(self, pane: int) -> range:
        return range(pane + 1, self.last_end_of(pane) + 1)

    def last_end_of(self, pane: int) -> int:
        return pane // self.panes * self.panes + self.panes

    def first_pane_of(self, end: int) -> int:
        return (end - 1) // self.panes * self.panes

    def block_of(self, end: int) -> int:
        return self.first_pane_of(end)
