"""Input with bad lines, and output that is not where people look."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from clonos.connectors import files
from tests.harnesses.mistakes import check, run_file

pytestmark = pytest.mark.slow

LINES = '{"n": 1}\n{"n": 2\n{"n": 3}\n'
COPY = """
from clonos import Job, files, stdout
job = Job("etl")
job.source(files.jsonl("x.jsonl"), name="read").map(lambda row: row["n"]).sink(files.jsonl({output}))
"""


@pytest.mark.processes
def test_a_bad_line_ends_a_job_without_errors_with_its_place_and_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(LINES)
    printed = run_file(tmp_path, COPY.format(output='"out"'))
    check(
        printed,
        f"{tmp_path}/x.jsonl at byte 9, line 2: the line '{{\"n\": 2' is not JSON",
        "Correct the file. Job(..., errors=sink) sets such records aside.",
        code=1,
    )


@pytest.mark.processes
def test_a_bad_line_goes_to_the_error_output_and_the_job_ends_well(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(LINES)
    code = COPY.format(output='"out"')
    errors = 'errors=stdout(lambda error: f"{error.step}: {error.record}: {error.error}")'
    printed = run_file(tmp_path, code.replace('"etl"', f'"etl", {errors}'))
    assert printed.code == 0
    assert printed.output.startswith('read: {"n": 2: InputMalformed: ')
    assert f"{tmp_path}/x.jsonl at byte 9" in printed.output
    assert printed.output.endswith("Correct the file.\n"), "it has an error output"
    texts = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert [json.loads(line) for text in texts for line in text.splitlines()] == [1, 3]


@pytest.mark.processes
def test_an_output_that_is_named_like_a_file_is_reported_as_a_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x.jsonl").write_text('{"n": 1}\n')
    printed = run_file(tmp_path, COPY.format(output='"result.jsonl"'))
    assert printed.code == 0
    warnings = "\n".join(each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    check(warnings, "result.jsonl becomes a folder of part files; with single=True it becomes a file")
    (part,) = (tmp_path / "result.jsonl").iterdir()
    assert part.read_text() == "1\n"
    caplog.clear()
    assert run_file(tmp_path, COPY.format(output='"result.jsonl", single=True'), "--overwrite").code == 0
    assert "becomes a folder" not in caplog.text
    assert (tmp_path / "result.jsonl").read_text() == "1\n"


@pytest.mark.processes
def test_a_folder_with_files_of_others_is_refused_and_overwrite_leaves_them(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.txt").write_text("mine")
    printed = run_file(tmp_path, COPY.format(output='"out"'))
    check(
        printed,
        "out has 1 file that no job wrote, such as 'precious.txt'. Name another one, or start with --overwrite, which"
        " leaves them there, among its part files.",
        code=1,
    )
    assert run_file(tmp_path, COPY.format(output='"out"'), "--overwrite").code == 0
    assert (tmp_path / "out" / "precious.txt").read_text() == "mine"
    assert list(files.read_committed(tmp_path / "out")) == [1]


@pytest.mark.processes
def test_too_much_output_for_the_driver_names_the_limit_and_other_sinks(tmp_path: Path) -> None:
    code = """
    from clonos import Job, stdout, values
    job = Job("etl", checkpoint_every="1h")
    job.source(values(range(20))).map(lambda n: "x" * 1_000_000).sink(stdout())
    """
    check(
        run_file(tmp_path, code),
        "stdout() was given more than 16777216 bytes from one task between two checkpoints",
        "write larger ones with files.jsonl or files.parquet",
        code=1,
    )


def test_a_json_array_in_place_of_lines_is_answered_by_how_to_write_it(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"a": 1},\n {"a": 2}]\n', "utf-8")
    code = (
        "from clonos import *\njob = Job('etl', slots='process')\n"
        "job.source(files.jsonl('rows.json')).sink(blackhole())\n"
    )
    check(run_file(tmp_path, code), "It begins an array: give each object a line of its own", code=1)
