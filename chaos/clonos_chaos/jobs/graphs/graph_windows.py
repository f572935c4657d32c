"""Windows of random graphs: those whose results follow from timestamps alone, and those that let each row through."""

from __future__ import annotations

from ast import literal_eval
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pyarrow

from clonos.agg import aggregate, count, max_, mean, min_, quantile, sum_, top_k
from clonos.api.emission import at_end, each, every
from clonos.api.stream import Stream
from clonos.api.window_step import every_event_time, last_values, newest_values
from clonos.api.windowed import WindowedStream
from clonos.api.windows import CountSliding, CountTumbling, Cumulative, Global, Session, Sliding, Tumbling, WindowKind
from clonos.operators.aggregates.quantiles import EXACT_MAX
from clonos.operators.windows.triggers import Trigger, TriggerContext
from clonos.operators.windows.window_results import Window
from clonos_chaos.jobs.eager_parts import draws_split, with_eager_parts
from clonos_chaos.jobs.graphs.graph_rows import (
    LATE,
    GraphStep,
    Item,
    Row,
    check,
    key_of_row,
    marked,
    micros,
    name_of,
    no_key,
)
from clonos_chaos.jobs.window_jobs import MS

Span = tuple[int, int]
"""Start and end of a window in ns."""

GAPS_MS = (20, 40, 70)


def gap_ms(row: Row) -> int:
    """Returns the gap of the session of a row, which differs between rows."""
    return GAPS_MS[row[0] % len(GAPS_MS)]


def gap_of(row: Row) -> timedelta:
    """Returns the same as the user gives it."""
    return timedelta(milliseconds=gap_ms(row))


class TwinWindow:
    """Kind of window of which the twin knows the windows of each row."""

    def __init__(self, rng: Random) -> None:
        self.name = rng.choice(("tumbling", "sliding", "session", "dynamic session"))
        self.size, self.every = rng.choice(((40, 20), (60, 20), (50, 25)))
        self.offset = rng.choice((0, 0, 7))
        if self.name == "tumbling":
            self.size = self.every = rng.choice((20, 50, 130))
        self.gap = rng.choice((35, 60, 90))
        if self.name == "sliding" and self.gap == 90:  # no draw of its own, which would make other worlds of all seeds
            self.name = "cumulative"

    def kind(self, gap: Callable[[Any], timedelta] = gap_of) -> WindowKind:
        """Returns the kind of window of the public API, with this function of the gap of a session."""
        offset = f"{self.offset}ms" if self.offset else None
        match self.name:
            case "sliding":
                return Sliding(f"{self.size}ms", every=f"{self.every}ms", offset=offset)
            case "cumulative":
                return Cumulative(f"{self.size}ms", every=f"{self.every}ms", offset=offset)
            case "tumbling":
                return Tumbling(f"{self.size}ms", offset=offset)
            case "session":
                return Session(f"{self.gap}ms")
            case _:
                return Session(gap)

    def spans(self, items: list[Item], key: Callable[[Row], Any]) -> list[list[Span]]:
        """Returns the windows of each item."""
        if "session" in self.name:
            return self._sessions(items, key)
        found = []
        for _, time_ns in items:
            if self.name == "cumulative":
                start = (time_ns - self.offset * MS) // (self.size * MS) * self.size * MS + self.offset * MS
                ends = range(start + self.every * MS, start + self.size * MS + 1, self.every * MS)
                found.append([(start, end) for end in ends if end > time_ns])
                continue
            first = (time_ns - self.offset * MS) // (self.every * MS) * self.every * MS + self.offset * MS
            starts = range(first, time_ns - self.size * MS, -self.every * MS)
            found.append([(start, start + self.size * MS) for start in starts])
        return found

    def _sessions(self, items: list[Item], key: Callable[[Row], Any]) -> list[list[Span]]:
        spans: list[list[Span]] = [[] for _ in items]
        for each_key in {key(row) for row, _ in items}:
            places = [place for place, (row, _) in enumerate(items) if key(row) == each_key]
            session: list[int] = []
            start = end = 0
            for place in sorted(places, key=lambda place: items[place][1]):
                row, time_ns = items[place]
                if session and time_ns >= end:
                    session = []
                if not session:
                    start, end = time_ns, time_ns
                session.append(place)
                end = max(end, time_ns + (self.gap if self.name == "session" else gap_ms(row)) * MS)
                for member in session:
                    spans[member] = [(start, end)]
        return spans


class Windowing(GraphStep):
    """Windows whose rows leave with the window, and with the number of rows that left with them."""

    def __init__(self, stage: int, rng: Random) -> None:
        super().__init__(stage, rng)
        self.spec = TwinWindow(rng)
        self.is_keyed = rng.random() < 0.85
        self.options: dict[str, Any] = rng.choice(({}, {}, {"trigger": at_end()}, {"evictor": last_values(1 << 20)}))
        self.how = rng.choice(("apply", "merge", "gather"))
        self.lateness = rng.choice((None, "20ms"))
        if self.how == "gather" and self.spec.every < self.spec.size:  # no draw of its own, as above
            self.how = "frames"
        may_be_split = self.is_keyed and not self.options and "session" not in self.spec.name
        self.is_split = may_be_split and draws_split(rng)

    @property
    def key(self) -> Callable[[Row], Any]:
        """The function of the key."""
        return key_of_row if self.is_keyed else no_key

    def windows(
        self, rows: Stream[Any], key: Callable[[Any], Any] = key_of_row, gap: Callable[[Any], timedelta] = gap_of
    ) -> WindowedStream[Any, Any]:
        """Adds the windows to a stream."""
        options = {**self.options, "lateness": self.lateness, "late": LATE}
        return (rows.key_by(key) if self.is_keyed else rows).window(self.spec.kind(gap), **options)

    def frames(self, rows: Stream[Row], late: list[Stream[Row]], parallelism: int | None) -> Stream[Row]:
        """Adds windows whose rows a function gets as a frame."""
        windows = self.windows(rows.map(_as_record), _key_of_record, _gap_of_record)
        frames = windows.map_frames(partial(_frame_left, self.stage), parallelism=parallelism)
        late.append(frames.side_output(LATE).map(_row_of))
        return frames.map(_row_of)

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        windows, emit = self.windows(rows), partial(_left, self.stage)
        parallelism = self.parallelism if self.is_keyed else None
        if self.how == "apply":
            left: Stream[Row] = windows.apply(emit, parallelism=parallelism)
            late.append(left.side_output(LATE))
            return left
        if self.how == "frames":
            return self.frames(rows, late, parallelism)
        merge = list.extend if self.how == "merge" else None
        has_parts = self.is_split and merge is not None
        gathered = windows.aggregate(list, list.append, merge=merge, parallelism=parallelism, split_hot_keys=has_parts)
        if has_parts:
            with_eager_parts(gathered._graph)
        late.append(gathered.side_output(LATE))
        return gathered.flat_map(partial(_of_result, emit))

    def twin(self, items: list[Item]) -> list[Item]:
        spans = self.spec.spans(items, self.key)
        found = [(item[0], span) for item, each_spans in zip(items, spans, strict=True) for span in each_spans]
        sizes = Counter((self.key(row), span) for row, span in found)
        unit_ns = 1_000 if self.how == "frames" else 1  # columns have microseconds
        return [
            (
                marked(row, self.stage, micros(span[0]), micros(span[1]), sizes[self.key(row), span]),
                (span[1] - 1) // unit_ns * unit_ns,
            )
            for row, span in found
        ]


class Totals(Windowing):
    """Windows of named aggregates: one row for each window of a key."""

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        totals = self.windows(rows).aggregate(
            n=count(),
            total=sum_(number_of),
            mean=mean(number_of),
            least=min_(number_of),
            most=max_(number_of),
            middle=quantile(number_of, 0.5),
            top=top_k(2, by=rank),
            all=aggregate(list, list.append, list.extend, sorted),
            parallelism=self.parallelism if self.is_keyed else None,
            split_hot_keys=self.is_split,
        )
        if self.is_split:
            with_eager_parts(totals._graph)
        late.append(totals.side_output(LATE))
        return totals.map(partial(_totals_row, self.stage))

    def twin(self, items: list[Item]) -> list[Item]:
        groups: dict[tuple[Any, Span], list[Row]] = {}
        spans = self.spec.spans(items, self.key)
        for (row, _), each_spans in zip(items, spans, strict=True):
            for span in each_spans:
                groups.setdefault((self.key(row), span), []).append(row)
        found = []
        for (key, (start_ns, end_ns)), rows in groups.items():
            numbers = sorted(number for number, _ in rows)
            shown = (
                len(rows),
                sum(numbers),
                repr(sum(numbers) / len(numbers)),  # floats are no keys of a distinct after it
                numbers[0],
                numbers[-1],
                repr(float(numbers[(len(numbers) - 1) // 2])) if len(numbers) <= EXACT_MAX else "",
                tuple(map(name_of, sorted(rows, key=rank, reverse=True)[:2])),
                tuple(map(name_of, sorted(rows))),
            )
            found.append((_total(self.stage, key, micros(start_ns), micros(end_ns), shown), end_ns - 1))
        return found


class EveryOther(Trigger):
    """Trigger of the user, with state and both kinds of timers."""

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        context.state = (context.state or 0) + 1
        if context.state % 3 == 0:
            context.set_event_timer_ns(context.time_ns + 20 * MS)
        elif context.state % 5 == 0:
            context.set_timer_ns(context.now_ns() + 5 * MS)
        return bool(context.state % 2 == 0)

    def on_timer(self, context: TriggerContext) -> bool:
        return context.count > 0

    def on_event_timer(self, context: TriggerContext) -> bool:
        return context.count > 0


class Passing(GraphStep):
    """Windows whose composition depends on the order of arrival; each row leaves once, unchanged, or is late."""

    def __init__(self, stage: int, rng: Random) -> None:
        super().__init__(stage, rng)
        self.length_max_ms = 0
        triggers = (each(1), each(3), every("10ms"), every_event_time("30ms"), at_end(), EveryOther())
        options: dict[str, Any] = {"accumulate": rng.random() < 0.3}
        self.kind: WindowKind
        match rng.randrange(7):
            case 0:
                self.kind = CountTumbling(rng.choice((1, 3, 7)))
            case 1:
                self.kind = CountSliding(*rng.choice(((4, 2), (5, 5), (6, 1))))
                options["accumulate"] = True
            case 2:
                self.kind, options["trigger"] = Global(), rng.choice(triggers)
                evictors = (last_values(1 << 20), newest_values("1h"), None)
                options["evictor"] = rng.choice(evictors) if options["accumulate"] else None
            case 3:
                self.length_max_ms = rng.choice((70, 100))
                self.kind = Session(gap_of, max_length=f"{self.length_max_ms}ms")
            case 4:
                self.kind, options["early"] = Session(gap_of), rng.choice(triggers)
            case 5:
                self.kind, options["early"] = Tumbling("50ms"), rng.choice(triggers)
            case _:
                self.kind, options["trigger"] = Tumbling("130ms"), rng.choice(triggers)
        if isinstance(self.kind, Tumbling | Session):
            options |= {"late": LATE, "lateness": rng.choice((None, "20ms", "200ms"))}
        self.options = options
        self.is_repeating = isinstance(self.kind, CountSliding) or options["accumulate"]
        self.is_gathered = rng.random() < 0.4

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        windows = rows.key_by(key_of_row).window(self.kind, **self.options)
        emit = partial(_unchanged, self.length_max_ms)
        if self.is_gathered:
            gathered = windows.aggregate(list, list.append, parallelism=self.parallelism)
            left: Stream[Row] = gathered.flat_map(partial(_of_result, emit))
            side: Stream[Any] = gathered
        else:
            side = left = windows.apply(emit, parallelism=self.parallelism)
        if "late" in self.options:
            late.append(side.side_output(LATE))
        return left.distinct() if self.is_repeating else left


class ByTheClock(GraphStep):
    """Windows in processing time: each row leaves once."""

    has_times = False

    def __init__(self, stage: int, rng: Random) -> None:
        super().__init__(stage, rng)
        sliding = Sliding("10ms", every="5ms", time="processing")
        kinds = (Tumbling("5ms", time="processing"), sliding, Session("3ms", time="processing"))
        self.kind: WindowKind = rng.choice(kinds)

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        left: Stream[Row] = rows.key_by(key_of_row).window(self.kind).apply(partial(_unchanged, 0))
        return left.distinct() if isinstance(self.kind, Sliding) else left


def number_of(row: Row) -> int:
    """Returns the number of a row."""
    return row[0]


def rank(row: Row) -> tuple[int, str]:
    """Returns the rank of a row, which no other row has."""
    return row[0], repr(row)


def _left(stage: int, key: Any, window: Window, rows: list[Row]) -> list[Row]:
    return [marked(row, stage, micros(window.start), micros(window.end), len(rows)) for row in rows]


def _as_record(row: Row) -> dict[str, Any]:
    return {"key": key_of_row(row), "row": repr(row)}


def _key_of_record(record: dict[str, Any]) -> Any:
    return record["key"]


def _gap_of_record(record: dict[str, Any]) -> timedelta:
    return gap_of(_row_of(record))


def _row_of(record: dict[str, Any]) -> Row:
    row: Row = literal_eval(record["row"])
    return row


def _frame_left(stage: int, key: Any, window: Window, frame: pyarrow.Table) -> pyarrow.Table:
    rows = _left(stage, key, window, [literal_eval(text) for text in frame.column("row").to_pylist()])
    return pyarrow.table({"row": [repr(row) for row in rows]})


def _of_result(emit: Callable[..., list[Row]], result: Any) -> list[Row]:
    return emit(result.key, Window(result.start, result.end), result.value)


def _total(stage: int, key: Any, start: int, end: int, shown: tuple[Any, ...]) -> Row:
    return 0 if key is None else key, ((stage, key, start, end, *shown),)


def _totals_row(stage: int, result: Any) -> Row:
    totals = result.value
    if totals["n"] > EXACT_MAX:
        totals["middle"] = ""
    shown = tuple(map(_shown, totals.values()))
    return _total(stage, result.key, micros(result.start), micros(result.end), shown)


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(name_of, value))
    return repr(value) if isinstance(value, float) else value


def _unchanged(length_max_ms: int, key: int, window: Window, rows: list[Row]) -> list[Row]:
    check(all(key_of_row(row) == key for row in rows), lambda: f"a window of the key {key} has {rows}")
    length = (window.end - window.start) / timedelta(milliseconds=1)
    check(not length_max_ms or length <= length_max_ms, lambda: f"a session of {key} is {length} ms long")
    return rows
