"""``clonos init`` and the completion of commands by a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clonos.cli import ENDED, JOB_AT_FAULT, main
from clonos.cli.new_project import FILES
from tests.tidy.source import PACKAGE_FOLDERS

pytestmark = pytest.mark.slow

ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())}


@pytest.mark.processes
def test_a_new_project_runs_and_passes_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "visits"]) == ENDED
    assert sorted(os.listdir("visits")) == sorted(FILES)
    environment = os.environ | ENVIRONMENT | {"CLONOS_SLOTS": "process"}
    run = [sys.executable, "-m", "clonos.cli", "run", "job.py"]
    done = subprocess.run(run, cwd="visits", env=environment, capture_output=True, text=True, check=False)
    assert sorted(map(json.loads, done.stdout.splitlines())) == [["Berlin", 1], ["Berlin", 2], ["Paris", 1]]
    assert "visits has finished" in done.stderr
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    tested = subprocess.run(tests, cwd="visits", env=environment, capture_output=True, text=True, check=False)
    assert "2 passed" in tested.stdout, tested.stdout


@pytest.mark.parametrize("name", ["in the way", "", "../x", "-x", "é"])
def test_a_name_that_no_job_can_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--", name]) == JOB_AT_FAULT
    assert "cannot be the name of a job" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_written_where_a_file_of_the_project_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(file).write_text("mine", "utf-8")
    assert main(["init"]) == JOB_AT_FAULT
    assert f"{file} exists already, and nothing was written" in capsys.readouterr().err
    assert os.listdir(tmp_path) == [file]
    assert Path(file).read_text("utf-8") == "mine"


def test_a_job_in_the_working_folder_has_the_folders_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my visits"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["init"]) == ENDED
    assert 'Job("myvisits")' in Path("job.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("line", "expected"), [("clonos ini", ["init "]), ("clonos run job.py --over", ["--overwrite "])]
)
def test_a_shell_completes_commands_and_options(tmp_path: Path, line: str, expected: list[str]) -> None:
    found = tmp_path / "found"
    variables = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(found),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    command = [sys.executable, "-m", "clonos.cli"]
    subprocess.run(command, env=os.environ | ENVIRONMENT | variables, capture_output=True, check=True)
    assert found.read_text("utf-8").split("\x0b") == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == ENDED
    printed = capsys.readouterr().out
    assert "clonos" in printed
    assert "_ARGCOMPLETE" in printed
