"""Windows of each record, and pairs with the records before and after it, against pandas and under restores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pandas
import pytest

from clonos.agg import collect, count, max_, mean, sum_
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.keyed_stream import KeyedStream
from clonos.api.windowed import WindowedStream
from clonos.api.windows import Range
from clonos.core.model.options import Options
from clonos.operators.event_time.durations import InvalidDuration
from clonos.operators.tags import Tag
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.samples import ColumnsGiven

BEGIN = datetime(2023, 1, 1, tzinfo=UTC)
SOURCES = [pytest.param(ColumnsGiven, id="columns"), pytest.param(Given, id="rows")]
LATE = Tag[Any]("late")


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def sent(seed: int, number: int) -> list[dict[str, Any]]:
    """Records out of order by less than five seconds; some have equal times."""
    rng = Random(seed)
    found = [
        {
            "key": rng.choice(("a", "b", None)),
            "number": place,
            "size": float(rng.randrange(100)),
            "at": at(max(0, place // 2 - rng.randrange(5))),
        }
        for place in range(number)
    ]
    return found


def keyed(graph: JobGraph, records: list[Any], source: Any = Given) -> KeyedStream[Any, Any]:
    return graph.source(source(records), timestamps=Timestamps("at", out_of_order="5s")).key_by("key")


def written(add: Callable[[JobGraph], Any]) -> list[Any]:
    """What leaves a job with this stream as its last one."""
    graph = JobGraph("job")
    add(graph).sink(Outbox())
    return [row for rows in run(graph, parallelism=1).written.values() for row in rows]


def groups_of(records: list[dict[str, Any]]) -> list[pandas.DataFrame]:
    """Records of each key as pandas has them: by time, then by arrival."""
    frame = pandas.DataFrame(records).sort_values("at", kind="stable")
    return [group.set_index("at") for _, group in frame.groupby("key", dropna=False)]


def by_number(of: Any) -> dict[int, Any]:
    return dict(sorted(of))


def rolled(stream: WindowedStream[Any, Any]) -> Any:
    return stream.aggregate(numbers=collect("number"), mean=mean("size"), n=count(), most=max_("size"))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(3))
def test_windows_of_a_length_of_time_equal_rolling_of_pandas(seed: int, source: Any) -> None:
    records = sent(seed, 200)
    found = written(lambda graph: rolled(keyed(graph, records, source).window(Range("10s"))))
    expected: dict[int, Any] = {}
    for group in groups_of(records):
        windows = group["size"].rolling("10s")
        columns = zip(group["number"], windows.mean(), windows.count(), windows.max(), group.index, strict=True)
        expected |= {number: (pytest.approx(size), n, most, until) for number, size, n, most, until in columns}
    assert by_number(
        (each.value["numbers"][-1], (each.value["mean"], each.value["n"], each.value["most"], each.end))
        for each in found
    ) == by_number(expected.items())
    assert [each.end for each in found] == sorted(each.end for each in found)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(3))
def test_windows_of_the_last_records_equal_rolling_of_pandas(seed: int, source: Any) -> None:
    records = sent(seed, 200)
    found = written(lambda graph: keyed(graph, records, source).last(4).map_frames(last_mean))
    expected: dict[int, Any] = {}
    for group in groups_of(records):
        means = group["size"].rolling(4, min_periods=1).mean()
        expected |= {number: pytest.approx(size) for number, size in zip(group["number"], means, strict=True)}
    assert by_number((row["number"], row["mean"]) for row in found) == by_number(expected.items())


def last_mean(frame: pandas.DataFrame) -> pandas.DataFrame:
    return frame.assign(mean=frame["size"].mean()).tail(1)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(3))
def test_a_key_without_a_record_for_its_ttl_is_forgotten(seed: int, source: Any) -> None:
    records = sent(seed, 200)
    lengths = written(lambda graph: rolled(keyed(graph, records, source).window(Range("10s", ttl="4s"))))
    last = written(lambda graph: rolled(keyed(graph, records, source).last(5, ttl="4s")))
    of_lengths: dict[int, Any] = {}
    of_last: dict[int, Any] = {}
    for group in groups_of(records):
        is_first = group.index.to_series().diff() >= pandas.Timedelta("4s")
        for _, burst in group.groupby(is_first.cumsum().to_numpy()):
            for windows, found in ((burst.rolling("10s"), of_lengths), (burst.rolling(5, min_periods=1), of_last)):
                found |= {int(each["number"].iloc[-1]): each["number"].tolist() for each in windows}
    assert max(map(len, of_lengths.values())) > 5
    assert by_number((each.value["numbers"][-1], each.value["numbers"]) for each in lengths) == by_number(
        of_lengths.items()
    )
    assert by_number((each.value["numbers"][-1], each.value["numbers"]) for each in last) == by_number(of_last.items())


def test_the_ttl_of_a_stream_without_timestamps_goes_by_the_clock() -> None:
    graph = JobGraph("job")
    records = [{"key": key, "number": number} for number, key in enumerate("ababaa")]
    graph.source(Given(records)).key_by("key").last(3, every=2, ttl="10s").apply(numbers).sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    for seconds in (0, 0, 9, 10, 10, 9):
        job.pass_time(seconds)
        job.read(1)
        job.drain()
    assert [row for rows in job.written.values() for row in rows] == [[0, 2], [4, 5]]
    job.finish()
    job.close()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shift", [1, 3, -1, -2])
def test_pairs_equal_shift_of_pandas(shift: int, source: Any) -> None:
    records = sent(7, 200)

    def paired(graph: JobGraph) -> Any:
        stream = keyed(graph, records, source)
        return stream.lag(shift) if shift > 0 else stream.lead(-shift)

    found = [(record["number"], None if other is None else other["number"]) for record, other in written(paired)]
    expected = [
        (number, None if other != other else int(other))
        for group in groups_of(records)
        for number, other in zip(group["number"], group["number"].shift(shift), strict=True)
    ]
    assert sorted(found) == sorted(expected)


def test_an_every_of_the_last_records_gives_a_result_after_as_many() -> None:
    records = [{"key": "a", "number": number, "at": at(number)} for number in range(8)]
    found = written(lambda graph: keyed(graph, records).last(3, every=2).aggregate(of=collect("number")))
    assert [each.value["of"] for each in found] == [[0, 1], [1, 2, 3], [3, 4, 5], [5, 6, 7]]
    assert (found[1].start, found[1].end) == (at(1), at(3))


def test_streams_without_timestamps_are_in_the_order_of_arrival() -> None:
    records = [{"key": "a", "number": number} for number in (3, 1, 2)]

    def stream(graph: JobGraph) -> KeyedStream[Any, Any]:
        return graph.source(Given(records)).key_by("key")

    sums = written(lambda graph: stream(graph).last(2).sum("number"))
    assert [each.value for each in sums] == [3, 4, 3]
    assert [other and other["number"] for _, other in written(lambda graph: stream(graph).lag())] == [None, 3, 1]
    assert [other and other["number"] for _, other in written(lambda graph: stream(graph).lead())] == [1, 2, None]
    with pytest.raises(InvalidJob, match="stream without timestamps"):
        stream(JobGraph("job")).window(Range("1s"))


ADDED: list[Callable[[KeyedStream[Any, Any]], Any]] = [
    lambda stream: stream.window(Range("30s"), late=LATE).apply(numbers),
    lambda stream: stream.last(9, late=LATE).apply(numbers),
    lambda stream: stream.lag(late=LATE),
    lambda stream: stream.lead(late=LATE),
]


@pytest.mark.parametrize("add", ADDED, ids=["range", "last", "lag", "lead"])
def test_records_behind_the_watermark_leave_beside_and_are_in_no_window(add: Callable[..., Any]) -> None:
    records = [{"key": "a", "number": number, "at": at(seconds)} for number, seconds in enumerate((0, 9, 20, 3, 21))]
    graph = JobGraph("job")
    added = add(graph.source(Given(records), timestamps="at").key_by("key"))
    added.side_output(LATE).sink(Outbox(), name="late", parallelism=2)
    added.sink(Outbox())
    found = run(graph, parallelism=1).written
    assert found.pop("late") == [records[3]]
    assert "'number': 3" not in repr(found)
    assert len(next(iter(found.values()))) == 4


def numbers(key: Any, window: Any, values: list[Any]) -> list[list[int]]:
    return [[value["number"] for value in values]]


def pair_numbers(pair: Any) -> list[int]:
    return [each["number"] for each in pair if each is not None]


FORGETTING: list[Callable[[KeyedStream[Any, Any]], WindowedStream[Any, Any]]] = [
    lambda stream: stream.window(Range("10s")),
    lambda stream: stream.window(Range("10h", ttl="10s")),
    lambda stream: stream.last(3, ttl="10s"),
]


@pytest.mark.parametrize("window", FORGETTING, ids=["range", "ttl of range", "ttl of last"])
def test_records_that_no_later_one_needs_are_forgotten(window: Callable[..., WindowedStream[Any, Any]]) -> None:
    records = [{"key": number, "number": number, "at": at(10 * number)} for number in range(200)]
    graph = JobGraph("job")
    window(keyed(graph, records)).count().sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    while job.read():
        job.drain()
    sizes = [sum(len(changes) for changes in taken[0]) for taken in job.barrier(1, full=True)]
    assert sum(sizes) < 2_000
    job.finish()
    job.close()


@pytest.mark.parametrize("stop", range(1, 60, 7))
def test_a_restored_task_goes_on_as_if_it_had_not_stopped(stop: int) -> None:
    def graph() -> JobGraph:
        found = JobGraph("job")
        stream = keyed(found, sent(11, 80))
        stream.window(Range("7s")).aggregate(of=collect("number"), total=sum_("size")).sink(Outbox())
        stream.last(5, every=2).apply(numbers).sink(Outbox())
        stream.last(5, every=2, ttl="3s").apply(numbers).sink(Outbox())
        stream.lag(2).map(pair_numbers).sink(Outbox())
        stream.lead(2).map(pair_numbers).sink(Outbox())
        return found

    whole = run(graph(), parallelism=1).written
    first = Run(graph().compile(Options(), parallelism=1))
    for _ in range(stop):
        first.read(1)
        first.drain()
    taken = first.barrier(1)
    second = Run(graph().compile(Options(), parallelism=1), restored=taken)
    second.finish()
    for name, rows in whole.items():
        assert sorted(map(repr, first.written.get(name, []) + second.written.get(name, []))) == sorted(map(repr, rows))
    first.close()
    second.close()


def test_windows_for_each_record_refuse_triggers_and_wrong_numbers() -> None:
    stream = keyed(JobGraph("job"), [])
    with pytest.raises(InvalidJob, match="each record has one result"):
        stream.window(Range("1s"), lateness="1s")
    with pytest.raises(InvalidJob, match="last of 0 records"):
        stream.last(0)
    with pytest.raises(InvalidJob, match="has count=0"):
        stream.lag(0)
    with pytest.raises(InvalidDuration):
        Range("long")
    with pytest.raises(InvalidJob, match="whose ttl is not less than its length"):
        Range("10s", ttl="10s")
    with pytest.raises(InvalidDuration):
        stream.last(3, ttl=0)
