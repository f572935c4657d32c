"""Tables as outputs: how many rows the summary says, and what a second run says about the rows of the first."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import clonos
from tests.harnesses.mistakes import check, run_file

CODE = """
from clonos import Job, files, sqlite, values

job = Job("top", store="store")
rows = job.source(values([{"k": number, "n": number * 2} for number in range(5)])).key_by("k")
"""
UPSERT = 'rows.sink(sqlite("out.db", "top5", ["k", "n"], upsert="k"), name="table")\n'
APPEND = 'rows.sink(sqlite("out.db", "log", ["k", "n"]), name="table")\n'
FILES = 'rows.sink(files.jsonl("out"), name="files")\n'
FINISHED = re.compile(r"top has finished earlier \(checkpoint \d+\): it starts afresh(.*)")


def run_twice(folder: Path, sinks: str) -> None:
    for _ in range(2):
        ended = run_file(folder, CODE + sinks)
        assert ended.code == 0, ended.errors


def rows(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / "out.db")) as connection:
        return int(connection.execute(f"select count(*) from {table}").fetchone()[0])


@pytest.mark.slow
def test_the_summary_of_a_short_job_counts_every_row_that_a_table_was_given(tmp_path: Path) -> None:
    for _ in range(2):  # the second run replaces the rows of the first
        assert "output: table top5 (5 rows)" in run_file(tmp_path, CODE + UPSERT).errors
    assert rows(tmp_path, "top5") == 5


@pytest.mark.slow
def test_a_second_run_reports_that_rows_under_a_key_are_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_twice(tmp_path, UPSERT)
    assert FINISHED.findall(caplog.text) == [""]
    assert (
        "the rows of earlier starts stay in table top5, except those whose k this start writes again: these are"
        " replaced" in caplog.text
    )
    assert "adds its own" not in caplog.text


@pytest.mark.slow
def test_a_second_run_reports_that_appended_rows_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_twice(tmp_path, APPEND + FILES)
    assert FINISHED.findall(caplog.text) == [" and replaces the output of that run, except that of table"]
    assert "the rows of earlier starts stay in table log, and this start adds its own" in caplog.text
    assert rows(tmp_path, "log") == 10


def test_a_table_that_does_not_exist_keeps_no_rows(tmp_path: Path) -> None:
    sink = clonos.sqlite(tmp_path / "out.db", "log", ["k", "n"])
    assert not sink.has_table()
    assert not (tmp_path / "out.db").exists(), "asking creates no file"
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        connection.execute("CREATE TABLE other (k)")
        assert not sink.has_table()
        connection.execute("CREATE TABLE log (k, n)")
    assert sink.has_table()


def test_a_database_that_cannot_be_asked_may_keep_rows() -> None:
    def connect() -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    assert clonos.dbapi(connect, "log").has_table()


@pytest.mark.slow
def test_an_overwriting_start_does_not_warn_of_a_table_that_does_not_exist(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = run_file(tmp_path, CODE + APPEND, "--overwrite")
    assert ended.code == 0, ended.errors
    assert "earlier starts" not in caplog.text
    assert rows(tmp_path, "log") == 5


@pytest.mark.slow
def test_a_row_that_a_table_cannot_hold_is_refused_by_the_name_of_its_sink(tmp_path: Path) -> None:
    code = """
    from clonos import Job, sqlite, values

    job = Job("etl", store="store")
    rows = job.source(values([{"k": 1, "x": 1}]), name="read").map(lambda row: row, name="copy")
    rows.sink(sqlite("out.db", "log", ["k"]), name="table")
    """
    check(
        run_file(tmp_path, code),
        "job etl has failed: step table raised RowNotWritable: sqlite cannot write the row {'k': 1, 'x': 1}",
        "there is no column for its x",
        code=1,
    )
