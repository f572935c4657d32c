"""Kinds of windows and the notation of their sizes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any, Final, Literal

from clonos.api.event_time import known_timezone
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import NANOSECONDS, Duration, InvalidDuration, duration_ns, duration_text
from clonos.operators.row_errors import InvalidGap
from clonos.operators.windows.grid import NANOSECONDS_PER_DAY, CumulativeSpans, Grid, Spans, UtcGrid, ZoneGrid
from clonos.operators.windows.record_windows import Preceding

Time = Literal["event", "processing"]
"""Time that windows follow: the timestamps of the records, or the clock of the task."""

PANES_MAX: Final = 10_000
"""Maximum number of panes of a sliding window."""


class WindowKind:
    """Base of all kinds of windows."""

    __slots__ = ()


class Aligned(WindowKind):
    """Base of the kinds whose windows are the same for all keys: runs of panes, in UTC or by the clocks of a zone."""

    __slots__ = ()

    size_ns: int
    every_ns: int
    time: Time | None
    offset_ns: int
    timezone: str | None

    @property
    def shares_panes(self) -> bool:
        """Whether a record may be in several windows."""
        return True

    @property
    def pane_ns(self) -> int:
        """Length of a pane in nanoseconds."""
        return gcd(self.size_ns, self.every_ns)

    @property
    def overlap(self) -> int:
        """Maximum number of windows that a record is in."""
        return -(-self.size_ns // self.every_ns)

    @abstractmethod
    def spans(self) -> Spans:
        """Returns the panes of the windows."""

    def __str__(self) -> str:
        """Returns kind and lengths, such as "Sliding 10min every 1min"; stores have this text."""
        return f"{self._lengths()}{_alignment(self.offset_ns, self.timezone)}"

    def _lengths(self) -> str:
        return f"{type(self).__name__} {duration_text(self.size_ns)} every {duration_text(self.every_ns)}"

    def _align(self, time: Any, offset: Duration | None, timezone: Any, period_ns: int) -> None:
        """Sets the time that the windows follow, and where the first of each ``period_ns`` begins."""
        set_field = partial(object.__setattr__, self)
        set_field("time", _checked_time(time))
        set_field("offset_ns", _checked_offset(offset, period_ns))
        set_field("timezone", _checked_timezone(timezone, self.pane_ns))

    def _grid(self) -> Grid:
        if self.timezone is not None:
            return ZoneGrid(self.pane_ns // NANOSECONDS_PER_DAY, self.offset_ns, self.timezone)
        return UtcGrid(self.pane_ns, self.offset_ns)


@explains_calls
@dataclass(frozen=True, slots=True, init=False)
class Tumbling(Aligned):
    """Tumbling windows: fixed size, without gaps or overlap, aligned to the Unix epoch in UTC.

    On a stream with timestamps they follow event time, else the clock of the task (processing time). Windows in
    processing time are exactly-once here: the time is recorded, so a record is in the same window after a failure as
    before it.

    Example::

        Tumbling("5s")
        Tumbling(timedelta(minutes=2), time="processing")
        Tumbling("1d", timezone="Europe/Berlin")
    """

    size_ns: int
    time: Time | None
    offset_ns: int
    timezone: str | None

    def __init__(
        self,
        size: Duration,
        *,
        time: Time | None = None,
        offset: Duration | None = None,
        timezone: str | None = None,
    ) -> None:
        """Creates windows of ``size``: a str such as "500ms", "5s", "2min", "1h" or "1d", a timedelta, or seconds.

        The size is a whole number of milliseconds, from 1 ms to 100 years.

        Args:
            size: length of a window.
            time: "event" or "processing"; None for event time on a stream with timestamps.
            offset: moves all windows, by less than their size: ``Tumbling("1d", offset="6h")`` begins at six.
            timezone: name of the time zone by whose clocks days begin, for windows of whole days. A day on which the
                clocks change has 23 or 25 hours.

        Raises:
            InvalidDuration: ``size`` or ``offset`` is something else.
            InvalidJob: another argument cannot be used.
        """
        object.__setattr__(self, "size_ns", duration_ns(size))
        self._align(time, offset, timezone, self.size_ns)

    @property
    def every_ns(self) -> int:  # type: ignore[override]
        """Distance from one window to the next in nanoseconds."""
        return self.size_ns

    @property
    def shares_panes(self) -> bool:
        """Whether a record may be in several windows."""
        return False

    def spans(self) -> Spans:
        """Returns the panes: each is a window."""
        return Spans(self._grid(), 1, 1)

    def _lengths(self) -> str:
        return f"{type(self).__name__} {duration_text(self.size_ns)}"


@explains_calls
@dataclass(frozen=True, slots=True, init=False)
class Sliding(Aligned):
    """Sliding windows: fixed size, one begins at each multiple of ``every``, so that they overlap.

    A record is added once, whatever the overlap: windows share panes of the greatest common divisor of both lengths.

    Example::

        Sliding("10min", every="1min")
    """

    size_ns: int
    every_ns: int
    time: Time | None
    offset_ns: int
    timezone: str | None

    def __init__(
        self,
        size: Duration,
        every: Duration,
        *,
        time: Time | None = None,
        offset: Duration | None = None,
        timezone: str | None = None,
    ) -> None:
        """Creates windows of ``size``, one beginning ``every`` so often. The other arguments are those of ``Tumbling``.

        Raises:
            InvalidDuration: ``size``, ``every`` or ``offset`` is no length of time.
            InvalidJob: ``every`` is longer than ``size``, so that records would be in no window, or their greatest
                common divisor is less than a ten-thousandth of the size; or another argument cannot be used.
        """
        set_field = partial(object.__setattr__, self)
        set_field("size_ns", duration_ns(size))
        set_field("every_ns", duration_ns(every))
        shown = f"Sliding({duration_text(self.size_ns)!r}, every={duration_text(self.every_ns)!r})"
        if self.every_ns > self.size_ns:
            raise InvalidJob("window", f"gets {shown}, which leaves records out", "Let every= be at most the size.")
        if self.size_ns // self.pane_ns > PANES_MAX:
            problem = f"gets {shown}, whose greatest common divisor is only {duration_text(self.pane_ns)}"
            advice = f"Let the size be a multiple of every=, at most {PANES_MAX:,} times as long."
            raise InvalidJob("window", problem, advice)
        self._align(time, offset, timezone, self.every_ns)

    def spans(self) -> Spans:
        """Returns the panes, of the greatest common divisor of both lengths."""
        return Spans(self._grid(), self.size_ns // self.pane_ns, self.every_ns // self.pane_ns)


@explains_calls
@dataclass(frozen=True, slots=True, init=False)
class Cumulative(Aligned):
    """Cumulative windows: they begin together, ``size`` apart, and end one after the other, ``every`` apart.

    So there is a result for the part of a day that has passed, hour by hour; the last one has the whole day. A key has
    a result at each of these ends from its first record of the day on. A record is added once.

    Example::

        Cumulative("1d", every="1h")
    """

    size_ns: int
    every_ns: int
    time: Time | None
    offset_ns: int
    timezone: str | None

    def __init__(
        self,
        size: Duration,
        every: Duration,
        *,
        time: Time | None = None,
        offset: Duration | None = None,
        timezone: str | None = None,
    ) -> None:
        """Creates windows that grow by ``every`` up to ``size``. The other arguments are those of ``Tumbling``.

        Raises:
            InvalidDuration: ``size``, ``every`` or ``offset`` is not a length of time.
            InvalidJob: ``size`` is not a multiple of ``every``, or more than 10,000 times as long; or another argument
                cannot be used.
        """
        set_field = partial(object.__setattr__, self)
        set_field("size_ns", duration_ns(size))
        set_field("every_ns", duration_ns(every))
        shown = f"Cumulative({duration_text(self.size_ns)!r}, every={duration_text(self.every_ns)!r})"
        if self.size_ns % self.every_ns:
            raise InvalidJob("window", f"gets {shown}", "Let the size be a multiple of every=.")
        if self.overlap > PANES_MAX:
            advice = f"Let the size be at most {PANES_MAX:,} times as long as every=."
            raise InvalidJob("window", f"gets {shown}, which is {self.overlap:,} windows", advice)
        self._align(time, offset, timezone, self.size_ns)

    def spans(self) -> Spans:
        """Returns the panes, of the length by which the windows grow."""
        return CumulativeSpans(self._grid(), self.overlap)


@explains_calls
@dataclass(frozen=True, slots=True, init=False)
class Session(WindowKind):
    """Sessions: records of a key that follow each other within a gap. A session ends a gap after its last record.

    Example::

        Session(gap="30min")
        Session(gap=lambda event: "5min" if event["device"] == "phone" else "30min", max_length="12h")
    """

    gap: Duration | Callable[[Any], Duration]
    max_length_ns: int | None
    time: Time | None

    def __init__(
        self, gap: Duration | Callable[[Any], Duration], *, max_length: Duration | None = None, time: Time | None = None
    ) -> None:
        """Creates sessions.

        Args:
            gap: length of time without a record of the key that ends a session, or a function of the record that gives
                it.
            max_length: limit of a session from its start to its end. A record that would make it longer begins another
                one. None: a session may last for ever.
            time: "event" or "processing"; None for event time on a stream with timestamps.

        Raises:
            InvalidDuration: a length is something else.
            InvalidJob: ``max_length`` is less than the gap, or ``time`` is something else.
        """
        set_field = partial(object.__setattr__, self)
        set_field("gap", gap if callable(gap) else duration_text(duration_ns(gap)))
        set_field("max_length_ns", None if max_length is None else duration_ns(max_length))
        set_field("time", _checked_time(time))
        if self.max_length_ns is not None and not callable(gap) and self.max_length_ns < duration_ns(gap):
            problem = f"gets max_length={max_length!r}, which is less than the gap"
            raise InvalidJob("window", problem, f"Give at least {self.gap!r}.")

    @property
    def gap_ns(self) -> int | Callable[[Any], int]:
        """Gap in nanoseconds, or a function of the record that gives it."""
        if not callable(self.gap):
            return duration_ns(self.gap)
        gap_of = self.gap

        def gap_ns_of(record: Any) -> int:
            try:
                return duration_ns(gap_of(record))
            except InvalidDuration as error:
                raise InvalidGap(str(error)) from None

        return gap_ns_of

    def __str__(self) -> str:
        """Returns kind and lengths, such as "Session gap 30min"; stores have this text."""
        limit = "" if self.max_length_ns is None else f" at most {duration_text(self.max_length_ns)}"
        return f"Session gap {'of a function' if callable(self.gap) else self.gap}{limit}"


@explains_calls
@dataclass(frozen=True, slots=True)
class CountTumbling(WindowKind):
    """Windows of ``count`` records of a key. The last one may have fewer, when the input ends.

    Example::

        CountTumbling(100)
    """

    count: int

    def __post_init__(self) -> None:
        checked_count("CountTumbling", self.count)

    def __str__(self) -> str:
        """Returns kind and count, such as "CountTumbling 100"; stores have this text."""
        return f"CountTumbling {self.count}"


@explains_calls
@dataclass(frozen=True, slots=True)
class CountSliding(WindowKind):
    """Windows of the last ``count`` records of a key, with a result after every ``every`` of them.

    Example::

        CountSliding(100, every=10)
    """

    count: int
    every: int

    def __post_init__(self) -> None:
        checked_count("CountSliding", self.count)
        checked_count("CountSliding", self.every)
        if self.every > self.count:
            problem = f"gets CountSliding({self.count}, every={self.every}), which leaves records out"
            raise InvalidJob("window", problem, "Let every= be at most the count.")

    def __str__(self) -> str:
        """Returns kind and counts, such as "CountSliding 100 every 10"; stores have this text."""
        return f"CountSliding {self.count} every {self.every}"


@explains_calls
@dataclass(frozen=True, slots=True)
class Global(WindowKind):
    """One window of all records of a key. It emits when the input ends, and when a trigger says so.

    Example::

        stream.key_by("user").window(Global(), trigger=each(100), accumulate=False).aggregate(total=sum_("price"))
    """

    def __str__(self) -> str:
        """Returns the kind; stores have this text."""
        return "Global"


class PerRecord(WindowKind):
    """Base of the kinds whose records have a window each, with the records of the key that came up to it in time."""

    __slots__ = ()

    @abstractmethod
    def bound(self) -> Preceding:
        """Returns which records are in the window of a record."""


@explains_calls
@dataclass(frozen=True, slots=True)
class Range(PerRecord):
    """Window of each record: the records of its key that are less than ``length`` before it, by time, and itself.

    ``ttl``: after that long without a record, less than ``length``, the key begins anew.

    Example::

        Range("10min")
    """

    length: Duration
    ttl: Duration | None = None

    def __post_init__(self) -> None:
        if self.ttl is not None and duration_ns(self.ttl) >= duration_ns(self.length):
            problem = f"gets Range({self.length!r}, ttl={self.ttl!r}), whose ttl is not less than its length"
            raise InvalidJob("window", problem, "Leave ttl= out: no record is in a window for longer than its length.")
        duration_ns(self.length)

    def bound(self) -> Preceding:
        return Preceding(length_ns=duration_ns(self.length), ttl_ns=_ttl_ns(self.ttl))

    def __str__(self) -> str:
        """Returns kind and length, such as "Range 10min"; stores have this text."""
        return f"Range {duration_text(duration_ns(self.length))}"


@dataclass(frozen=True, slots=True)
class LastRecords(PerRecord):
    """Window of the last ``count`` records of a key by time, for each ``every``-th record: ``KeyedStream.last``."""

    count: int
    every: int
    ttl: Duration | None

    def __post_init__(self) -> None:
        checked_count("last", self.count)
        checked_count("last", self.every)
        _ttl_ns(self.ttl)

    def bound(self) -> Preceding:
        return Preceding(count=self.count, every=self.every, ttl_ns=_ttl_ns(self.ttl))

    def __str__(self) -> str:
        """Returns kind and counts, such as "last 100 every 10"; stores have this text."""
        return f"last {self.count} every {self.every}"


def checked_count(what: str, count: Any) -> int:
    """Returns a number of records.

    Raises: InvalidJob: it is not an int of at least 1.
    """
    if type(count) is not int or count < 1:
        raise InvalidJob("window", f"gets {what} of {count!r:.80} records", "Give an int of at least 1.")
    return count


def _ttl_ns(ttl: Duration | None) -> int | None:
    return None if ttl is None else duration_ns(ttl)


def _checked_time(time: Any) -> Any:
    if time not in (None, "event", "processing"):
        raise InvalidJob("window", f"gets time={time!r:.80}", 'Give "event" or "processing".')
    return time


def _checked_offset(offset: Duration | None, period_ns: int) -> int:
    offset_ns = 0 if offset is None else duration_ns(offset)
    if offset_ns >= period_ns:
        problem = f"gets offset={offset!r}, which is not less than the distance of its windows"
        raise InvalidJob("window", problem, f"Give less than {duration_text(period_ns)!r}.")
    return offset_ns


def _checked_timezone(timezone: Any, pane_ns: int) -> str | None:
    if timezone is None:
        return None
    if pane_ns % NANOSECONDS["d"]:
        raise InvalidJob(
            "window", f"gets timezone={timezone!r:.80} for parts of days", "Give whole days, or offset= instead."
        )
    return known_timezone("window", timezone)


def _alignment(offset_ns: int, timezone: str | None) -> str:
    offset = f" offset {duration_text(offset_ns)}" if offset_ns else ""
    return f"{offset} in {timezone}" if timezone else offset
