"""Windows and sessions at the end of fuzz jobs of columns."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, cast

from clonos.agg import collect, count, count_distinct, first, last, max_, min_, quantile, sum_, top_k, variance
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.api.windows import Cumulative, Session, Sliding, Tumbling, WindowKind
from clonos.expressions.building import col
from clonos_chaos.jobs.eager_parts import draws_split, with_eager_parts

Record = dict[str, Any]
Columns = Stream[Record]

LISTS: Final[dict[str, tuple[Any, Callable[[Any], Any], Callable[[list[int]], Any]]]] = {
    "all": (collect("n"), lambda found: tuple(sorted(found)), lambda numbers: tuple(sorted(numbers))),
    "most": (
        top_k(2, "n"),
        lambda found: tuple(record["n"] for record in found),
        lambda numbers: tuple(sorted(numbers, reverse=True)[:2]),
    ),
    "different": (count_distinct("n"), int, lambda numbers: len(set(numbers))),
    "text": (max_("text"), str, lambda numbers: max(map(str, numbers))),
    "median": (quantile("n", 0.5), float, lambda numbers: float(sorted(numbers)[(len(numbers) - 1) // 2])),
}
"""Aggregates whose state is a log: each with what a result is compared as, and what it must be."""


class WindowedColumns:
    """Windows or sessions over columns by key, with or without a step on columns after them.

    No record is late: each split has its records in the order of their timestamps.
    """

    def __init__(self, rng: Random, graph: JobGraph) -> None:
        self._graph = graph
        self._keys = rng.choice((1, 3, 10))
        self._size_s, self._every_s = rng.choice(((2, 2), (5, 5), (6, 2), (7, 3)))
        self._gap_s = rng.choice((None, None, 1, 2, 5))  # of sessions, in place of windows of a size
        self._lateness_s = rng.choice((None, 3))
        self._is_selected = rng.random() < 0.5
        self._parallelism = rng.choice((1, 2))
        self._has_two_keys = rng.random() < 0.4
        self._is_eager = rng.random() < 0.7
        self._has_floats = rng.random() < 0.4  # whose sums are never partial
        self._lists = [name for name in LISTS if rng.random() < 0.3] if self._gap_s is None else []
        self._has_spread = rng.random() < 0.3
        self._has_ends = rng.random() < 0.5
        self._grows = (self._size_s, self._every_s) == (6, 2) and self._parallelism == 2  # no draw: other worlds stay
        self._is_split = self._gap_s is None and draws_split(rng)
        if self._is_split:
            self._lists = [name for name in self._lists if name != "all"]
            if self._is_selected:  # so it has to give columns
                self._has_floats = self._has_spread = self._has_ends = False
                self._lists, self._lateness_s = [], None

    def add(self, stream: Columns) -> Columns:
        """Adds the windows to a stream."""
        kind: WindowKind
        if self._gap_s is not None:
            kind = Session(self._gap_s)
        else:
            several = Cumulative if self._grows else Sliding
            has_overlap = self._every_s < self._size_s
            kind = several(self._size_s, every=self._every_s) if has_overlap else Tumbling(self._size_s)
        floats: dict[str, Any] = {"parts": sum_("part")} if self._has_floats else {}
        lists: dict[str, Any] = {name: LISTS[name][0] for name in self._lists}
        if self._has_spread:
            lists["spread"] = variance("n")
        if self._has_ends:
            lists |= {"first": first("n"), "last": last("n")}
        results: Any = (
            stream.with_columns(
                key=col("n") % self._keys, odd=col("n") % 2 == 1, part=col("n") / 4, text=col("n").cast(str)
            )
            .key_by(*(("key", "odd") if self._has_two_keys else ("key",)))
            .window(kind, lateness=self._lateness_s)
            .aggregate(
                n=count(),
                total=sum_("n"),
                low=min_("n"),
                high=max_("n"),
                parallelism=self._parallelism,
                split_hot_keys=self._is_split,
                **floats,
                **lists,
            )
        )
        if self._is_eager:
            with_eager_parts(self._graph)
        if self._is_selected:
            results = results.filter(col("n") > 0).with_columns(n=col("n") * 2)
        return cast(Columns, results)

    def output(self, result: Any) -> tuple[int, tuple[Any, ...], Any]:
        """Returns the row of a result, which is a dict after a step on columns."""
        if self._is_selected:
            key = (result["key"], result["odd"]) if self._has_two_keys else result["key"]
            start, end, values = result["start"], result["end"], {**result, "n": result["n"] // 2}
        else:
            key, start, end, values = result.key, result.start, result.end, result.value
        start_s = int(start.timestamp())
        end_s = 0 if self._gap_s is not None else int(end.timestamp())
        names = ("n", "total", "low", "high", *(("parts",) if self._has_floats else ()))
        lists = (LISTS[name][1](values[name]) for name in self._lists)
        spread = (values["spread"],) if self._has_spread else ()
        ends = (self._has_two_ends(values),) if self._has_ends else ()
        return start_s, (), (key, start_s, end_s, *(values[name] for name in names), *lists, *spread, *ends)

    def _has_two_ends(self, values: dict[str, Any]) -> bool:
        """Returns whether the first and the last value may be those of a window; the order of tasks decides which."""
        low, high = values["low"], values["high"]
        are_equal = values["first"] == values["last"]
        are_within = all(
            low <= each <= high and (each - low) % self._keys == 0 for each in (values["first"], values["last"])
        )
        return are_within and are_equal == (values["n"] == 1)

    def twin(self, records: Iterable[Record]) -> Counter[Any]:
        """Returns the rows of all windows."""
        found: dict[tuple[Any, int, int], list[int]] = {}
        begun: dict[Any, tuple[int, int]] = {}  # of each key, the start of its session and the time of its last record
        for record in records:
            key, at_s = self._key(record["n"]), record["at"]
            if self._gap_s is not None:
                start_s, last_s = begun.get(key, (at_s, at_s))
                start_s = start_s if at_s < last_s + self._gap_s else at_s
                begun[key] = start_s, at_s
                found.setdefault((key, start_s, 0), []).append(record["n"])
                continue
            for start_s, end_s in self._spans(at_s):
                found.setdefault((key, start_s, end_s), []).append(record["n"])
        return Counter((*place, *self._values(numbers)) for place, numbers in found.items())

    def _spans(self, at_s: int) -> list[tuple[int, int]]:
        last_s = at_s - at_s % self._every_s
        if self._grows:
            start_s = at_s - at_s % self._size_s
            return [
                (start_s, end_s) for end_s in range(last_s + self._every_s, start_s + self._size_s + 1, self._every_s)
            ]
        return [(start_s, start_s + self._size_s) for start_s in range(last_s, at_s - self._size_s, -self._every_s)]

    def _values(self, numbers: list[int]) -> tuple[Any, ...]:
        """Returns the results of a window."""
        sums = (
            len(numbers),
            sum(numbers),
            min(numbers),
            max(numbers),
            *((sum(numbers) / 4,) if self._has_floats else ()),
        )
        spread = float(statistics.variance(numbers)) if len(numbers) > 1 else None
        lists = (LISTS[name][2](numbers) for name in self._lists)
        return (*sums, *lists, *((spread,) if self._has_spread else ()), *((True,) if self._has_ends else ()))

    def _key(self, number: int) -> Any:
        key = number % self._keys
        return (key, number % 2 == 1) if self._has_two_keys else key
