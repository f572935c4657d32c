"""Rows of random graphs, the sources that give them, and the contract of their steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any, Final

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.connectors.kit.history import HistorySource
from clonos.core.values import decode_value, encode_value
from clonos.operators.event_time.timestamps import to_timestamp_ns
from clonos.operators.tags import Tag
from clonos_chaos.jobs.fuzz_chain import KEYS, Disorder
from clonos_chaos.jobs.window_jobs import MS, START_NS, timestamp_ms

Row = tuple[int, tuple[Any, ...]]
"""Number, and what the steps have added: first (source,), then a mark of each step. No two rows are equal."""

Item = tuple[Row, int]
"""Row of the twin with its timestamp in ns."""

LATE: Final = Tag[Any]("late")
REPEATED_EVERY, REPEATED_BEFORE = 5, 3
"""Every fifth record of a source with duplicates is the third one before it, once more."""

SLEEP_POLLS: Final = 60
"""Polls for which a split sleeps halfway."""


def key_of_row(row: Row) -> int:
    """Returns the key of a row."""
    return row[0] % KEYS


def no_key(row: Row) -> None:
    """Returns the key of a row in a step without keys."""


def marked(row: Row, *mark: Any) -> Row:
    """Returns a row with the mark of a step."""
    return row[0], (*row[1], mark)


def name_of(row: Row | None) -> str:
    """Returns a short text that stands for a row in the mark of another one."""
    return "" if row is None else blake2b(repr(row).encode(), digest_size=8).hexdigest()


def micros(instant: datetime | int) -> int:
    """Returns an instant, or nanoseconds, as microseconds since the first record."""
    instant_ns = instant if isinstance(instant, int) else to_timestamp_ns(instant)
    return instant_ns // 1_000 - START_NS // 1_000


def same(row: Any) -> Any:
    """Returns the row."""
    return row


def in_turn(key: int, seen: int | None, row: Any) -> tuple[int, Any]:
    """Returns how many rows of the key have come, which is its state, and the row."""
    return (seen or 0) + 1, row


class GraphStep:
    """Step of a random graph. ``build`` adds it to a stream, ``twin`` does to all items what it does to the stream."""

    has_times = True
    """Whether its results have timestamps; otherwise it is the last step."""

    uses_rights = False
    """Whether it has a second input, which may be a source of its own."""

    rights: Stream[Row] | None = None
    right_items: list[Item] | None = None

    def __init__(self, stage: int, rng: Random) -> None:
        self.stage = stage
        self.every = rng.choice((2, 3, 4))  # the second input is each of these rows, if it has no source of its own
        self.parallelism = rng.choice((1, 1, 2))

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        """Adds the step; appends its late records, which are rows of ``rows``, to ``late``."""
        raise NotImplementedError

    def twin(self, items: list[Item]) -> list[Item]:
        """Returns the results without late records, in any order."""
        return items

    def rights_of(self, rows: Stream[Row]) -> Stream[Row]:
        """Returns the second input."""
        return self.rights if self.rights is not None else rows.filter(partial(_is_right, self.every))

    def right_twin(self, items: list[Item]) -> list[Item]:
        """Returns the items of the second input."""
        return self.right_items if self.right_items is not None else [e for e in items if _is_right(self.every, e[0])]


def _is_right(every: int, row: Row) -> bool:
    return row[0] % every == 0


class GraphSource:
    """Source of rows in some disorder. Split s of n has the records s, s + n, ...; those of split 0 may sleep."""

    def __init__(self, number: int, records: int, rng: Random, *, is_late: bool) -> None:
        self.number, self.records, self.is_late = number, records, is_late
        self.has_repeated = rng.random() < 0.3
        self.sleeps = rng.random() < 0.3
        self.disorder_ms = rng.choice((1, 25, 60))
        self._splits_per_task = rng.choice((1, 2, 3))
        self._parallelism = rng.choice((1, 1, 2))
        self._watermark_every = rng.choice((0.001, 0.001, 0.035))
        self._idle_after = 0.005 if is_late and self.sleeps else None
        # Drawn from what was drawn before, so that known seeds keep their graphs.
        self._is_continued = (records + self.disorder_ms + self._splits_per_task) % 3 == 0
        self._lag_ms = rng.choice((0, 5)) if is_late else self.disorder_ms + 10 * REPEATED_BEFORE

    def stream(self, graph: JobGraph, rng: Random) -> Stream[Row]:
        """Adds the source, and what removes its duplicates."""
        stamps = Timestamps(
            self.timestamp_ns,
            unit="ns",
            out_of_order=self._lag_ms / 1000 if self._lag_ms else None,
            watermark_every=self._watermark_every,
            idle_after=self._idle_after,
            future_max=None,
        )
        if self._is_continued:
            cut = self.records // 2
            halves = GraphPart(self, 0, cut).then(GraphPart(self, cut, self.records))
            rows: Stream[Row] = graph.source(halves, timestamps=stamps)
        else:
            rows = graph.source(self, parallelism=self._parallelism, timestamps=stamps)
        if rng.random() < 0.2:
            rows = rows.rebalance().map(same, parallelism=rng.choice((1, 2)))
        return rows

    def deduplicated(self, rows: Stream[Row], rng: Random) -> Stream[Row]:
        """Leaves the records that the source gives twice once in the stream.

        Both have one timestamp; where they may be late, the second one is behind any length of time.
        """
        within: Any = rng.choice((None,) if self.is_late else ("1ms", "80ms", "10min"))
        return rows.deduplicate(within=within, parallelism=rng.choice((1, 2))) if self.has_repeated else rows

    def number_of(self, place: int) -> int:
        """Returns the number of the record at a place."""
        is_repeated = self.has_repeated and place % REPEATED_EVERY == REPEATED_EVERY - 1
        return place - REPEATED_BEFORE if is_repeated else place

    def timestamp_ns(self, row: Row) -> int:
        """Returns the timestamp of a record."""
        return START_NS + (timestamp_ms(row[0], self.disorder_ms) + 15 * self.number) * MS

    def items(self) -> list[Item]:
        """Returns its records, each once."""
        rows: list[Row] = [
            (number, ((self.number,),)) for number in sorted(set(map(self.number_of, range(self.records))))
        ]
        return [(row, self.timestamp_ns(row)) for row in rows]

    def splits(self, parallelism: int) -> list[bytes]:
        return self.splits_between(0, self.records, parallelism)

    def splits_between(self, begin: int, end: int, parallelism: int) -> list[bytes]:
        """Returns the splits of the records at places from ``begin`` up to ``end``."""
        count = parallelism * self._splits_per_task
        return [encode_value((begin + first, count, end)) for first in range(count)]

    def reader(self) -> GraphReader:
        return GraphReader(self)


class GraphPart(HistorySource):
    """Records of a source at places from ``begin`` up to ``end``: a history, or what follows it."""

    def __init__(self, source: GraphSource, begin: int, end: int) -> None:
        self._source, self._begin, self._end = source, begin, end

    def splits(self, parallelism: int) -> list[bytes]:
        return self._source.splits_between(self._begin, self._end, parallelism)

    def reader(self) -> GraphReader:
        return GraphReader(self._source)


class GraphReader:
    """Reader of one split."""

    def __init__(self, source: GraphSource) -> None:
        self._source = source
        self._slept = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        found: Any = decode_value(split)
        self._first, self._stride, self._end = found
        self._next = self._first if mark is None else int(mark)

    def read(self, records_max: int) -> list[Row] | None:
        source = self._source
        if source.sleeps and self._first == 0 and self._next >= source.records // 2 and self._slept < SLEEP_POLLS:
            self._slept += 1
            return []
        places = range(self._next, self._end, self._stride)[:records_max]
        self._next += len(places) * self._stride
        return [(source.number_of(place), ((source.number,),)) for place in places] or None

    def mark(self) -> bytes:
        return str(self._next).encode()

    def close(self) -> None:
        pass


def check(condition: bool, problem: Callable[[], str]) -> None:
    """Raises Disorder, which fails the world: a step got what it must not get."""
    if not condition:
        raise Disorder(problem())
