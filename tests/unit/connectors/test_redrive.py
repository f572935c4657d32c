"""``clonos errors``: corrected rows of an error output go in again, each once."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, files, values
from clonos.cli import ENDED, JOB_AT_FAULT, error_commands, main

ROWS: list[dict[str, Any]] = [{"n": 1}, {"n": 0}, {"n": "x"}, {"n": 100}]


def _divided(row: dict[str, Any]) -> dict[str, int]:
    return {"q": 100 // row["n"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The error output of a job: of the step "divide" two records, of "text" another."""
    folder = tmp_path_factory.mktemp("made")
    job = Job("etl", store=folder / "store", errors=files.jsonl(folder / "errors"))
    numbers = job.source(values(ROWS), name="read")
    divided = numbers.map(_divided, name="divide")
    divided.map(lambda row: row["q"] if row["q"] > 1 else row["nothing"], name="text").sink(files.jsonl(folder / "out"))
    job.run(slots="thread")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "etl")
    monkeypatch.chdir(tmp_path / "etl")
    Path("in").mkdir()
    return tmp_path / "etl"


def _redriven() -> list[Any]:
    return [json.loads(line) for file in sorted(Path("in").iterdir()) for line in file.read_text("utf-8").splitlines()]


CORRECT = """
def number(row):
    return {"n": int(row["record"]["n"] == "x") * 7} if row["record"]["n"] == "x" else None
"""


def test_a_record_goes_in_again_once_and_one_without_a_correction_waits(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("correct.py").write_text(CORRECT, "utf-8")
    command = ["errors", "redrive", "errors", "--into", "in", "--step", "divide"]
    assert main([*command, "--correct", "correct.py:number"]) == ENDED
    assert "1 records went in again; 1 wait, without a record" in capsys.readouterr().err
    assert _redriven() == [{"n": 7}]
    assert main(command) == ENDED  # the other one, as it is
    assert _redriven() == [{"n": 7}, {"n": 0}]
    assert main(command) == ENDED
    assert _redriven() == [{"n": 7}, {"n": 0}]
    assert main(["errors", "ls", "errors"]) == ENDED
    assert "divide" in capsys.readouterr().out


def test_records_of_several_steps_are_not_mixed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["errors", "redrive", "errors", "--into", "in"]) == JOB_AT_FAULT
    assert "they are of the steps divide, text: name one by --step" in capsys.readouterr().err
    assert _redriven() == []


@pytest.mark.parametrize("call", ["_append", "rename"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_redrive_that_is_interrupted_is_completed_by_the_next_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    command = ["errors", "redrive", "errors", "--into", "in", "--step", "divide"]
    owner: Any = error_commands if call == "_append" else Path
    original, calls = getattr(owner, call), []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == number:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(owner, call, interrupted)
        main(command)
    assert main(command) == ENDED
    assert _redriven() == [{"n": 0}, {"n": "x"}]


def test_a_file_goes_into_a_folder_of_another_file_system(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Path.rename

    def of_one_file_system(path: Path, target: Path) -> Path:
        if path.parent.name != Path(target).parent.name:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return original(path, target)

    monkeypatch.setattr(Path, "rename", of_one_file_system)
    assert main(["errors", "redrive", "errors", "--into", "in", "--step", "divide"]) == ENDED
    assert _redriven() == [{"n": 0}, {"n": "x"}]
    assert len(list(Path("in").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["out", "--into", "in"], "it has other rows. Give the folder of Job(errors="),
        (["s3://bucket/errors", "--into", "in"], "it is in a bucket"),
        (["errors", "--into", "nowhere"], "nowhere is not a folder"),
        (["errors", "--into", "in", "--correct", "none.py:f"], "FILE:FUNCTION of a Python file is expected"),
    ],
)
def test_rows_that_cannot_go_in_again_are_refused_with_the_reason(
    folder: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["errors", "redrive", *arguments]) == JOB_AT_FAULT
    assert sentence in capsys.readouterr().err
    assert _redriven() == []
