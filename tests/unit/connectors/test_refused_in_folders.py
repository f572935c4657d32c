"""Rows that one folder of an output refuses: they go to the error output, and all others are there once."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable

from clonos.api.graph import JobGraph
from clonos.connectors import delta, files
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.partitions.partitioned_writer import PartitionColumns, PartitionedWriter
from clonos.operators.user_errors import RoutedError
from tests.unit.operators.driver import Given, Outbox, run

NAN = float("nan")
SCHEMA = pyarrow.schema([("n", pyarrow.int64()), ("x", pyarrow.int8())])


def passed(sink: Any, source: Any) -> list[RoutedError]:
    """Runs a job into an output and commits it; returns the errors."""
    sink.prepare_output("job", False, False)
    graph = JobGraph("job", errors=Outbox())
    graph.source(source).sink(sink, name="out")
    done = run(graph, parallelism=1, records_max=100)
    for parts in done.prepared.values():
        sink.commit("job", 1, parts)
    return list(done.written.get("errors", []))


def given_columns(path: Path, batch: Any) -> Any:
    """Returns a source of the batch."""
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return files.arrow(str(path))


def found(folder: Path) -> list[Any]:
    return sorted(files.read_committed(folder), key=lambda row: int(row["n"]))


def with_few_files(sink: FileSink) -> PartitionedWriter:
    """Returns the writer of a sink with fewer open files."""
    partitioning = PartitionColumns(sink.connector, sink.partition_by, sink.row_names())
    return PartitionedWriter(sink.folder(), sink.parts_format(), partitioning, 10)


KINDS: dict[str, Any] = {
    "jsonl": (files.jsonl, {}, NAN, "row['x'] is nan"),
    "csv": (files.csv, {"columns": ["n", "x", "day"]}, "\ud800", "CSV has no escape for"),
    "parquet": (files.parquet, {"schema": SCHEMA}, 300, "its x cannot be written"),
    "arrow": (files.arrow, {"schema": SCHEMA}, 300, "its x cannot be written"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_its_folder_refuses_is_an_error_and_all_others_are_there_once(tmp_path: Path, kind: str) -> None:
    make, options, bad, reason = KINDS[kind]
    rows = [{"n": n, "x": bad if n in (4, 11) else 1, "day": f"d{n % 3}"} for n in range(15)]
    del rows[7]["day"]
    rows[8]["day"] = ["a list"]
    errors = passed(make(str(tmp_path / "out"), partition_by="day", **options), Given(rows))
    assert [error.record["n"] for error in errors] == [4, 7, 8, 11]
    assert all(error.error.startswith("RowNotWritable: ") for error in errors)
    assert reason in errors[0].error
    assert "it has no day, which partition_by= names" in errors[1].error
    assert [int(row["n"]) for row in found(tmp_path / "out")] == [0, 1, 2, 3, 5, 6, 9, 10, 12, 13, 14]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_wait_for_their_folder_are_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(FileSink, "writer", with_few_files)
    make, options, bad, _ = KINDS[kind]
    rows = [{"n": n, "x": bad if n % 50 == 3 else 1, "day": f"d{n % 13}"} for n in range(200)]
    errors = passed(make(str(tmp_path / "out"), partition_by="day", **options), Given(rows))
    assert [error.record["n"] for error in errors] == [3, 53, 103, 153]
    assert [int(row["n"]) for row in found(tmp_path / "out")] == [n for n in range(200) if n % 50 != 3]


@pytest.mark.parametrize("by", ["day", ["day", "shop"]])
def test_columns_lose_only_the_records_that_are_refused(tmp_path: Path, by: Any) -> None:
    numbers = random.Random(7).sample(range(100), 100)
    batch = pyarrow.record_batch(
        {
            "n": numbers,
            "x": [300 if n in (17, 18, 90) else n % 100 for n in numbers],
            "day": [f"d{n % 5}" for n in numbers],
            "shop": [n % 2 for n in numbers],
        }
    )
    schema = SCHEMA if isinstance(by, list) else SCHEMA.append(pyarrow.field("shop", pyarrow.int64()))
    errors = passed(
        files.parquet(str(tmp_path / "out"), partition_by=by, schema=schema),
        given_columns(tmp_path / "in.arrow", batch),
    )
    assert sorted(error.record["n"] for error in errors) == [17, 18, 90]
    assert all(error.record == batch.slice(numbers.index(error.record["n"]), 1).to_pylist()[0] for error in errors)
    assert [row["n"] for row in found(tmp_path / "out")] == [n for n in range(100) if n not in (17, 18, 90)]


TABLE = pyarrow.schema(
    [("n", pyarrow.int64()), ("x", pyarrow.int8()), ("day", pyarrow.date32()), ("at", pyarrow.timestamp("us", "UTC"))]
)
DAY, AT = dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
WRONG: list[Any] = [
    {"n": 1, "x": 300, "day": DAY, "at": AT},
    {"n": 2, "x": 1, "day": "2026-01-02", "at": AT},
    {"n": 3, "x": 1, "day": dt.datetime(2026, 1, 2, 5), "at": AT},
    {"n": 4, "x": 1, "day": DAY, "at": dt.datetime(2026, 1, 2)},
    {"n": 5, "x": 1, "day": DAY, "at": AT, "more": 1},
    {"n": 6, "x": 1.5, "day": DAY, "at": AT},
]


@pytest.mark.keeps_sockets
@pytest.mark.parametrize("by", [None, "day", ["day", "x"]])
def test_a_row_that_a_delta_table_does_not_hold_is_an_error_of_its_own(tmp_path: Path, by: Any) -> None:
    rows = [{"n": n, "x": n % 3, "day": DAY, "at": AT} for n in (10, 11, 12)]
    given = [row for pair in zip(rows, WRONG[:3], strict=True) for row in pair] + WRONG[3:]
    errors = passed(delta.table(str(tmp_path / "t"), schema=TABLE, partition_by=by), Given(given))
    assert sorted([error.record for error in errors], key=lambda row: int(row["n"])) == WRONG
    assert all(error.error.startswith("RowNotWritable: ") for error in errors)
    held = sorted(DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist(), key=lambda row: int(row["n"]))
    assert held == rows


@pytest.mark.keeps_sockets
def test_columns_that_a_partition_of_a_delta_table_would_change_are_errors(tmp_path: Path) -> None:
    days = pyarrow.array([dt.datetime(2026, 1, 2), dt.datetime(2026, 1, 2, 5), None], pyarrow.timestamp("us"))
    batch = pyarrow.record_batch({"n": [1, 2, 3], "x": [1, 1, 1], "day": days, "at": [AT, AT, AT]})
    errors = passed(
        delta.table(str(tmp_path / "t"), schema=TABLE, partition_by="day"), given_columns(tmp_path / "in.arrow", batch)
    )
    assert [error.record["n"] for error in errors] == [2]
    assert "its day is not date32" in errors[0].error
