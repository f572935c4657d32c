"""Readers of files see the committed rows of an output, by folder and by pattern, at every moment of a commit."""

from __future__ import annotations

import csv
import glob
import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow.dataset
import pyarrow.parquet
import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InputMissing
from clonos.connectors.filesystem import output_folder
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.operators.connector_contract import WriterContext
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of, writer_of

SINKS: dict[str, Callable[[Path], FileSink]] = {"parquet": files.parquet, "jsonl": files.jsonl, "csv": files.csv}


def in_duckdb(out: str, kind: str, pattern: str) -> list[int]:
    function = {"parquet": "read_parquet", "jsonl": "read_json", "csv": "read_csv"}[kind]
    found = duckdb.execute(f"SELECT word FROM {function}('{out}/{pattern}')").fetchall()
    return [word for (word,) in found]


def in_polars(out: str, scan: Callable[[str], polars.LazyFrame], pattern: str) -> list[int]:
    return scan(f"{out}{pattern}").collect()["word"].to_list()


def in_pandas(out: str) -> list[int]:
    return list(pandas.concat(map(pandas.read_parquet, found_by_glob(f"{out}/**")))["word"])


def in_shell(out: str) -> list[Any]:
    text = subprocess.run(f"cat {out}/*", shell=True, check=True, capture_output=True, text=True).stdout
    return [json.loads(line)["word"] for line in text.splitlines()]


def in_csv(out: str) -> list[int]:
    found = []
    for path in glob.glob(f"{out}/**", recursive=True, include_hidden=True):
        if not os.path.isdir(path):
            with open(path, newline="") as text:
                found += [int(row["word"]) for row in csv.DictReader(text)]
    return found


def found_by_glob(pattern: str) -> list[str]:
    matches = glob.glob(pattern, recursive=True, include_hidden=True)
    return [path for path in matches if not os.path.isdir(path)]


def in_dataset(out: str, kind: str) -> list[int]:
    found: list[int] = pyarrow.dataset.dataset(out, format=kind).to_table()["word"].to_pylist()
    return found


SCANS: dict[str, Callable[[str], polars.LazyFrame]] = {"parquet": polars.scan_parquet, "jsonl": polars.scan_ndjson}
READERS: dict[str, tuple[str, Callable[[str], list[int]]]] = {
    "pandas folder": ("parquet", lambda out: list(pandas.read_parquet(out)["word"])),
    "pandas glob": ("parquet", in_pandas),
    "pyarrow dataset": ("parquet", partial(in_dataset, kind="parquet")),
    "pyarrow json": ("jsonl", partial(in_dataset, kind="json")),
    "pyarrow read_table": ("parquet", lambda out: list(pyarrow.parquet.read_table(out)["word"].to_pylist())),
    "cat": ("jsonl", in_shell),
    "csv": ("csv", in_csv),
    **{
        f"polars {kind} {pattern or 'folder'}": (kind, partial(in_polars, scan=SCANS[kind], pattern=pattern))
        for kind in SCANS
        for pattern in ("", "/", "/*", f"/*.{kind}", "/**/*", f"/**/*.{kind}", f"/../**/*.{kind}")
    },
    **{
        f"duckdb {kind} {pattern}": (kind, partial(in_duckdb, kind=kind, pattern=pattern))
        for kind in SINKS
        for pattern in ("*", f"*.{kind}", "**", f"**/*.{kind}", f"../**/*.{kind}")
    },
}


class Running:
    """An output of two committed checkpoints, in which more parts are prepared and one is being written."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder / "data" / "out"
        self.sink = SINKS[kind](self.folder)
        self.sink.prepare_output(JOB, resume=False, overwrite=False)
        self.sink.commit(JOB, 1, [part_of(self.sink, 1, [{"word": 1}]), part_of(self.sink, 1, [{"word": 2}], index=1)])
        self.sink.commit(JOB, 2, [part_of(self.sink, 2, [{"word": 3}])])
        self.newest = [part_of(self.sink, 3, [{"word": 4 + index}], index=index) for index in range(3)]
        part_of(self.sink, 3, [{"word": 99}], incarnation=7)  # of a dead incarnation
        self.living = writer_of(self.sink, index=3)
        self.living.write([{"word": 100}] * 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_sees_the_committed_rows_while_the_job_runs_and_afterwards(tmp_path: Path, reader: str) -> None:
    kind, read = READERS[reader]
    running = Running(tmp_path, kind)
    assert sorted(read(str(running.folder))) == [1, 2, 3]
    running.sink.commit(JOB, 3, running.newest)
    assert sorted(read(str(running.folder))) == [1, 2, 3, 4, 5, 6]
    running.living.close()
    assert sorted(read(str(running.folder))) == [1, 2, 3, 4, 5, 6]


class Dies(Exception):
    """The driver ends here."""


def dying_after(renames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes commits end after this many renames into the output."""
    rename, left = os.rename, renames

    def counted(source: Any, target: Any) -> None:
        nonlocal left
        if left == 0:
            raise Dies
        left -= 1
        rename(source, target)

    monkeypatch.setattr(os, "rename", counted)


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_commit_that_dies_between_two_renames_is_completed_by_the_resumed_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    running = Running(tmp_path, "parquet")
    with monkeypatch.context() as patch:
        dying_after(renames, patch)
        if renames == 3:  # all are renamed, and the manifest is missing
            patch.setattr(output_folder.OutputFolder, "_create", lambda *_: (_ for _ in ()).throw(Dies))
        with pytest.raises(Dies):
            running.sink.commit(JOB, 3, running.newest)
    seen = sorted(pandas.read_parquet(running.folder)["word"])
    assert seen == [1, 2, 3, 4, 5, 6][: 3 + renames]
    assert [row["word"] for row in files.read_committed(running.folder)] == [1, 2, 3]
    running.living.close()
    again = SINKS["parquet"](running.folder)
    again.prepare_output(JOB, resume=True, overwrite=False)
    again.roll_back(JOB, 3)
    again.commit(JOB, 3, running.newest)
    assert sorted(pandas.read_parquet(running.folder)["word"]) == [1, 2, 3, 4, 5, 6]
    assert [row["word"] for row in files.read_committed(running.folder)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_going_back_removes_visible_parts_of_a_later_checkpoint_even_of_an_interrupted_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    running = Running(tmp_path, "parquet")
    with monkeypatch.context() as patch:
        dying_after(renames, patch)
        if renames < 3:
            with pytest.raises(Dies):
                running.sink.commit(JOB, 3, running.newest)
        else:
            running.sink.commit(JOB, 3, running.newest)
    again = SINKS["parquet"](running.folder)
    again.prepare_output(JOB, resume=True, overwrite=False)
    again.roll_back(JOB, 1)
    assert sorted(pandas.read_parquet(running.folder)["word"]) == [1, 2]


@pytest.mark.parametrize("removals", range(6))
def test_going_back_that_dies_is_completed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    running = Running(tmp_path, "parquet")
    running.sink.commit(JOB, 3, running.newest)
    remove, left = os.unlink, removals

    def counted(path: Any) -> None:
        nonlocal left
        if left == 0:
            raise Dies
        left -= 1
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", counted)
        with pytest.raises(Dies):
            running.sink.roll_back(JOB, 1)
    assert [row["word"] for row in files.read_committed(running.folder)] in ([1, 2], [1, 2, 3], [1, 2, 3, 4, 5, 6])
    again = SINKS["parquet"](running.folder)
    again.prepare_output(JOB, resume=True, overwrite=False)
    again.roll_back(JOB, 1)
    assert sorted(pandas.read_parquet(running.folder)["word"]) == [1, 2]


def test_a_writer_that_was_replaced_never_gets_a_row_into_the_folder(tmp_path: Path) -> None:
    sink = files.jsonl(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    zombie = writer_of(sink, incarnation=1)
    zombie.write([{"word": "before"}])
    sink.commit(JOB, 1, [part_of(sink, 1, [{"word": "valid"}], incarnation=2)])
    for checkpoint in (1, 2, 3):
        zombie.prepare(checkpoint)
        zombie.write([{"word": f"of a zombie after {checkpoint}"}])
        sink.commit(JOB, checkpoint + 1, [part_of(sink, checkpoint + 1, [{"word": "valid"}], incarnation=2)])
        assert set(in_shell(str(tmp_path / "out"))) == {"valid"}
    zombie.close()
    sink.prepare_output(JOB, resume=True, overwrite=False)
    assert os.listdir(tmp_path / ".out.clonos" / "parts") == []
    assert set(in_shell(str(tmp_path / "out"))) == {"valid"}


def test_rows_are_read_in_the_order_of_checkpoints(tmp_path: Path) -> None:
    sink = files.jsonl(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    for checkpoint in (1, 2, 9, 10, 11, 100):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [{"word": checkpoint}])])
    assert in_shell(str(tmp_path / "out")) == [1, 2, 9, 10, 11, 100]


@pytest.mark.parametrize("name", ["_private", ".hidden", "(x)", "total"])
def test_no_name_of_a_step_hides_its_part_files(tmp_path: Path, name: str) -> None:
    sink = files.parquet(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer = sink.writer()
    writer.open(WriterContext(JOB, f"{name}/0", 0, 0, 1))
    writer.write([{"word": 1}])
    part = writer.prepare(1)
    assert part is not None
    sink.commit(JOB, 1, [part])
    assert list(pandas.read_parquet(tmp_path / "out")["word"]) == [1]


def test_a_link_to_a_folder_is_an_output_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "out")
    sink = files.parquet(tmp_path / "link")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, [{"word": 1}])])
    assert sorted(os.listdir(tmp_path / "disk")) == [".out.clonos", "out"]
    for path in (tmp_path / "link", tmp_path / "disk" / "out"):
        assert list(pandas.read_parquet(path)["word"]) == [row["word"] for row in files.read_committed(path)] == [1]


def test_the_output_of_one_job_is_the_input_of_another(tmp_path: Path) -> None:
    sink = files.jsonl(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, [{"a": 1}])])
    part_of(sink, 2, [{"a": 2}])
    assert read_all(files.jsonl(sink.folder())) == [{"a": 1}]
    assert read_all(files.jsonl(f"{sink.folder()}/*.jsonl")) == [{"a": 1}]
    with pytest.raises(InputMissing, match="has committed nothing yet that matches"):
        files.jsonl(f"{sink.folder()}/*.csv").splits(1)
