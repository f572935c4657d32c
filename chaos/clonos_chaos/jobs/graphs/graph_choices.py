"""Steps of random graphs that choose or gather rows, branch, or merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final

from clonos.agg import count, sum_
from clonos.api.emission import at_end, each, every
from clonos.api.keyed_stream import KeyedStream
from clonos.api.stream import Stream
from clonos.api.windows import Range
from clonos.operators.windows.window_results import Window
from clonos_chaos.jobs.eager_parts import draws_split, with_eager_parts
from clonos_chaos.jobs.graphs.graph_rows import LATE, GraphStep, Item, Row, check, key_of_row, marked, micros, name_of
from clonos_chaos.jobs.graphs.graph_windows import number_of, rank
from clonos_chaos.jobs.window_jobs import MS

RANGE_MS: Final = 40
TTL_MS: Final = 15
"""Length of windows of time, and how long a key without rows is kept."""


class Deduplicating(GraphStep):
    """Rows that are doubled, and one of which is left."""

    def __init__(self, stage: int, rng: Random, *, is_exact: bool) -> None:
        super().__init__(stage, rng)
        self.within_ms = rng.choice((1, 30, 600_000)) if is_exact else 600_000
        self.keep: Any = rng.choice(("first", "last") if is_exact else ("first",))

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        doubled = rows.flat_map(_twice)
        return doubled.deduplicate(within=f"{self.within_ms}ms", keep=self.keep, parallelism=self.parallelism)

    def twin(self, items: list[Item]) -> list[Item]:
        later_ns = self.within_ms * MS - 1 if self.keep == "last" else 0
        return [(row, time_ns + later_ns) for row, time_ns in items]


class MergedBranches(GraphStep):
    """Two branches that are merged in the order of their timestamps, or the rows of each key in this order.

    Where no record is late, a row of a window of time has the start of its window.
    """

    def __init__(self, stage: int, rng: Random, *, is_exact: bool) -> None:
        super().__init__(stage, rng)
        self._has_starts = is_exact and self.every > 3 and stage % 2 == 1
        self._ttl_ms = None if self.parallelism == 2 else TTL_MS

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        if self.every > 2:  # no draw of its own, which would make other worlds of all seeds
            return self._of_keys(rows.key_by(key_of_row), late)
        odd, even = rows.split(_is_odd)
        merged = even.merge_ordered(odd, late=LATE)
        late.append(merged.side_output(LATE))
        return merged

    def _of_keys(self, keyed: KeyedStream[int, Row], late: list[Stream[Row]]) -> Stream[Row]:
        if self.every == 3:
            pairs = keyed.lag(2, late=LATE, parallelism=self.parallelism)
            late.append(pairs.side_output(LATE))
            return pairs.map(_first_of_key)
        ttl = None if self._ttl_ms is None else f"{self._ttl_ms}ms"
        length = Range(f"{RANGE_MS}ms", ttl)
        windows = keyed.window(length, late=LATE) if self.stage % 2 else keyed.last(3, ttl=ttl, late=LATE)
        function = partial(_marked_last_of_key, self.stage) if self._has_starts else _last_of_key
        found: Stream[Row] = windows.apply(function, parallelism=self.parallelism)
        late.append(found.side_output(LATE))
        return found

    def twin(self, items: list[Item]) -> list[Item]:
        if not self._has_starts:
            return items
        gap_ns = (self._ttl_ms or RANGE_MS) * MS
        times: dict[int, list[int]] = {}
        for row, time_ns in items:
            times.setdefault(key_of_row(row), []).append(time_ns)
        found = []
        for row, time_ns in items:
            start_ns = time_ns
            for earlier_ns in sorted((ns for ns in times[key_of_row(row)] if ns < time_ns), reverse=True):
                if earlier_ns <= max(time_ns - RANGE_MS * MS, start_ns - gap_ns):
                    break
                start_ns = earlier_ns
            found.append((marked(row, self.stage, micros(start_ns)), time_ns))
        return found


class Branching(GraphStep):
    """Two branches, each with a step or none, and their union."""

    def __init__(self, stage: int, rng: Random, steps: Sequence[GraphStep]) -> None:
        super().__init__(stage, rng)
        self.steps = steps

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        odd, even = rows.split(_is_odd)
        for step in self.steps:
            odd = step.build(odd, late)
        return odd.union(even)

    def twin(self, items: list[Item]) -> list[Item]:
        odd = [item for item in items if _is_odd(item[0])]
        for step in self.steps:
            odd = step.twin(odd)
        return odd + [item for item in items if not _is_odd(item[0])]


class FoldedRows(GraphStep):
    """Fold that emits the rows of a key so far again and again, and what leaves each once."""

    has_times = False

    def __init__(self, stage: int, rng: Random) -> None:
        super().__init__(stage, rng)
        self.emit = rng.choice((each(1), each(4), every("20ms"), at_end()))
        self.is_keyed = rng.random() < 0.5

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        gathered: Stream[Any]
        if self.every == 3:  # the pairs of lead have the time of the later row, which the last step does not need
            pairs = rows.key_by(key_of_row).lead(2, late=LATE)
            late.append(pairs.side_output(LATE))
            rows = pairs.map(_first_of_key)
        if self.is_keyed:
            gathered = rows.key_by(key_of_row).fold([], list.append, emit=self.emit, parallelism=self.parallelism)
            gathered = gathered.map(_second)
        else:
            gathered = rows.fold([], list.append, emit=self.emit)
        return gathered.flat_map(list).distinct()


class RankedRows(GraphStep):
    """Running top k of each key, of which the last one leaves."""

    has_times = False

    def __init__(self, stage: int, rng: Random) -> None:
        super().__init__(stage, rng)
        self.k = rng.choice((1, 3))

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        ranked = rows.key_by(key_of_row).top_k(self.k, by=rank, parallelism=self.parallelism)
        last: Stream[Any] = ranked.key_by(_first).fold([], _latest, emit=at_end())
        return last.map(partial(_ranked, self.stage))

    def twin(self, items: list[Item]) -> list[Item]:
        keys = {key_of_row(row) for row, _ in items}
        found = []
        for key in keys:
            top = sorted((row for row, _ in items if key_of_row(row) == key), key=rank, reverse=True)
            found.append(((key, ((self.stage, *map(name_of, top[: self.k])),)), 0))
        return found


class Totalling(GraphStep):
    """Aggregates of each key at the end of the input."""

    has_times = False

    def __init__(self, stage: int, rng: Random) -> None:
        super().__init__(stage, rng)
        self.is_split = draws_split(rng)

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        keyed = rows.key_by(key_of_row)
        totals = keyed.aggregate(
            n=count(),
            total=sum_(number_of),
            emit=at_end(),
            parallelism=self.parallelism,
            split_hot_keys=self.is_split,
        )
        if self.is_split:
            with_eager_parts(totals._graph)
        return totals.map(partial(_totals, self.stage))

    def twin(self, items: list[Item]) -> list[Item]:
        counted = Counter(key_of_row(row) for row, _ in items)
        return [
            ((key, ((self.stage, n, sum(row[0] for row, _ in items if key_of_row(row) == key)),)), 0)
            for key, n in counted.items()
        ]


def _is_odd(row: Row) -> bool:
    return row[0] % 2 == 1


def _first_of_key(pair: tuple[Row, Row | None]) -> Row:
    row, other = pair
    check(other is None or (key_of_row(row) == key_of_row(other) and row != other), lambda: f"a pair is {pair}")
    return row


def _last_of_key(key: int, window: Window, rows: list[Row]) -> list[Row]:
    check(all(key_of_row(row) == key for row in rows), lambda: f"a window of the key {key} has {rows}")
    check(len({*rows}) == len(rows) and window.start <= window.end, lambda: f"a window has {rows}")
    return rows[-1:]


def _marked_last_of_key(stage: int, key: int, window: Window, rows: list[Row]) -> list[Row]:
    return [marked(row, stage, micros(window.start)) for row in _last_of_key(key, window, rows)]


def _twice(row: Row) -> list[Row]:
    return [row, row]


def _first(pair: Any) -> Any:
    return pair[0]


def _second(pair: Any) -> Any:
    return pair[1]


def _latest(before: Any, pair: Any) -> Any:
    return pair[1]


def _ranked(stage: int, pair: Any) -> Row:
    return pair[0], ((stage, *map(name_of, pair[1])),)


def _totals(stage: int, pair: Any) -> Row:
    return pair[0], ((stage, pair[1]["n"], pair[1]["total"]),)
