"""Sinks with ``single=True``: one file when the job has ended, nothing before."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.connectors import files
from clonos.connectors.connector_errors import (
    InvalidConnector,
    NotOutputOwner,
    OutputInUse,
    RowNotWritable,
    UnexpectedOutput,
)
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.core.model.options import Options
from tests.unit.connectors.writing import JOB, part_of

SINKS: dict[str, Callable[..., FileSink]] = {"jsonl": files.jsonl, "csv": files.csv, "parquet": files.parquet}
READERS: dict[str, Callable[[Path], Any]] = {
    "jsonl": lambda path: pandas.read_json(path, lines=True),
    "csv": pandas.read_csv,
    "parquet": pandas.read_parquet,
}


def started(path: Path, **options: Any) -> FileSink:
    sink = SINKS[path.suffix[1:]](path, single=True, **options)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    return sink


@pytest.mark.parametrize("kind", SINKS)
def test_the_file_appears_when_the_job_has_ended(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"out.{kind}"
    sink = started(path)
    sink.commit(JOB, 1, [part_of(sink, 1, [{"word": "a", "n": 1}]), part_of(sink, 1, [{"word": "b", "n": 2}], index=1)])
    sink.commit(JOB, 2, [part_of(sink, 2, [{"word": "c", "n": 3}])])
    part_of(sink, 3, [{"word": "never committed", "n": 0}])
    assert not path.exists()
    assert [row["word"] for row in files.read_committed(path)] == ["a", "b", "c"]
    sink.finish_output(JOB)
    found = READERS[kind](path)
    assert (list(found["word"]), list(found["n"])) == (["a", "b", "c"], [1, 2, 3])
    before = path.read_bytes()
    again = SINKS[kind](path, single=True)  # a resume of the ended job
    again.prepare_output(JOB, resume=True, overwrite=False)
    again.finish_output(JOB)
    assert path.read_bytes() == before
    assert [row["word"] for row in files.read_committed(path)] == ["a", "b", "c"]


@pytest.mark.parametrize(("kind", "empty"), [("jsonl", b""), ("csv", b""), ("parquet", None)])
def test_a_job_without_rows_writes_an_empty_file(tmp_path: Path, kind: str, empty: bytes | None) -> None:
    path = tmp_path / f"out.{kind}"
    started(path).finish_output(JOB)
    assert path.read_bytes() == empty if empty is not None else len(pandas.read_parquet(path)) == 0


def test_parts_with_other_columns_share_a_header(tmp_path: Path) -> None:
    sink = started(tmp_path / "out.csv")
    rows: list[dict[str, Any]] = [{"a": "1,5", "b": 2}, {"b": 3, "c": 'so "so"'}, {"a": "last", "b": None}]
    for checkpoint, row in enumerate(rows, 1):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [row])])
    sink.finish_output(JOB)
    assert (tmp_path / "out.csv").read_text() == 'a,b,c\n"1,5",2,\n,3,"so ""so"""\nlast,,\n'


def test_parts_with_other_types_share_a_schema(tmp_path: Path) -> None:
    sink = started(tmp_path / "out.parquet")
    for checkpoint, row in enumerate([{"n": 1, "x": None}, {"n": 2.5, "x": "late"}, {"x": "only"}], 1):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [row])])
    sink.finish_output(JOB)
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == [
        {"n": 1.0, "x": None},
        {"n": 2.5, "x": "late"},
        {"n": None, "x": "only"},
    ]


def test_parts_with_types_that_do_not_fit_are_named(tmp_path: Path) -> None:
    sink = started(tmp_path / "out.parquet")
    for checkpoint, row in enumerate([{"n": 1}, {"n": "two"}], 1):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [row])])
    with pytest.raises(RowNotWritable, match="give the sink schema="):
        sink.finish_output(JOB)
    assert not (tmp_path / "out.parquet").exists()


def test_going_back_removes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    sink = started(path)
    for checkpoint in (1, 2):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [checkpoint])])
    sink.finish_output(JOB)
    sink.roll_back(JOB, 1)
    assert not path.exists()
    sink.finish_output(JOB)
    assert path.read_text() == "1\n"


def test_a_file_that_no_job_wrote_stays_until_it_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("mine\n")
    sink = files.jsonl(path, single=True)
    with pytest.raises(UnexpectedOutput, match=r"is a file that no job wrote.*--overwrite, which replaces it"):
        sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.prepare_output(JOB, resume=False, overwrite=True)
    assert path.read_text() == "mine\n"
    sink.finish_output(JOB)
    assert path.read_text() == ""


def test_a_file_of_another_job_is_refused(tmp_path: Path) -> None:
    sink = started(tmp_path / "out.jsonl")
    with pytest.raises(OutputInUse):
        started(tmp_path / "out.jsonl")
    with pytest.raises(NotOutputOwner):
        sink.finish_output("other-1")
    with pytest.raises(InvalidConnector, match="started with single=True"):
        files.jsonl(tmp_path / "out.jsonl").prepare_output(JOB, resume=True, overwrite=False)


def test_a_folder_with_files_cannot_become_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.txt").write_text("mine")
    with pytest.raises(InvalidConnector, match="a folder with files"):
        files.jsonl(tmp_path / "out", single=True).prepare_output(JOB, resume=False, overwrite=True)


@pytest.mark.parametrize("single_first", [True, False])
def test_overwriting_turns_a_folder_into_a_file_and_back(tmp_path: Path, single_first: bool) -> None:
    path = tmp_path / "out.jsonl"
    for job, single in (JOB, single_first), (f"{JOB}-again", not single_first):
        sink = files.jsonl(path, single=single)
        sink.prepare_output(job, resume=False, overwrite=True)
        sink.commit(job, 1, [part_of(sink, 1, ["a"])])
        sink.finish_output(job)
        assert path.is_file() == single
        assert list(files.read_committed(path)) == ["a"]


def test_a_source_that_never_ends_and_a_single_file_are_refused(tmp_path: Path) -> None:
    job = JobGraph("endless")
    job.source(files.lines(tmp_path, watch="1s"), name="texts").sink(files.jsonl(tmp_path / "x.jsonl", single=True))
    with pytest.raises(InvalidJob, match=r"single=True, which writes the file when all .* texts never ends"):
        job.compile(Options())


def test_a_folder_that_is_named_like_a_file_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = files.jsonl(tmp_path / "result.jsonl")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    (record,) = caplog.records
    assert "result.jsonl becomes a folder of part files; with single=True it becomes a file" in record.getMessage()
    sink.prepare_output(JOB, resume=True, overwrite=False)
    files.jsonl(tmp_path / "out").prepare_output(JOB, resume=False, overwrite=False)
    started(tmp_path / "single.jsonl")
    assert len(caplog.records) == 1


def test_an_output_folder_that_was_removed_is_free(tmp_path: Path) -> None:
    sink = files.jsonl(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    (path,) = (tmp_path / "out").iterdir()
    path.unlink()
    os.rmdir(tmp_path / "out")
    sink.prepare_output("next-1", resume=False, overwrite=False)
    assert list(files.read_committed(tmp_path / "out")) == []


def test_a_single_parquet_file_names_the_column_that_no_type_holds_exactly(tmp_path: Path) -> None:
    sink = files.parquet(tmp_path / "out.parquet", single=True)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    rows: list[list[Any]] = [[{"n": 2**53 + 1}], [{"n": 0.5}]]
    sink.commit(JOB, 1, [part_of(sink, 1, part, index) for index, part in enumerate(rows)])
    with pytest.raises(RowNotWritable, match=r"column n: its part has int64, other parts double .*schema="):
        sink.finish_output(JOB)


def test_a_single_csv_file_takes_fields_of_any_length(tmp_path: Path) -> None:
    sink = files.csv(tmp_path / "out.csv", single=True)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    limit = csv.field_size_limit()
    rows: list[list[Any]] = [[{"a": "x" * (limit + 1)}], [{"b": 1}]]
    sink.commit(JOB, 1, [part_of(sink, 1, part, index) for index, part in enumerate(rows)])
    sink.finish_output(JOB)
    assert len((tmp_path / "out.csv").read_text()) > limit
    assert csv.field_size_limit() == limit
