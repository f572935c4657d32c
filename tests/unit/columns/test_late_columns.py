"""Late records of columns reach sinks of columns with the types of their stream, in every part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from clonos import each, files
from clonos.agg import count
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Session, Tumbling
from clonos.core.model.options import Options
from clonos.operators.tags import Tag
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Outbox, Run

LATE = Tag[Any]("late")
START = 1_700_000_000
SCHEMA = pa.schema(
    [
        ("key", pa.int16()),
        ("at", pa.int64()),
        ("when", pa.timestamp("ms", "UTC")),
        ("share", pa.float32()),
        ("note", pa.string()),
    ]
)
OTHER = pa.schema([("key", pa.int32()), ("at", pa.int64()), ("label", pa.string())])
TIMES = Timestamps("at", watermark_every="1s", future_max=None)


def rows_of(schema: Any) -> list[Any]:
    """Records of which two are late; of one all values but the key and the time are null."""
    at = [START, START + 100, START + 1, START + 200, START + 2, START + 300]
    values: dict[str, Any] = {"key": 7, "share": 0.5, "note": "n", "label": "l"}
    rows = [{**values, "at": second, "when": second * 1000} for second in at]
    rows[2] |= {"when": None, "share": None, "note": None, "label": None}
    return [{name: row[name] for name in schema.names} for row in rows]


def parts_of(folder: Path) -> list[Any]:
    """Returns the tables in the part files."""
    return [parquet.read_table(path) for path in sorted(folder.rglob("*.parquet"))]


def run_with_parts(graph: JobGraph, parallelism: int) -> dict[str, list[Any]]:
    """Runs a job with a part of its late records at each checkpoint."""
    image = graph.compile(Options(), parallelism=parallelism)
    sinks: dict[int, Any] = {number: sink for number, sink in image.sinks.items() if hasattr(sink, "commit")}
    for sink in sinks.values():
        sink.prepare_output("job", False, False)
    running = Run(image)
    for checkpoint in range(1, 9):
        if checkpoint < 8:
            running.read(1)
        else:
            running.finish(1)
        running.barrier(checkpoint)
        for vertex, sink in sinks.items():
            sink.commit("job", checkpoint, running.prepared.pop(vertex, []))
    running.close()
    return running.written


def late_parts(tmp_path: Path, add: Any, **options: Any) -> list[Any]:
    graph = JobGraph("job")
    left, right = (
        graph.source(ColumnsOf(rows_of(schema), schema), timestamps=TIMES, parallelism=1) for schema in (SCHEMA, OTHER)
    )
    results = add(left, right)
    if options:
        results.sink(Outbox(), name="out")  # the late records are written by another vertex then
    results.side_output(LATE).sink(files.parquet(tmp_path / "late"), name="late-out", **options)
    run_with_parts(graph, 1)
    return parts_of(tmp_path / "late")


WINDOWS: list[Any] = [
    lambda stream: stream.window(Tumbling("10s"), late=LATE).aggregate(n=count()),
    lambda stream: stream.window(Session("5s"), late=LATE).aggregate(n=count()),
    lambda stream: stream.window(Tumbling("10s"), late=LATE, trigger=each(5)).aggregate(n=count()),
    lambda stream: stream.window(Session("5s", max_length="1h"), late=LATE).aggregate(n=count()),
]


@pytest.mark.parametrize("windows", WINDOWS, ids=["tumbling", "session", "tumbling rows", "session rows"])
@pytest.mark.parametrize("options", [{}, {"parallelism": 2}], ids=["same", "other"])
def test_late_records_of_windows_keep_the_types_of_their_columns(windows: Any, options: Any, tmp_path: Path) -> None:
    parts = late_parts(tmp_path, lambda left, _: windows(left.key_by("key")), **options)
    assert [part.schema for part in parts] == [SCHEMA] * 2
    assert (
        pa.concat_tables(parts).sort_by("at").to_pylist()
        == pa.Table.from_pylist([row for row in rows_of(SCHEMA) if START < row["at"] < START + 10], SCHEMA).to_pylist()
    )


@pytest.mark.parametrize("method", ["join", "join_as_of"])
def test_late_records_of_both_sides_of_a_join_have_the_columns_of_both(method: str, tmp_path: Path) -> None:
    rule: Any = {"between": ("-1s", "1s")} if method == "join" else {"tolerance": "1s"}
    parts = late_parts(tmp_path, lambda left, right: getattr(left, method)(right, on="key", late=LATE, **rule))
    wide = pa.schema(
        [SCHEMA.field(name).with_type(pa.int32()) if name == "key" else SCHEMA.field(name) for name in SCHEMA.names]
    )
    assert {part.schema for part in parts} == {wide.append(OTHER.field("label"))}
    late = pa.concat_tables(parts).to_pylist()
    assert sorted(row["at"] - START for row in late) == [1, 1, 2, 2]
    assert {row["label"] for row in late} == {None, "l"}


def test_late_records_stay_rows_with_their_own_fields_for_other_steps() -> None:
    graph = JobGraph("job")
    left, right = (
        graph.source(ColumnsOf(rows_of(schema), schema), timestamps=TIMES, parallelism=1) for schema in (SCHEMA, OTHER)
    )
    results = left.join(right, on="key", between=("-1s", "1s"), late=LATE)
    results.sink(Outbox())
    results.side_output(LATE).map(list).sink(Outbox())
    late = [row for rows in run_with_parts(graph, 1).values() for row in rows if isinstance(row, list)]
    assert sorted(late) == sorted([SCHEMA.names, OTHER.names] * 2)
