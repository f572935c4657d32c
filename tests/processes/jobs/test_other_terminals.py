"""A job of ``clonos run``, seen and ended from another terminal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from clonos.cli import ENDED, JOB_AT_FAULT, main
from clonos.io.epochs.record_reader import EpochRecord
from clonos.status import REQUESTS_PER_DRIVER
from tests.processes.harness.running_program import ENVIRONMENT
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(50.0)
JOB = """
from clonos import Job, files

job = Job("endless", slots="process", checkpoint_every="100ms")
words = job.source(files.lines("in/*.txt", watch="100ms"), name="read")
words.key_by(lambda word: word).count(name="count").sink(files.jsonl("out"))
"""


@pytest.fixture(autouse=True)
def _runs_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has a register of its own."""
    folder = Path(tempfile.mkdtemp(prefix="c", dir="/tmp"))  # short, because it has sockets
    monkeypatch.setenv("CLONOS_RUNS", str(folder))
    monkeypatch.chdir(tmp_path)
    for name in ("CLONOS_TOKEN", "CLONOS_SERVER"):
        monkeypatch.delenv(name, raising=False)
    yield
    shutil.rmtree(folder)


RUN_BY_CLI = ("-m", "clonos.cli", "run", "job.py")


@contextmanager
def _running(folder: Path, *program: str, job: str = JOB) -> Iterator[subprocess.Popen[str]]:
    (folder / "job.py").write_text(job, "utf-8")
    (folder / "in").mkdir()
    (folder / "in/one.txt").write_text("to\nbe\nor\nnot\nto\nbe\n", "utf-8")
    process = subprocess.Popen(
        [sys.executable, *(program or RUN_BY_CLI)],
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == ENDED, capsys.readouterr().err
    return capsys.readouterr().out


def _answer(socket_path: Path, request: bytes) -> Any:
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.connect(str(socket_path))
        connection.sendall(request)
        with connection.makefile("rb") as answers:
            return json.loads(answers.readline())


def _await_rows(folder: Path) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not any((folder / "out").glob("*.jsonl")):
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.02)


def test_a_job_of_run_is_watched_saved_and_stopped_by_its_name_or_its_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _running(tmp_path) as process:
        _await_rows(tmp_path)
        document = json.loads(_printed(capsys, "status", "endless", "--json"))
        assert (document["job"]["status"], len(document["tasks"])) == ("RUNNING", 2)
        assert "endless" in _printed(capsys, "jobs")
        assert "count/0" in _printed(capsys, "status", ".clonos/endless")
        assert main(["rescale", "endless", "count=3"]) == ENDED
        assert "has these numbers of tasks: count 3" in capsys.readouterr().err
        assert "count/2" in _printed(capsys, "status", "endless")
        assert main(["rescale", "endless", "--place-anew"]) == ENDED
        assert "the tasks of endless" in (printed := capsys.readouterr().err)
        assert "are placed anew" in printed
        assert (
            json.loads(_printed(capsys, "status", "endless", "--json"))["rescale"]["number"] % REQUESTS_PER_DRIVER == 2
        )
        assert main(["rescale", "endless"]) == JOB_AT_FAULT
        assert "nothing to change: name steps" in capsys.readouterr().err
        assert main(["rescale", "endless", "none=3"]) == JOB_AT_FAULT
        assert 'there is no step "none"' in capsys.readouterr().err
        record = EpochRecord(
            Path(_printed(capsys, "capture", "endless", "--task", "count/2", "--folder", "epochs").strip())
        )
        assert (record.folder.parent, record.head.task) == (tmp_path / "epochs/count-2", "count/2")
        assert main(["capture", "endless", "--task", "none/0"]) == JOB_AT_FAULT
        assert "has no task 'none/0'; it has read" in capsys.readouterr().err
        assert _printed(capsys, "savepoint", "endless", "kept").strip() == str(tmp_path / "kept")
        assert "savepoint of endless written" in _printed(capsys, "logs", "endless")
        assert "not" in _printed(capsys, "state", "show", "endless", "count")
        (socket_path,) = Path(os.environ["CLONOS_RUNS"]).glob("*.sock")
        silent = socket.socket(socket.AF_UNIX)
        silent.connect(str(socket_path))  # and holds nothing up
        assert _answer(socket_path, b"nonsense\n")["status"] == 400
        assert main(["stop", str(tmp_path / ".clonos/endless"), "--savepoint", "last"]) == ENDED
        assert process.wait(LIMIT_S) == ENDED
        silent.close()
    assert (tmp_path / "last").is_dir()
    ended = json.loads(_printed(capsys, "status", "endless", "--json"))
    assert (ended["job"]["status"], ended["job"]["error"]) == ("FINISHED", None)
    assert "another terminal has requested to stop endless" in _printed(capsys, "logs", "endless")
    assert main(["stop", "endless"]) == JOB_AT_FAULT
    assert "the job endless has ended: it is FINISHED" in capsys.readouterr().err


def test_a_killed_run_is_reported_as_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with _running(tmp_path) as process:
        _await_rows(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    assert [line.split()[1] for line in _printed(capsys, "jobs").splitlines()] == ["status", "DIED"]
    assert main(["status", "endless"]) == JOB_AT_FAULT
    assert f"the process {process.pid} of endless has gone without a word" in capsys.readouterr().err
    assert main(["status", "other"]) == JOB_AT_FAULT
    assert "clonos run has no job 'other' on this machine" in capsys.readouterr().err


def test_a_cancelled_run_is_reported_as_cancelled_and_not_as_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _running(tmp_path) as process:
        _await_rows(tmp_path)
        assert main(["cancel", "endless"]) == ENDED
        process.wait(LIMIT_S)
    document = json.loads(_printed(capsys, "status", "endless", "--json"))
    assert (document["job"]["status"], document["job"]["stopped"]) == ("CANCELED", False)


def test_a_job_of_a_script_is_stopped_from_another_terminal_and_its_warnings_are_still_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _running(tmp_path, "job.py", job=f"{JOB}\nif __name__ == '__main__':\n    print(job.run())\n") as process:
        _await_rows(tmp_path)
        assert main(["stop", "endless"]) == ENDED
        printed, _ = process.communicate(timeout=LIMIT_S)
    assert printed.count("another terminal has requested to stop endless\n") == 1
    assert "Result of the job endless: drained" in printed
    assert "another terminal has requested to stop endless" in _printed(capsys, "logs", "endless")
