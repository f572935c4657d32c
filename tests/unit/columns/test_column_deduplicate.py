"""deduplicate and distinct over columns give what they do over rows: same input, same results in the same order."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.operators.columnar.choosing.column_deduplicate import ColumnDeduplicate
from clonos.operators.transforms.deduplicate import Deduplicate
from tests.unit.columns.choice_in_front import in_front
from tests.unit.columns.test_column_windows import START, ColumnsOf
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

__all__ = ["in_front"]

records = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", None]),
            "at": st.sampled_from([START + at for at in (0, 1, 2, 2, 3, 4, 6, 9)]),
            "x": st.none() | st.integers(0, 2),
            "y": st.integers(0, 9).map(float),
        }
    ),
    max_size=40,
)


class Kind(NamedTuple):
    """Arguments of a step."""

    by: str | None
    keep: Any
    within: str | None
    is_event_time: bool
    keys: tuple[str, ...] = ("key",)


kinds = st.builds(
    Kind,
    st.sampled_from([None, "x", "key"]),
    st.just("first"),
    st.sampled_from([None, "1s", "3s", "7s"]),
    st.booleans(),
    st.sampled_from([("key",), ("key", "x")]),
) | st.builds(Kind, st.sampled_from([None, "x"]), st.just("last"), st.none(), st.booleans(), st.just(("key",)))


def deduplicated(graph: JobGraph, source: Any, kind: Kind) -> None:
    """Adds the job."""
    timestamps: Any = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None)
    stream = graph.source(source, timestamps=timestamps if kind.is_event_time else None)
    chosen = stream.key_by(*kind.keys).deduplicate(kind.by, keep=kind.keep, within=kind.within, name="chosen")
    chosen.sink(Outbox(), name="out")


def written(source: Any, kind: Kind, parallelism: int, records_max: int) -> dict[str, list[Any]]:
    """Runs the job while a second passes at each turn."""
    graph = JobGraph("job")
    deduplicated(graph, source, kind)
    running = Run(graph.compile(Options(), parallelism=parallelism))
    while running.read(records_max):
        running.drain()
        running.pass_time(1)
    running.finish(records_max)
    running.close()
    return running.written


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(records, kinds, st.integers(1, 2), st.integers(1, 9))
def test_deduplicate_over_columns_gives_what_it_does_over_rows(
    rows: list[dict[str, Any]], kind: Kind, parallelism: int, records_max: int
) -> None:
    found = [written(source, kind, parallelism, records_max) for source in (Given(rows), ColumnsOf(rows))]
    assert found[1] == found[0]


@settings(max_examples=30, deadline=None)
@given(records, kinds, ACTIONS, st.integers(1, 2), st.integers(1, 5), st.booleans())
def test_deduplicate_restored_at_any_barrier_gives_the_same(
    rows: list[dict[str, Any]],
    kind: Kind,
    actions: list[str],
    parallelism: int,
    records_max: int,
    changes_types: bool,
) -> None:
    def build(graph: JobGraph) -> None:
        deduplicated(graph, ChangingText(rows) if changes_types else ColumnsOf(rows), kind)

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


@settings(max_examples=40, deadline=None)
@given(records, kinds, st.integers(1, 2))
def test_deduplicate_over_rows_takes_over_when_a_column_changes_its_type(
    rows: list[dict[str, Any]], kind: Kind, parallelism: int
) -> None:
    found = [written(source, kind, parallelism, 1) for source in (Given(rows), ChangingText(rows))]
    assert found[1] == found[0]


class ChangingText(ColumnsOf):
    """Columns of which ``key`` is large text from the third record on, and ``x`` a smaller integer."""

    def reader(self) -> Any:
        return ChangingTextReader(self.given.reader(), self.schema)


class ChangingTextReader:
    """Reader of one record at a time."""

    def __init__(self, rows: Any, schema: Any) -> None:
        self.rows, self.schema = rows, schema
        self.open, self.mark, self.close = rows.open, rows.mark, rows.close

    def read(self, records_max: int) -> Any:
        rows = self.rows.read(1)
        if rows is None:
            return None
        batch = pa.RecordBatch.from_pylist(rows, self.schema)
        if int(self.mark()) < 3:
            return batch
        batch = batch.set_column(0, "key", batch.column(0).cast(pa.large_string()))
        return batch.set_column(2, "x", batch.column(2).cast(pa.int16()))


TYPES: tuple[tuple[Any, list[Any], bool], ...] = (
    (pa.int8(), [1, 2, 1, None], True),
    (pa.bool_(), [True, False, True, None], True),
    (pa.string(), ["a", "b", "a", None], True),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a", None], True),
    (pa.date32(), [date(2026, 1, 1), None, date(2026, 1, 1), date(2026, 1, 2)], True),
    (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), None, datetime(2026, 1, 1, tzinfo=UTC)], True),
    (pa.list_(pa.int64()), [(1, 2), (2, 1), (1, 2)], False),
)


@pytest.mark.parametrize(("kind", "values", "is_column"), TYPES)
def test_by_may_be_of_any_type_that_is_a_key(
    kind: Any, values: list[Any], is_column: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[type] = set()
    for cls in (ColumnDeduplicate, Deduplicate):
        monkeypatch.setattr(cls, "keyed_columns", _tracking(used, cls, cls.keyed_columns))
    rows = [{"key": "a", "by": value} for value in values]
    schema = pa.schema([("key", pa.string()), ("by", kind)])
    if is_column:
        sources: tuple[Any, ...] = (Given(rows), ColumnsOf(rows, schema))
        found = [written(source, Kind("by", "first", None, False), 1, 2) for source in sources]
        assert found[1] == found[0]
        assert [row["by"] for row in found[0]["chosen"]] == list(dict.fromkeys(values))
        assert used == {ColumnDeduplicate}
    else:
        with pytest.raises(Exception, match="chosen"):
            written(ColumnsOf(rows, schema), Kind("by", "first", None, False), 1, 2)


def _tracking(used: set[type], cls: type, process: Any) -> Any:
    def tracked(self: Any, batch: Any, column: Any) -> None:
        used.add(cls)
        process(self, batch, column)

    return tracked


def test_distinct_over_columns_stays_in_columns() -> None:
    rows = [{"key": key, "at": START, "x": x % 2, "y": 0.0} for x, key in enumerate("aabab")]
    graph = JobGraph("job")
    source = graph.source(ColumnsOf(rows))
    source.distinct("key").select("key", "x").sink(Outbox(), name="whole")
    source.key_by("key").distinct("x").filter(col("x") == 0).select("key").sink(Outbox(), name="keyed")
    written = run(graph, 1).written
    assert sorted(map(repr, (row for rows in written.values() for row in rows))) == [
        "{'key': 'a', 'x': 0}",
        "{'key': 'a'}",
        "{'key': 'b', 'x': 0}",
        "{'key': 'b'}",
    ]


def test_of_several_last_records_in_a_batch_only_the_last_one_is_passed_on() -> None:
    rows = [{"key": key, "at": START + at, "x": number} for number, (key, at) in enumerate([("a", 2), ("b", 1)] * 3)]
    rows += [{"key": "a", "at": START + 1, "x": 9}, {"key": "b", "at": START + 3, "x": 10}]
    graph = JobGraph("job")
    stream = graph.source(Given(rows), timestamps=Timestamps("at", out_of_order="9s", future_max=None))
    stream.key_by("key").deduplicate(keep="last").sink(Outbox())
    ((_, found),) = run(graph, 1, 3).written.items()  # three records a batch
    assert [row["x"] for row in found] == [1, 2, 4, 5, 10]


@pytest.mark.parametrize("within", ["3s", "7s"])
def test_a_record_belongs_to_a_span_that_a_later_one_has_opened(within: str) -> None:
    rows = [{"key": key, "at": START + at, "x": at, "y": 0.0} for key in "ab" for at in (8, 6, 7, 5, 9, 1, 12)]
    kind = Kind(None, "first", within, True)
    found = [written(source, kind, 1, 9) for source in (Given(rows), ColumnsOf(rows))]
    assert found[1] == found[0]
    assert len(found[0]["chosen"]) < len(rows)


def test_of_last_records_of_one_instant_the_later_one_is_passed_on() -> None:
    rows = [{"key": "a", "at": START + at, "x": number, "y": 0.0} for number, at in enumerate([1, 3, 3, 3, 2])]
    kind = Kind(None, "last", None, True)
    found = [written(source, kind, 1, 3)["chosen"] for source in (Given(rows), ColumnsOf(rows))]
    assert found[1] == found[0]
    assert [row["x"] for row in found[0]] == [2, 3]


def test_records_keep_their_form() -> None:
    rows = [{"key": key, "at": START, "x": 1, "y": 0.5} for key in "aabb"]
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
    windows = stream.key_by("key").window(Tumbling("5s")).count()
    windows.key_by("value").deduplicate().sink(Outbox(), name="first")
    ((_, found),) = run(graph, 1).written.items()
    assert [(row.key, row.value) for row in found] == [("a", 2)]
