"""Output to a program that ends before the job, such as ``clonos run job.py | head -1``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harnesses.mistakes import check
from tests.processes.harness.running_program import ENVIRONMENT

pytestmark = pytest.mark.slow

JOB = """
from clonos import Job, stdout, values
job = Job("few")
job.source(values(range(10))).sink(stdout())
if __name__ == "__main__":
    job.run(slots="process")
"""


@pytest.mark.processes
@pytest.mark.parametrize("command", [["-m", "clonos.cli", "run", "job.py", "--slots", "process"], ["job.py"]])
def test_a_job_whose_reader_ends_is_ended_at_once_with_a_sentence(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "job.py").write_text(JOB)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    check(done.stderr, "few has failed: standard output is closed", "--resume")
    assert "Exception ignored" not in done.stderr  # what Python says if it cannot flush standard output at its end
    assert "trying again" not in done.stderr
    assert done.returncode in (1, 3)  # that of an uncaught exception, that of clonos


@pytest.mark.processes
def test_a_job_goes_on_after_the_reader_of_its_messages_has_ended(tmp_path: Path) -> None:
    job = JOB.replace("sink(stdout())", "peek(lambda n: print('at', n)).sink(files.jsonl('out'))")
    (tmp_path / "job.py").write_text(job.replace("Job, stdout", "Job, files"), "utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "clonos.cli", "-v", "run", "job.py", "--slots", "process"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | ENVIRONMENT, stdout=writer, stderr=writer, check=False
    )
    os.close(writer)
    assert done.returncode == 0
    assert len("".join(part.read_text("utf-8") for part in (tmp_path / "out").glob("*.jsonl")).split()) == 10


def test_a_command_whose_reader_ends_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB, "utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "clonos.cli", "explain", "job.py"],
        cwd=tmp_path,
        env=os.environ | ENVIRONMENT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_pipe_stays_closed(tmp_path: Path) -> None:
    program = """
import os, sys
from clonos.connectors import stdout
from clonos.connectors.connector_errors import OutputClosed
reader, writer = os.pipe()
os.dup2(writer, 1)
os.close(writer)
os.close(reader)
sink = stdout()
for attempt in (1, 2):
    try:
        sink.show(["a row"], [])
    except OutputClosed as error:
        sys.stderr.write("refused ")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "refused refused ")
