"""``clonos doctor``: what is wrong on a machine or with a store is found and named, with what to do."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from clonos.cli import ENDED, ENVIRONMENT_AT_FAULT, JOB_AT_FAULT, main
from clonos.cli.doctor import CheckResult, Severity, examine, lines_of, main_level
from clonos.config import RunOptions
from clonos.io.store.object_files import LocalFiles

JOB = """
from clonos import Job, files, values

job = Job("checked", slots="process")
job.source({source}).sink(files.jsonl("out"))
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", "/tmp")


def of_check(found: list[CheckResult], check: str) -> CheckResult:
    return next(finding for finding in found if finding.check == check)


def test_a_sound_machine_has_no_error_and_the_working_folder_stays_as_it_was(tmp_path: Path) -> None:
    found = list(examine(None, RunOptions()))
    assert main_level(found) is not Severity.ERROR
    assert of_check(found, "store").text.startswith("the working folder: objects can be created if absent")
    assert list(tmp_path.iterdir()) == []


def test_each_finding_that_is_not_ok_has_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    found = list(examine(None, RunOptions()))
    assert of_check(found, "Spark").level is Severity.WARNING  # process slots need no Java
    assert all(finding.advice for finding in found if finding.level is not Severity.OK)
    assert any("to do: " in line and "--slots process" in line for line in lines_of(found))


def test_a_store_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    found = of_check(list(examine(None, RunOptions(store=str(tmp_path / "file")))), "store")
    assert found.level is Severity.ERROR
    assert "could not" in found.text or "cannot" in found.text


def test_a_store_without_create_if_absent_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(files: LocalFiles, name: str, data: bytes) -> bool:
        files.write(name, data)
        return True

    monkeypatch.setattr(LocalFiles, "create_if_absent", create)
    found = of_check(list(examine(None, RunOptions(store=str(tmp_path / "store")))), "store")
    assert found.level is Severity.ERROR
    assert "only if it is absent" in found.text


def test_a_store_keeps_nothing_of_the_check(tmp_path: Path) -> None:
    list(examine(None, RunOptions(store=str(tmp_path / "store"))))
    assert not (tmp_path / "store").exists()


def test_ports_that_are_taken_are_counted() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = of_check(list(examine(None, RunOptions(data_ports=f"{port}-{port}"))), "ports")
    assert found.level is Severity.ERROR
    assert f"data_ports={port}-{port}: 0 of 1 are free" in found.text


def test_a_local_folder_that_is_too_long_for_sockets_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", os.fspath(long))
    found = [each for each in examine(None, RunOptions()) if each.check == "local folder"]
    assert [each.level for each in found][-1] is Severity.ERROR
    assert "too long" in found[-1].text


def test_missing_input_of_a_job_is_found_and_the_exit_code_names_the_culprit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checked_job.py").write_text(JOB.format(source="values([1])"), "utf-8")
    (tmp_path / "without_input.py").write_text(JOB.format(source="files.lines('missing.txt')"), "utf-8")
    assert main(["doctor", "checked_job.py", "--json"]) == ENDED
    assert {"check": "job", "level": "ok", "text": "checked: 1 vertices, 1 tasks", "advice": ""} in json.loads(
        capsys.readouterr().out
    )
    assert main(["doctor", "without_input.py"]) == ENVIRONMENT_AT_FAULT
    assert "missing.txt" in capsys.readouterr().out
    assert main(["doctor", "no_such_file.py"]) == JOB_AT_FAULT


def test_a_server_that_does_not_answer_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert main(["doctor", "--server", url]) == ENVIRONMENT_AT_FAULT
    assert f"{url} does not answer" in capsys.readouterr().out
