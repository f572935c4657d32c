"""One of each stateful step behind a key, over rows and over columns, as jobs of sources with one task each.

A case of a new stateful operator belongs here: see ``test_every_stateful_operator_is_divided``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow

from clonos.agg import (
    approx_distinct,
    collect,
    count,
    count_distinct,
    first,
    last,
    max_,
    mean,
    min_,
    quantile,
    stddev,
    sum_,
)
from clonos.agg import distinct as distinct_values
from clonos.agg import top_k as highest
from clonos.api.emission import at_end, changes, each, every
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import CountSliding, CountTumbling, Global, Range, Session, Sliding, Tumbling
from clonos.operators.state.state_descriptors import ListState, MapState, ValueState
from clonos.operators.tags import Tag
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import START_NS, Given, Outbox

START: Final = START_NS // 1_000_000_000
LATE: Final = Tag[Any]("late")
SCHEMA: Final = pyarrow.schema(
    [
        ("key", pyarrow.string()),
        ("part", pyarrow.int32()),
        ("at", pyarrow.int64()),
        ("x", pyarrow.int64()),
        ("s", pyarrow.string()),
    ]
)

RECORDS: Final = 150


def records_of(seed: int, disorder: int = 6) -> list[dict[str, Any]]:
    """Records of about a minute, some of which are late by seconds."""
    rng = Random(seed)
    found = []
    for place in range(RECORDS):
        at = max(0, place * 60 // RECORDS - rng.randint(0, disorder))
        key, text = rng.choice([None, *"abcdefghij"]), rng.choice([None, *"pqrst", "long" * 9])
        x = rng.choice([None, *range(-9, 10)])
        found.append({"key": key, "part": rng.randrange(3), "at": START + at, "x": x, "s": text})
    return found


class Streams:
    """Streams of a job: ``one`` and ``two`` of records with timestamps, ``untimed`` without."""

    def __init__(self, graph: JobGraph, seed: int, *, is_column: bool) -> None:
        self._graph, self._seed, self._is_column, self._count = graph, seed, is_column, 0

    def stream(self, *, is_timed: bool = True) -> Any:
        """The next stream, which has other records than the ones before."""
        self._count += 1
        records = records_of(self._seed + self._count)
        source: Any = ColumnsOf(records, SCHEMA) if self._is_column else Given(records)
        timestamps: Any = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None)
        return self._graph.source(source, timestamps=timestamps if is_timed else None, parallelism=1)

    def keyed(self, *keys: str, is_timed: bool = True) -> Any:
        """The next stream by the columns of a key."""
        return self.stream(is_timed=is_timed).key_by(*(keys or ("key",)))


class Case(NamedTuple):
    """A step with what it stands on. ``kinds``: "rows", "columns" or both."""

    build: Callable[[Streams], Any]
    kinds: tuple[str, ...] = ("rows", "columns")
    has_late: bool = False


def totals() -> dict[str, Any]:
    """Aggregates with state of all forms over the whole input."""
    return {
        "n": count(),
        "total": sum_("x"),
        "average": mean("x"),
        "first": first("x"),
        "most": max_("x"),
        "first_text": first("s"),
        "last_text": last("s"),
        "least_text": min_("s"),
    }


def distinct_totals() -> dict[str, Any]:
    """Those with counts of distinct values."""
    return {**totals(), "texts": count_distinct("s"), "numbers": count_distinct("x")}


def window_totals() -> dict[str, Any]:
    """Aggregates of windows with and without logs."""
    return {
        "n": count(),
        "total": sum_("x"),
        "first": first("x"),
        "spread": stddev("x"),
        "texts": count_distinct("s"),
        "values": distinct_values("x"),
        "middle": quantile("x", 0.5),
        "about": approx_distinct("s"),
    }


def plain_totals() -> dict[str, Any]:
    """Aggregates whose state is a few numbers."""
    return {"n": count(), "total": sum_("x"), "least": min_("x"), "first": first("x")}


class Sessions:
    """State of each kind, with times to live and both kinds of timers."""

    seen = ValueState[int]("seen", default=0)
    recent = ValueState[int]("recent", default=0, ttl="9s")
    values = ListState[Any]("values")
    kinds = MapState[Any, int]("kinds")

    def process(self, value: Any, context: Any) -> None:
        context.state(self.seen).value += 1
        context.state(self.recent).value += 1
        context.state(self.values).append(value["x"])
        kinds = context.state(self.kinds)
        kinds[value["part"]] = kinds.get(value["part"], 0) + 1
        context.set_event_timer(context.timestamp + timedelta(seconds=5))
        context.set_timer(datetime.fromtimestamp(value["at"] + 20, tz=context.timestamp.tzinfo))

    def on_event_timer(self, timestamp: datetime, context: Any) -> None:
        seen, recent = context.state(self.seen).value, context.state(self.recent).value
        context.emit((context.key, seen, recent, list(context.state(self.values)), dict(context.state(self.kinds))))
        context.state(self.values).clear()

    def on_timer(self, timestamp: datetime, context: Any) -> None:
        context.emit((context.key, timestamp, context.state(self.seen).value))


class Matching:
    """State of two inputs."""

    waiting = ListState[Any]("waiting")

    def process_first(self, value: Any, context: Any) -> None:
        context.state(self.waiting).append(value["x"])
        context.set_event_timer(context.timestamp + timedelta(seconds=5))

    def process_second(self, value: Any, context: Any) -> None:
        context.emit((context.key, value["x"], list(context.state(self.waiting))))

    def on_event_timer(self, timestamp: datetime, context: Any) -> None:
        context.state(self.waiting).clear()


def _added(key: Any, state: Any, value: Any) -> tuple[Any, Any]:
    state = (state or 0) + (value["x"] or 0)
    return (None if state % 5 == 0 else state), (key, state)


def _larger(left: Any, right: Any) -> Any:
    return left if (left["x"] or 0) > (right["x"] or 0) else right


def _joined(how: str) -> Callable[[Streams], Any]:
    return lambda given: given.keyed().join(given.keyed(), between=("-3s", "5s"), how=how, late=LATE)


CASES: Final[dict[str, Case]] = {
    "totals of each record": Case(lambda given: given.keyed().aggregate(**totals(), emit=each(1))),
    "totals after some records": Case(lambda given: given.keyed().aggregate(**totals(), emit=each(3))),
    "totals that change": Case(lambda given: given.keyed().aggregate(**distinct_totals(), emit=changes())),
    "totals with those before": Case(
        lambda given: given.keyed("key", "part").aggregate(**distinct_totals(), emit=changes(before=True))
    ),
    "totals at intervals": Case(lambda given: given.keyed().aggregate(**distinct_totals(), emit=every("2s"))),
    "totals at the end": Case(lambda given: given.keyed("part").aggregate(**distinct_totals(), emit=at_end())),
    "totals of parts": Case(
        lambda given: given.keyed().aggregate(**distinct_totals(), emit=every("2s"), split_hot_keys=True)
    ),
    "count of parts": Case(lambda given: given.keyed().count(split_hot_keys=True)),
    "windows of parts": Case(
        lambda given: (
            given.keyed()
            .window(Sliding("9s", every="3s"), lateness="3s", late=LATE)
            .aggregate(**window_totals(), split_hot_keys=True)
        ),
        has_late=True,
    ),
    "running count": Case(lambda given: given.keyed().count()),
    "reduce": Case(lambda given: given.keyed().reduce(_larger)),
    "stateful map": Case(lambda given: given.keyed().stateful_map(_added)),
    "process": Case(lambda given: given.keyed().process(Sessions), ("rows",)),
    "connected": Case(lambda given: given.keyed().connect(given.keyed()).process(Matching), ("rows",)),
    "distinct": Case(lambda given: given.keyed().distinct("x")),
    "first within": Case(lambda given: given.keyed().deduplicate("part", within="7s")),
    "last within": Case(lambda given: given.keyed().deduplicate("part", keep="last", within="7s")),
    "last of keys": Case(lambda given: given.keyed().deduplicate(keep="last")),
    "highest": Case(lambda given: given.keyed().top_k(3, "x")),
    "ranks": Case(lambda given: given.keyed("part").top_k(3, "x", rank="rank")),
    "tumbling": Case(
        lambda given: given.keyed().window(Tumbling("7s"), late=LATE).aggregate(**window_totals()), has_late=True
    ),
    "tumbling, few keys": Case(lambda given: given.keyed("part").window(Tumbling("7s")).aggregate(**plain_totals())),
    "tumbling with lateness": Case(
        lambda given: given.keyed().window(Tumbling("7s"), lateness="6s", late=LATE).aggregate(**window_totals()),
        has_late=True,
    ),
    "sliding that does not accumulate": Case(
        lambda given: (
            given.keyed("key", "part")
            .window(Sliding("9s", every="3s"), lateness="6s", accumulate=False)
            .aggregate(**plain_totals())
        )
    ),
    "windows of the clock": Case(
        lambda given: given.keyed(is_timed=False).window(Tumbling("5s", time="processing")).aggregate(**plain_totals())
    ),
    "sessions": Case(
        lambda given: given.keyed().window(Session("3s"), late=LATE).aggregate(**plain_totals()), has_late=True
    ),
    "sessions with lateness": Case(
        lambda given: given.keyed("key", "part").window(Session("3s"), lateness="5s").aggregate(**plain_totals())
    ),
    "sessions of lists": Case(lambda given: given.keyed().window(Session("3s")).aggregate(all=collect("x"))),
    "windows of counts": Case(lambda given: given.keyed().window(CountTumbling(4)).aggregate(**plain_totals())),
    "sliding counts": Case(lambda given: given.keyed().window(CountSliding(5, every=2)).aggregate(**plain_totals())),
    "global": Case(lambda given: given.keyed().window(Global(), trigger=each(4)).aggregate(best=highest(2, "x"))),
    "early": Case(
        lambda given: given.keyed().window(Tumbling("9s"), early=every("2s"), lateness="4s").aggregate(**plain_totals())
    ),
    "last records": Case(
        lambda given: given.keyed().last(3, ttl="20s").apply(lambda key, window, rows: [(key, len(list(rows)))])
    ),
    "range": Case(lambda given: given.keyed().window(Range("9s")).aggregate(**plain_totals())),
    "lag": Case(lambda given: given.keyed().lag(2)),
    "lead": Case(lambda given: given.keyed().lead()),
    "inner join": Case(_joined("inner"), has_late=True),
    "left join": Case(_joined("left"), has_late=True),
    "right join": Case(_joined("right"), has_late=True),
    "full join": Case(_joined("full"), has_late=True),
    "window join": Case(lambda given: given.keyed().join(given.keyed(), window=Tumbling("9s"), how="full")),
    "semi join": Case(_joined("semi"), has_late=True),
    "anti join": Case(_joined("anti"), has_late=True),
    "as of": Case(
        lambda given: given.keyed().join_as_of(given.keyed(), tolerance="20s", late=LATE),
        has_late=True,
    ),
    "as of by two columns": Case(
        lambda given: given.keyed("key", "part").join_as_of(
            given.keyed("key", "part"), direction="nearest", tolerance="9s"
        )
    ),
    "lookup": Case(lambda given: given.keyed(is_timed=False).lookup(given.keyed(is_timed=False))),
}


def build(graph: JobGraph, name: str, kind: str, seed: int) -> None:
    """Adds the job of a case."""
    case = CASES[name]
    results = case.build(Streams(graph, seed, is_column=kind == "columns"))
    results.sink(Outbox(), name="out")
    if case.has_late:
        results.side_output(LATE).sink(Outbox(), name="late-out")
