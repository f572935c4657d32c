"""top_k with ranks over columns gives what it does over rows: same input, same results in the same order."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import Job, col, files
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.plan.explaining import explain_graph
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.job.description import graph_of
from clonos.operators.kinds.column_highest import ColumnHighest
from clonos.operators.kinds.object_highest import ObjectHighest
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.keyed_state import StateBackend
from tests.unit.columns.choice_in_front import in_front
from tests.unit.columns.test_column_windows import ColumnsOf, ColumnsReader
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

__all__ = ["in_front"]

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.int64()), ("y", pa.float64())])

keys = st.sampled_from(["a", "b", "c", None])
extremes = st.sampled_from([-(1 << 63), (1 << 63) - 1])
records = st.lists(
    st.builds(
        lambda key, x, y: {"key": key, "x": x, "y": y},
        keys,
        st.none() | st.integers(-4, 4) | extremes,
        st.none() | st.integers(-3, 3).map(float) | st.just(float("nan")),
    ),
    max_size=50,
).map(lambda rows: [{"key": row["key"], "at": number, "x": row["x"], "y": row["y"]} for number, row in enumerate(rows)])


def ranked(graph: JobGraph, source: Any, k: int, by: str, rank: str = "rank") -> None:
    """Adds the job; by rank of ``y`` the key is of two columns."""
    keys: Any = ("key", "x") if by == "y" else ("key",)
    graph.source(source).key_by(*keys).top_k(k, by, rank=rank, name="top").sink(Outbox(), name="out")


def written(source: Any, k: int, by: str, parallelism: int, records_max: int, rank: str = "rank") -> Any:
    graph = JobGraph("job")
    ranked(graph, source, k, by, rank)
    return run(graph, parallelism, records_max).written


@settings(max_examples=60, deadline=None)
@given(records, st.integers(1, 4), st.sampled_from(["x", "y", "at"]), st.integers(1, 2), st.integers(1, 9))
def test_top_k_over_columns_gives_what_it_does_over_rows(
    rows: list[dict[str, Any]], k: int, by: str, parallelism: int, records_max: int
) -> None:
    found = [written(source, k, by, parallelism, records_max) for source in (Given(rows), ColumnsOf(rows, SCHEMA))]
    assert repr(found[1]) == repr(found[0])


@settings(max_examples=40, deadline=None)
@given(records, st.integers(1, 4), st.integers(1, 2), st.integers(1, 9))
def test_the_last_result_of_a_key_and_rank_is_the_present_one(
    rows: list[dict[str, Any]], k: int, parallelism: int, records_max: int
) -> None:
    found = {
        (row["key"], row.pop("rank")): row
        for results in written(ColumnsOf(rows, SCHEMA), k, "x", parallelism, records_max).values()
        for row in results
    }
    twin: dict[Any, Any] = {}
    for key in {row["key"] for row in rows}:
        with_rank = [row for row in rows if row["key"] == key and row["x"] is not None]
        if parallelism == 1:  # else equal ranks come in the order of two channels
            highest = sorted(with_rank, key=lambda row: -row["x"])[:k]  # stable: the earlier of equal ones is first
            twin |= {(key, rank): row for rank, row in enumerate(highest, 1)}
            continue
        ranks = sorted((row["x"] for row in with_rank), reverse=True)[:k]
        assert [found[key, rank]["x"] for rank in range(1, len(ranks) + 1)] == ranks
    if parallelism == 1:
        assert repr(sorted(found.items(), key=repr)) == repr(sorted(twin.items(), key=repr))


@settings(max_examples=25, deadline=None)
@given(records, st.integers(1, 4), ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_top_k_restored_at_any_barrier_gives_the_same(
    rows: list[dict[str, Any]], k: int, actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph) -> None:
        ranked(graph, ColumnsOf(rows, SCHEMA), k, "x")

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert repr(troubled) == repr(steady)


RANKS: tuple[tuple[Any, list[Any], bool], ...] = (
    (pa.int8(), [3, -4, 9], True),
    (pa.float32(), [0.5, -1.5, 9.25], True),
    (pa.float64(), [0.0, -0.0, float("nan"), float("-inf"), -1e300, 0.0], True),
    (pa.bool_(), [False, True, True], True),
    (pa.date32(), [date(2026, 1, day) for day in (3, 1, 9)], True),
    (pa.timestamp("ms", "UTC"), [datetime(2026, 1, day, tzinfo=UTC) for day in (3, 1, 9)], True),
    (pa.dictionary(pa.int32(), pa.int64()), [3, 1, 9], True),
    (pa.uint64(), [3, 1, 1 << 63], False),
    (pa.string(), ["b", "a", "c"], False),
    (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-1.00"), Decimal("2.25")], False),
)


@pytest.mark.parametrize(("kind", "ranks", "is_column"), RANKS)
def test_ranks_may_be_of_any_type_that_rows_compare(
    kind: Any, ranks: list[Any], is_column: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[type] = set()
    for cls in (ColumnHighest, ObjectHighest):
        monkeypatch.setattr(cls, "pass_ranks", _tracking(used, cls.pass_ranks))
    rows = [{"key": "a", "by": rank, "tags": [number]} for number, rank in enumerate([*ranks, None])]
    schema = pa.schema([("key", pa.string()), ("by", kind), ("tags", pa.list_(pa.int64()))])
    found = written(Given(rows), 3, "by", 1, 2)
    used.clear()
    assert written(ColumnsOf(rows, schema), 3, "by", 1, 2) == found
    assert used == {ColumnHighest if is_column else ObjectHighest}


def _tracking(used: set[type], process: Any) -> Any:
    def tracked(self: Any, *args: Any) -> None:
        used.add(type(self))
        process(self, *args)

    return tracked


@pytest.mark.parametrize(
    ("choose", "reason"),
    [
        (lambda keyed: keyed.top_k(2, "x", rank="rank"), ""),
        (lambda keyed: keyed.top_k(2, "x"), ""),
        (lambda keyed: keyed.top_k(2), "it works on rows"),
        (lambda keyed: keyed.top_k(2, "key"), "ranks of the type string work on rows"),
        (lambda keyed: keyed.top_k(2, "key", rank="rank"), "ranks of the type string work on rows"),
        (lambda keyed: keyed.top_k(2000, "x", rank="rank"), "k above 1,024 works on rows"),
        (lambda keyed: keyed.deduplicate("x", within="3s"), ""),
        (lambda keyed: keyed.deduplicate("y"), "a key of the type double works on rows"),
        (lambda keyed: keyed.deduplicate("x", keep="last", within="3s"), ""),
        (lambda keyed: keyed.deduplicate("y", keep="last", within="3s"), "a key of the type double works on rows"),
    ],
    ids=[
        "top_k",
        "lists",
        "lists of records",
        "lists by texts",
        "texts",
        "large k",
        "deduplicate",
        "floats",
        "last within",
        "last within by floats",
    ],
)
def test_explain_gives_the_reason_for_which_a_step_works_on_rows(choose: Any, reason: str, tmp_path: Path) -> None:
    pa.parquet.write_table(SCHEMA.empty_table(), tmp_path / "part.parquet")
    job = Job("job")
    choose(job.source(files.parquet(f"{tmp_path}/*.parquet")).key_by("key")).sink(Outbox())
    plan = explain_graph(graph_of(job), Options(), 1)
    (step,) = [step for step in plan.steps if step.kind in ("top_k", "deduplicate")]
    assert step.row_reason == reason


def test_the_rank_may_replace_a_column() -> None:
    rows = [{"key": "a", "at": 0, "x": x, "y": 0.0} for x in (1, 5, 3)]
    found = [written(source, 2, "x", 1, 3, rank="at") for source in (Given(rows), ColumnsOf(rows, SCHEMA))]
    assert found[1] == found[0]
    ((_, results),) = found[0].items()
    assert [(row["at"], row["x"]) for row in results] == [(1, 5), (2, 3)]


def test_results_over_columns_stay_in_columns() -> None:
    rows = [{"key": key, "at": 0, "x": x, "y": 0.0} for x, key in enumerate("aabab")]
    graph = JobGraph("job")
    top = graph.source(ColumnsOf(rows, SCHEMA)).key_by("key").top_k(2, "x", rank="rank")
    top.filter(col("rank") == 1).select("key", "x").sink(Outbox())
    ((_, results),) = run(graph, 1).written.items()
    assert {row["key"]: row["x"] for row in results} == {"a": 3, "b": 4}


@pytest.mark.parametrize("rank", ["rank", None])
def test_a_snapshot_has_the_keys_that_have_changed_and_the_highest_records_alone(rank: Any) -> None:
    rows = [{"key": key, "at": at, "x": at, "y": 0.0} for at in range(20) for key in "ab"]
    graph = JobGraph("job")
    ranked(graph, ColumnsOf(rows, SCHEMA), 2, "x", rank)
    running = Run(graph.compile(Options(), parallelism=1))
    taken = []
    for checkpoint in range(1, 6):
        assert running.read(9)
        running.drain()
        taken = running.barrier(checkpoint)
    whole = running.barrier(9, full=True)
    names = [running.plan.vertices[running.plan.vertex_of[task]].name for task in running.plan.tasks]
    step = names.index("top")
    images = []
    for changes in (taken[step][0], whole[step][0]):
        image = running.image.new_mirror(running.plan.vertex_of[step])
        for each in changes:
            image.apply(each)
        state = StateBackend(image)
        store = state.row_store("top/rows")
        spec = ColumnSpec((pa.string(),), {"ranks": (np.int64, 2), "numbers": (np.int64, 2), "count": np.int64})
        table = state.column_table("top/keys", spec)
        images.append((len(store), table.values["ranks"][: len(table)].tolist()))
    assert images[0] == images[1] == (4, [[7, 6], [6, 5]])
    running.close()


def test_wrong_arguments_and_records_get_one_sentence() -> None:
    keyed = JobGraph("job").source(Given([1])).key_by(lambda n: n)
    with pytest.raises(InvalidJob, match="gets rank=''"):
        keyed.top_k(1, rank="")
    graph = JobGraph("job")
    graph.source(Given([(1, 2)])).key_by(lambda pair: pair[0]).top_k(1, lambda pair: pair[1], rank="n").sink(Outbox())
    with pytest.raises(StepFailed) as failed:
        run(graph)
    assert "adds a field to dicts, and gets a record of tuple" in str(failed.value.__cause__)


class Strange(ColumnsOf):
    """Columns of which ``x`` is a text in the second record, and missing in the third."""

    def reader(self) -> Any:
        return StrangeReader(self.given.reader(), self.schema)


class StrangeReader(ColumnsReader):
    """Reader of one record at a time."""

    def read(self, records_max: int) -> Any:
        batch = super().read(1)
        if batch is None or int(self.mark()) not in (2, 3):
            return batch
        place = batch.schema.names.index("x")
        return batch.set_column(place, "x", pa.array(["many"])) if int(self.mark()) == 2 else batch.remove_column(place)


def test_a_record_that_does_not_fit_the_columns_of_the_plan_is_an_error_of_its_own() -> None:
    rows = [{"key": "a", "at": at, "x": at, "y": None} for at in range(4)]
    graph = JobGraph("job", errors=Outbox())
    ranked(graph, Strange(rows, SCHEMA), 4, "x")
    found = run(graph, 1, 9).written
    first, second = found.pop("errors")
    ((_, passed),) = found.items()
    assert [(row["at"], row["rank"]) for row in passed] == [(0, 1), (3, 1), (0, 2)]
    assert "the field 'x' is 'many', which does not fit the column: in the plan it is of the type int64" in first.error
    assert "'x'" in second.error
    assert (first.record["at"], second.record["at"]) == (1, 2)


def test_a_watched_folder_keeps_the_columns_of_the_plan_when_its_files_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    pa.parquet.write_table(pa.Table.from_pylist([{"key": "a", "at": 1, "x": 1, "y": None}], SCHEMA), path)

    def shape(splits: Any = None) -> Any:
        graph = JobGraph("job")
        source = files.parquet(f"{tmp_path}/*.parquet", watch="1s")
        graph.source(source, name="read").key_by("key").top_k(2, "x", name="top").sink(Outbox(), name="out")
        image = graph.compile(Options(), splits=splits)
        return image.splits, [step for vertex in image.plan.vertices for step in vertex.steps if step.name == "top"]

    splits, first = shape()
    assert ("state of", "key: string, at: int64, x: int64, y: double") in first[0].properties
    path.unlink()
    assert shape(splits) == (splits, first)
    assert ("state of", "rows") in shape()[1][0].properties
