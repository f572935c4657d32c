"""Partitioned outputs: rows lie in the folders of their values, once, and readers get the values back."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pyarrow.dataset
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import (
    InputMalformed,
    InvalidConnector,
    OutputConflict,
    OutputInUse,
    RowNotWritable,
)
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.partitions.folder_names import folder_of, partition_values
from clonos.connectors.partitions.partitioned_writer import PartitionColumns, PartitionedWriter
from clonos.operators.connector_contract import TransactionalWriter, WriterContext
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of, writer_of

KINDS: dict[str, Callable[..., Any]] = {
    "jsonl": files.jsonl,
    "csv": files.csv,
    "parquet": files.parquet,
    "arrow": files.arrow,
}
NULL = "__HIVE_DEFAULT_PARTITION__"


def started(folder: Path, kind: str = "jsonl", by: Any = "day", **options: Any) -> FileSink:
    sink: FileSink = KINDS[kind](folder, partition_by=by, **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    return sink


def written(folder: Path, rows: list[Any], kind: str = "jsonl", by: Any = "day", **options: Any) -> FileSink:
    sink = started(folder, kind, by, **options)
    sink.commit(JOB, 1, [part_of(sink, 1, rows)])
    return sink


def partitions(folder: Path) -> list[str]:
    return sorted({os.path.dirname(os.path.relpath(path, folder)) for path in folder.rglob("*.*")})


@pytest.mark.parametrize("kind", KINDS)
def test_rows_lie_in_the_folders_of_their_values_and_are_read_back(tmp_path: Path, kind: str) -> None:
    rows = [{"n": n, "day": date(2026, 11, 22 + n % 2), "shop": f"s/{n % 3}"} for n in range(6)]
    sink = written(tmp_path / "out", rows, kind, ["day", "shop"])
    assert partitions(tmp_path / "out") == [f"day=2026-11-2{d}/shop=s%2F{s}" for d in (2, 3) for s in range(3)]
    expected = [{"n": n, "day": f"2026-11-{22 + n % 2}", "shop": f"s/{n % 3}"} for n in range(6)]
    read = read_all(KINDS[kind](tmp_path / "out", partitioned=True))
    assert sorted(read, key=lambda row: row["n"]) == expected
    committed = [row | {"n": int(row["n"])} for row in files.read_committed(sink.folder())]
    assert sorted(committed, key=lambda row: row["n"]) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_written_like_rows(tmp_path: Path, kind: str) -> None:
    rows = [{"n": n, "day": date(2026, 11, 1 + n % 5) if n % 7 else None, "b": n % 2 == 0} for n in range(50)]
    by_rows = written(tmp_path / "rows", rows, kind, ["day", "b"])
    by_columns = started(tmp_path / "columns", kind, ["day", "b"])
    writer = writer_of(by_columns)
    writer.write_columns(pyarrow.RecordBatch.from_pylist(rows))
    part = writer.prepare(1)
    assert part is not None
    by_columns.commit(JOB, 1, [part])
    one, other = (
        [(row["day"], row["b"], row["n"]) for row in files.read_committed(s.folder())] for s in (by_rows, by_columns)
    )
    assert partitions(tmp_path / "rows") == partitions(tmp_path / "columns")
    assert sorted(one, key=str) == sorted(other, key=str)
    in_order = [row["n"] for row in files.read_committed(by_columns.folder()) if row["day"] == "2026-11-02"]
    assert sorted(in_order[:3], key=int) == in_order[:3]


def test_other_programs_read_the_columns_of_folders(tmp_path: Path) -> None:
    values = ["a b", "ü/=%", 'x"#{}[]^*?:\\', None, "line\nend"]
    written(tmp_path / "out", [{"n": n, "v": value} for n, value in enumerate(values)], "parquet", "v")
    table = pyarrow.dataset.dataset(tmp_path / "out", partitioning="hive").to_table().to_pylist()
    assert {row["n"]: row["v"] for row in table} == dict(enumerate(values))
    frame = polars.read_parquet(tmp_path / "out" / "**/*.parquet", hive_partitioning=True)
    assert dict(frame.select("n", "v").iter_rows()) == dict(enumerate(values))
    assert {row["n"]: row["v"] for row in read_all(files.parquet(tmp_path / "out", partitioned=True))} == dict(
        enumerate(values)
    )


def test_an_empty_text_is_null_as_spark_writes_it(tmp_path: Path) -> None:
    written(tmp_path / "out", [{"n": 1, "v": ""}], by="v")
    assert partitions(tmp_path / "out") == [f"v={NULL}"]
    assert read_all(files.jsonl(tmp_path / "out", partitioned=True)) == [{"n": 1, "v": None}]


@pytest.mark.parametrize(
    ("value", "name"), [(True, "v=true"), (1, "v=1"), (1.5, "v=1.5"), ("..", "v=.."), (None, f"v={NULL}")]
)
def test_a_value_names_its_folder_and_equal_values_of_other_types_their_own(value: Any, name: str) -> None:
    assert folder_of(["v"], [value], "x", 0, {}) == name


@pytest.mark.parametrize("column", ["v", "a=b", "a/b", "%"])
def test_a_folder_gives_its_column_and_value_back(column: str) -> None:
    assert partition_values(f"/out/{folder_of([column], ['x=1'], 'x', 0, {})}/part") == {column: "x=1"}


def test_a_schema_gives_the_columns_of_folders_their_types(tmp_path: Path) -> None:
    written(tmp_path / "out", [{"n": 1, "day": date(2026, 11, 22)}], "parquet")
    schema = pyarrow.schema([("day", pyarrow.date32())])
    source = files.parquet(tmp_path / "out", partitioned=schema)
    assert read_all(source) == [{"n": 1, "day": date(2026, 11, 22)}]
    described = source.column_schema()
    assert described is not None
    assert described.field("day").type == pyarrow.date32()
    wrong = files.parquet(tmp_path / "out", partitioned=pyarrow.schema([("day", pyarrow.int64())]))
    with pytest.raises(InputMalformed, match=r"the names of its folders do not fit partitioned=: .*2026-11-22"):
        read_all(wrong)


@pytest.mark.parametrize("partitioned", [True, pyarrow.schema([("day", pyarrow.string())])])
def test_a_source_of_the_columns_that_steps_use_has_those_of_folders(tmp_path: Path, partitioned: Any) -> None:
    written(tmp_path / "out", [{"n": n, "day": "d", "x": "y"} for n in range(2)], "parquet")
    source = files.parquet(tmp_path / "out", partitioned=partitioned)
    for used in (["day"], ["day", "n"]):
        read = read_all(source.narrowed(used, ()))
        assert [[row[name] for name in used] for row in read] == [["d", n][: len(used)] for n in range(2)]


def test_a_partitioned_folder_is_not_read_without_a_word_about_its_columns(tmp_path: Path) -> None:
    written(tmp_path / "out", [{"n": 1, "day": "d"}])
    with pytest.raises(InvalidConnector, match=r"have the columns day\. Add them with partitioned=True"):
        files.jsonl(tmp_path / "out").splits(1)
    assert read_all(files.jsonl(tmp_path / "out", partitioned=False)) == [{"n": 1}]


def test_folders_with_other_columns_are_refused(tmp_path: Path) -> None:
    for name in ("in/a=1", "in/b=1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.jsonl").write_text('{"n": 1}\n')
    with pytest.raises(InvalidConnector, match=r"have the columns b\. They should have a, as partitioned= asks"):
        files.jsonl(tmp_path / "in", partitioned=True).splits(1)


def test_a_line_that_is_no_object_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "in/a=1").mkdir(parents=True)
    (tmp_path / "in/a=1/x.jsonl").write_text("7\n")
    with pytest.raises(InputMalformed, match="the line '7' is no object"):
        read_all(files.jsonl(tmp_path / "in", partitioned=True))


def writer_with(sink: FileSink, open_files_max: int) -> TransactionalWriter:
    partitioning = PartitionColumns(sink.connector, sink.partition_by)
    writer = PartitionedWriter(sink.folder(), sink.rows_format(), partitioning, open_files_max)
    writer.open(WriterContext(JOB, "write/0", 0, 0, 1))
    return writer


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_beyond_the_open_files_wait_in_order_for_the_barrier(tmp_path: Path, kind: str) -> None:
    sink = started(tmp_path / "out", kind, "v")
    writer = writer_with(sink, open_files_max=2)
    rows = [{"n": n, "v": n % 5} for n in range(40)]
    writer.write(rows[:20])
    writer.write_columns(pyarrow.RecordBatch.from_pylist(rows[20:]))
    parts_folder = Path(tmp_path / ".out.clonos/parts")
    assert len(list(parts_folder.iterdir())) == 2
    part = writer.prepare(1)
    assert part is not None
    writer.write([{"n": 40, "v": 9}])
    sink.commit(JOB, 1, [part])
    for v in range(5):
        assert [row["n"] for row in files.read_committed(sink.folder()) if row["v"] == str(v)] == list(range(v, 40, 5))
    second = writer.prepare(2)
    assert second is not None
    sink.commit(JOB, 2, [second])
    assert len(list(files.read_committed(sink.folder()))) == 41
    assert list(parts_folder.iterdir()) == []


def test_a_writer_that_closes_leaves_no_file(tmp_path: Path) -> None:
    writer = writer_of(started(tmp_path / "out", by="v"))
    writer.write([{"n": n, "v": n} for n in range(3)])
    writer.close()
    assert list((tmp_path / ".out.clonos/parts").iterdir()) == []


def test_a_commit_that_died_between_two_folders_is_completed(tmp_path: Path) -> None:
    sink = started(tmp_path / "out", by="v")
    part = part_of(sink, 1, [{"n": n, "v": n} for n in range(3)])
    hidden = sorted((tmp_path / ".out.clonos/parts").iterdir())[0]
    (tmp_path / "out/v=0").mkdir()
    hidden.rename(tmp_path / "out/v=0" / hidden.name.removesuffix(".prepared"))
    resumed = files.jsonl(tmp_path / "out", partition_by="v")
    resumed.prepare_output(JOB, resume=True, overwrite=False)
    resumed.commit(JOB, 1, [part])
    resumed.commit(JOB, 1, [part])
    assert [row["n"] for row in files.read_committed(sink.folder())] == [0, 1, 2]


def test_parts_of_two_lives_for_one_barrier_are_a_conflict(tmp_path: Path) -> None:
    sink = started(tmp_path / "out", by="v")
    parts = [part_of(sink, 1, [{"n": 1, "v": 1}], incarnation=life) for life in (1, 2)]
    with pytest.raises(OutputConflict):
        sink.commit(JOB, 1, parts)


def test_a_rollback_and_an_overwrite_remove_parts_and_empty_folders(tmp_path: Path) -> None:
    sink = written(tmp_path / "out", [{"n": 1, "v": 1, "w": 1}], by=["v", "w"])
    sink.commit(JOB, 2, [part_of(sink, 2, [{"n": 2, "v": 1, "w": 1}, {"n": 3, "v": 2, "w": 2}])])
    assert sink.roll_back(JOB, 1) == [2]
    assert partitions(tmp_path / "out") == ["v=1/w=1"]
    assert not (tmp_path / "out/v=2").exists()
    other = files.jsonl(tmp_path / "out", partition_by="v")
    with pytest.raises(OutputInUse):
        other.prepare_output("other", resume=False, overwrite=False)
    other.prepare_output("other", resume=False, overwrite=True)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"n": 1}, "it has no v, which partition_by= names; it has n"),
        ({"v": 1}, "all its fields are in partition_by="),
        ({"n": 1, "v": [1]}, "its v is a list.*, which cannot name a folder"),
        ({"n": 1, "v": "x" * 300}, "its v would name a folder with 302 bytes, of at most 255"),
        ({"n": 1, "v": "\ud800"}, "its v has a lone surrogate"),
    ],
)
def test_a_row_that_has_no_folder_is_refused(tmp_path: Path, row: Any, reason: str) -> None:
    writer = writer_of(started(tmp_path / "out", by="v"))
    with pytest.raises(RowNotWritable, match=reason):
        writer.write([row])
    if row.get("v") != "\ud800":
        with pytest.raises(RowNotWritable, match=reason):
            writer.write_columns(pyarrow.RecordBatch.from_pylist([row]))
    writer.close()


def test_tuples_are_partitioned_by_the_names_of_columns(tmp_path: Path) -> None:
    sink = written(tmp_path / "out", [(1, "a"), (2, "b")], "csv", "v", columns=["n", "v"])
    assert list(files.read_committed(sink.folder())) == [{"n": "1", "v": "a"}, {"n": "2", "v": "b"}]


@pytest.mark.parametrize("by", ["", [".v"], ["v", "v"], [1]])
def test_names_that_cannot_be_folders_are_refused(tmp_path: Path, by: Any) -> None:
    with pytest.raises(InvalidConnector, match="cannot name folders"):
        files.jsonl(tmp_path / "out", partition_by=by)


def test_a_single_file_has_no_partitions(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnector, match=r"single=True writes one file\. Leave out partition_by="):
        files.jsonl(tmp_path / "out", partition_by="v", single=True)


def test_a_resume_compares_the_columns_of_the_partitions(tmp_path: Path) -> None:
    assert ("partition_by", "v, w") in files.jsonl(tmp_path / "out", partition_by=["v", "w"]).describe_output()
