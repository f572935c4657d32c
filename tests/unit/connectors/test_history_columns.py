"""``history.then(live)`` over columns: as each half alone, if both give columns; else rows, and the plan says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

from clonos import Job, LateCut, Timestamps, Tumbling, col, collect, delta, files, kafka, values
from clonos.agg import sum_
from clonos.connectors.connector_errors import InvalidConnector
from clonos.testing import Outputs, crash_test
from tests.unit.connectors.reading import read_all


def parquet(folder: Path, name: str, numbers: range, **more: Any) -> Any:
    """A source of a file with these numbers."""
    folder.mkdir(exist_ok=True)
    columns = {"key": [f"k{n % 3}" for n in numbers], "n": list(numbers), "at": [n // 4 for n in numbers]} | more
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet", row_group_size=10)
    return files.parquet(folder / f"{name}.parquet")


def summed(source: Any, sink: Any) -> Job:
    """Sums of each key and five seconds, without small numbers."""
    job = Job("summed")
    rows = job.source(source, name="rows", timestamps=Timestamps("at", unit="s"))
    windows = rows.filter(col("n") > 3, name="some").key_by("key").window(Tumbling("5s"))
    windows.aggregate(n=sum_("n"), name="sums").sink(sink, name="out")
    return job


@pytest.mark.slow
def test_two_halves_of_columns_give_what_one_source_of_all_rows_gives(tmp_path: Path) -> None:
    both = parquet(tmp_path, "old", range(60)).then(parquet(tmp_path, "new", range(60, 100)))
    alone, expected = parquet(tmp_path, "all", range(100)), list[Any]()
    crash_test(
        lambda: summed(alone, collect()), seeds=range(1), check=lambda outputs: expected.append(rows_of(outputs))
    )
    assert expected[0]

    def check(outputs: Outputs) -> None:
        assert rows_of(outputs) == expected[0]

    assert crash_test(lambda: summed(both, collect()), seeds=range(4), check=check).injected
    plan = columns_of(summed(both, collect()))
    assert plan == columns_of(summed(alone, collect()))
    assert "schema      sums: key: string, start: timestamp[us, tz=UTC]" in " ".join(plan)


def test_a_history_of_parquet_and_then_a_topic_with_a_schema_are_columns(tmp_path: Path) -> None:
    history = parquet(tmp_path, "old", range(60))
    schema = pyarrow.schema([("key", pyarrow.string()), ("n", pyarrow.int64()), ("at", pyarrow.int64())])
    live = kafka.source("numbers", servers="localhost:1", start="earliest", schema=schema)
    assert history.then(live).gives_columns
    assert history.then(live).column_schema() == schema == history.column_schema()
    assert not history.then(kafka.source("numbers", servers="localhost:1", decode=json.loads)).gives_columns
    with pytest.raises(InvalidConnector, match="columns do not have the timestamps of messages"):
        kafka.source("numbers", servers="localhost:1", schema=schema, out_of_order="1s")


def rows_of(outputs: Outputs) -> list[str]:
    return sorted(map(str, outputs["out"]))


def columns_of(job: Job) -> list[str]:
    """What the plan says of columns."""
    lines = [line.strip() for line in job.explain().splitlines()]
    return [line for line in lines if line.startswith(("columns ", "schema ", "reads ", "skips ", "rows "))]


def test_halves_read_the_columns_alone_that_steps_use(tmp_path: Path) -> None:
    both = parquet(tmp_path, "old", range(20)).then(parquet(tmp_path, "new", range(20, 40)))
    found = read_all(both.narrowed(["n"], []))
    assert found == [{"n": n} for n in range(40)]


def test_columns_of_a_history_become_rows_if_the_live_half_gives_rows_and_explain_shows_why(tmp_path: Path) -> None:
    both = parquet(tmp_path, "old", range(2)).then(values([{"key": "k2", "n": 2, "at": 2}]))
    job = Job("mixed")
    job.source(both, name="rows").map(dict).sink(collect(), name="out")
    reason = "rows from rows on: values(<1 records>) gives rows, and columns of the other half become rows too"
    assert reason in " ".join(job.explain().split())
    assert [len(row) for row in read_all(both)] == [3, 3, 3]


@pytest.mark.parametrize("more", [{"extra": [1] * 9}, {"n": [0.5] * 9}])
def test_halves_with_different_columns_keep_them_and_steps_that_need_types_work_on_rows(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    both = parquet(tmp_path, "old", range(9)).then(parquet(tmp_path, "new", range(9), **more))
    assert both.gives_columns
    assert both.column_schema() is both.sampled_schema(both.splits(1)) is None
    found = read_all(both)
    assert (len(found), found[-1]) == (18, {"key": "k2", "n": 8, "at": 2} | {name: of[0] for name, of in more.items()})


def test_a_resumed_job_has_the_columns_of_the_files_that_it_began_with(tmp_path: Path) -> None:
    both = parquet(tmp_path, "old", range(9)).then(parquet(tmp_path, "new", range(9)))
    splits = both.splits(1)
    began = both.sampled_schema(splits)
    parquet(tmp_path, "old", range(9), n=["text"] * 9)
    assert both.column_schema() is None
    assert both.sampled_schema(splits).equals(began)
    assert began.names == ["key", "n", "at"]


@pytest.mark.keeps_sockets
def test_a_version_of_a_delta_table_is_followed_by_its_changes(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for first in (0, 5, 10):
        write_deltalake(table, pyarrow.table({"n": range(first, first + 5)}), mode="append")
    both = delta.read(table, version=1).then(delta.changes(table, from_version=2, until="latest"))
    found = [row["n"] for row in read_all(both)]
    assert sorted(found[:10]) == list(range(10))  # the files of a version have no order
    assert found[10:] == list(range(10, 15))
    with pytest.raises(LateCut, match="without from_version= it begins after the newest version"):
        delta.read(table, version=1).then(delta.changes(table)).splits(1)
