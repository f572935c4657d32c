"""Windows, spans and joins at both ends of the years of timestamps: columns give what rows do, and nothing wraps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from clonos.agg import count, first
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Session, Sliding, Tumbling
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Given, Outbox, run

YEARS = (1678, 1700, 1776, 1815, 1969, 1970, 2026, 2200, 2261)
SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])


def records(seed: int) -> list[dict[str, Any]]:
    rng = Random(seed)
    times = [datetime(rng.choice(YEARS), rng.randrange(1, 13), rng.randrange(1, 29), tzinfo=UTC) for _ in range(30)]
    times += [datetime(1678, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(2261, 12, 31, 23, 59, 59, tzinfo=UTC)]
    rng.shuffle(times)
    return [{"key": rng.randrange(2), "at": at, "n": number} for number, at in enumerate(times)]


def windowed(window: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda stream: stream.key_by("key").window(window, **options).aggregate(n=count(), one=first("n"))


STEPS: dict[str, Callable[[Any], Any]] = {
    "tumbling": windowed(Tumbling("36500d")),
    "tumbling by an offset": windowed(Tumbling("36500d", offset="36499d")),
    "sliding": windowed(Sliding("36500d", every="7300d")),
    "in a zone": windowed(Tumbling("36500d", timezone="America/New_York")),
    "with lateness": windowed(Tumbling("1d"), lateness="36500d"),
    "short sessions": windowed(Session(gap="1d")),
    "long sessions": windowed(Session(gap="36500d")),
    "sessions with lateness": windowed(Session(gap="1d"), lateness="36500d"),
    "windows of windows": lambda stream: (
        windowed(Tumbling("36500d"))(stream)
        .map(lambda result: {"key": result.key, "n": result.value["n"]})
        .key_by("key")
        .window(Tumbling("36500d"))
        .count()
    ),
    "spans": lambda stream: stream.deduplicate("key", within="36500d"),
    "last of spans": lambda stream: stream.deduplicate("key", within="36500d", keep="last"),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("out_of_order", ["1s", "36500d"])
def test_columns_give_what_rows_do_at_the_ends_of_time(name: str, seed: int, out_of_order: str) -> None:
    rows = records(seed)
    found = []
    for source in (Given(rows), ColumnsOf(rows, SCHEMA)):
        graph = JobGraph("job")
        timestamps = Timestamps("at", out_of_order=out_of_order, future_max=None)
        STEPS[name](graph.source(source, timestamps=timestamps)).sink(Outbox())
        found.append(run(graph, 1, 7).written)
    assert found[1] == found[0]
    assert any(found[0].values())


def test_a_window_has_its_bounds_although_they_are_outside_of_64_bits() -> None:
    rows = [{"key": 1, "at": datetime(year, 7, 1, tzinfo=UTC), "n": year} for year in (1700, 2200)]
    for source in (Given(rows), ColumnsOf(rows, SCHEMA)):
        graph = JobGraph("job")
        stream = graph.source(source, timestamps=Timestamps("at", future_max=None))
        stream.key_by("key").window(Tumbling("36500d")).count().sink(Outbox())
        (written,) = run(graph, 1, 1).written.values()
        assert [(f"{row.start:%Y}", f"{row.end:%Y}", row.value) for row in written] == [
            ("1670", "1770", 1),
            ("2169", "2269", 1),
        ]


def test_the_nearest_version_at_the_other_end_of_time_is_not_within_a_tolerance() -> None:
    sides = [[{"key": 1, "at": datetime(year, 7, 1, tzinfo=UTC), "n": year}] for year in (1678, 2261)]
    for make in (Given, lambda rows: ColumnsOf(rows, SCHEMA)):
        graph = JobGraph("job")
        lefts, rights = (
            graph.source(make(rows), name=name, timestamps=Timestamps("at", future_max=None)).key_by("key")
            for name, rows in zip(("left", "right"), sides, strict=True)
        )
        lefts.join_as_of(rights, direction="nearest", tolerance="36500d").sink(Outbox())
        (written,) = run(graph, 1, 1).written.values()
        assert written == [(sides[0][0], None)]
