"""What ``clonos run`` and ``clonos dev`` say about a job that loses processes, hangs, is stopped, or is changed."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clonos.cli import ABORTED, ENDED
from tests.speed import scaled
from tests.tidy.source import PACKAGE_FOLDERS

pytestmark = pytest.mark.processes

LIMIT_S = scaled(50.0)


class Terminal:
    """Commands in a folder, whose standard error is read while they run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def write(self, code: str) -> None:
        """Writes the job's file."""
        (self.folder / "job.py").write_text(code, "utf-8")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts ``clonos``."""
        path = os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())
        with (self.folder / "errors.txt").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "clonos.cli", *arguments],
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return self.process

    def output_of(self, *arguments: str) -> str:
        """What another ``clonos`` prints meanwhile."""
        path = os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())
        command = [sys.executable, "-m", "clonos.cli", *arguments]
        environment = os.environ | {"PYTHONPATH": path}
        ended = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert ended.returncode == ENDED, ended.stderr
        return ended.stdout

    def errors(self) -> str:
        """Standard error so far."""
        return (self.folder / "errors.txt").read_text("utf-8")

    def wait_for(self, condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
        """Waits until a condition holds."""
        waiting = threading.Event()
        for _ in range(int(LIMIT_S * 50)):
            if condition():
                return
            assert process.poll() is None, self.errors()
            waiting.wait(0.02)
        raise AssertionError(self.errors())


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    if terminal.process is not None:
        terminal.process.kill()
        terminal.process.communicate()


KILLED = """\
import fcntl, os
from clonos import Job, files, logger, values

def look(n):
    if n == 100:
        print("process", os.getpid())
        logger.warning("hundred", n=n)
    if n == 3000:
        with open("go", "w") as file:  # clonos: ok the test holds the lock
            fcntl.flock(file, fcntl.LOCK_SH)
    return n

job = Job("watched", slots="process", checkpoint_every="100ms")
looked = job.source(values(range(6000)), name="numbers").map(look, name="look")
looked.key_by(lambda n: n % 5).count(name="count").sink(files.jsonl("out"))
"""


def test_a_recovery_is_one_sentence_and_the_end_a_summary(terminal: Terminal) -> None:
    terminal.write(KILLED)
    with (terminal.folder / "go").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = terminal.start("run", "job.py")
        terminal.wait_for(lambda: re.search(r"\[\S+\] process (\d+)\n", terminal.errors()), process)
        (pid,) = re.findall(r"\[\S+\] process (\d+)\n", terminal.errors())
        os.kill(int(pid), signal.SIGKILL)
        terminal.wait_for(lambda: "recovered in" in terminal.errors(), process)
    output, _ = process.communicate(timeout=LIMIT_S)
    errors = terminal.errors()
    assert (process.returncode, output) == (ENDED, ""), errors
    sentence = r"look/0 recovered in [\d,]+ ms in process \d+ of \S+: [\d,]+ records? replayed, no record lost \(.+\)"
    assert len(re.findall(sentence, errors)) == 1, errors
    assert "is gone" not in errors
    assert "too few standbys" not in errors
    assert "WARNING clonos.job: numbers-look/0: hundred n=100" in errors
    summary = errors[errors.index("watched has finished") :].splitlines()
    assert re.fullmatch(r"  [\d.]+ s, last checkpoint \d+, 1 recovery \(\S+ [\d,]+ ms\)", summary[1])
    steps = {line.split()[0]: line.split()[1:] for line in summary[2:-1]}
    assert steps == {"numbers-look": ["6,000", "in,", "6,000", "out"], "count": ["6,000", "in"]}
    assert summary[-1] == f"  output: {terminal.folder / 'out'} (6,000 rows)"


HANGING = """\
import pathlib
from clonos import Job, files, values

def spin(n):
    while n == 7:
        pathlib.Path("spins").touch()
    return n

job = Job("hanging", slots="process", checkpoint_every="100ms")
job.source(values(range(100))).map(spin, name="spin").sink(files.jsonl("out"))
"""


def test_a_step_that_hangs_is_named_and_does_not_outlive_a_second_signal(terminal: Terminal) -> None:
    terminal.write(HANGING)
    process = terminal.start("run", "job.py")
    terminal.wait_for((terminal.folder / "spins").exists, process)
    hang = r"step 'spin' of task spin/0 has been at work on the same input for \d+ s: \w+\.py:\d+ in \w+: "
    terminal.wait_for(lambda: re.search(hang, terminal.errors()), process)
    shown = terminal.output_of("threads", ".clonos/hanging")
    (stuck,) = re.findall(r"^  thread task spin/0 .*(?:\n    .*)*", shown, re.MULTILINE)
    assert ": in step 'spin'\n    with n = 7\n" in stuck
    assert re.search(r"\n    job.py:\d in spin: ", stuck)
    assert "  thread coordinator\n" in shown
    folded = terminal.output_of("flame", ".clonos/hanging", "--task", "spin/0", "--seconds", "0.2")
    assert re.fullmatch(r"(?:\S+ .*;spin \(job.py:\d\).* \d+\n)+", folded), folded
    process.send_signal(signal.SIGINT)
    waits = (
        r"waiting for the final checkpoint: spin/0 has not taken it yet \(step 'spin' .*; another signal ends the job"
    )
    terminal.wait_for(lambda: re.search(waits, terminal.errors()), process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == ABORTED
    assert "hanging was aborted; --resume continues" in terminal.errors()


PREVIEWED = """\
from clonos import Job, files, values

job = Job("previewed", parallelism=1)
job.source(values(range(3))).map(lambda n: {"first": n}, name="map").sink(files.jsonl("out"))
"""


def test_dev_previews_the_output_and_starts_again_when_the_file_changes(terminal: Terminal) -> None:
    terminal.write(PREVIEWED)
    process = terminal.start("dev", "job.py", "--runs", "3")
    terminal.wait_for(lambda: "waiting for a change" in terminal.errors(), process)
    assert "[map/0] preview sink: {'first': 2}" in terminal.errors()
    terminal.write("from clonos import Job, nothing_of_this_name\n")
    terminal.wait_for(lambda: "clonos has no nothing_of_this_name" in terminal.errors(), process)
    terminal.write(PREVIEWED.replace("first", "second"))
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == ENDED
    assert "job.py has changed: starting again" in terminal.errors()
    assert "[map/0] preview sink: {'second': 2}" in terminal.errors()
    assert "previewed has ended (preview: nothing was written)" in terminal.errors()
    assert not (terminal.folder / "out").exists()
    assert not (terminal.folder / ".clonos").exists()


def test_dev_ends_silently_when_it_is_interrupted_after_a_run_has_ended(terminal: Terminal) -> None:
    terminal.write(PREVIEWED)
    process = terminal.start("dev", "job.py")
    terminal.wait_for(lambda: "waiting for a change" in terminal.errors(), process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == ENDED, terminal.errors()
    assert terminal.errors().endswith("waiting for a change of the job's files; Ctrl-C ends\n")
