"""``clonos run`` and ``clonos demo`` as a user types them: exit codes, signals and output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clonos.cli import ABORTED, ENDED, ENVIRONMENT_AT_FAULT, JOB_AT_FAULT
from clonos.connectors import files
from tests.harnesses.mistakes import LINES_MAX
from tests.processes.harness import gated_source
from tests.processes.harness.gated_source import Gate
from tests.speed import scaled
from tests.tidy.source import PACKAGE_FOLDERS

pytestmark = pytest.mark.processes

LIMIT_S = scaled(50.0)
KILL_FIELDS = [
    *("task", "kind", "detected_ms", "promoted_ms", "replayed_ms", "caught_up_ms"),
    *("output_gap_ms", "visible_gap_ms"),
]


class Commands:
    """Starts ``clonos`` in a folder; what still runs at the end is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Starts one command."""
        path = os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())
        process = subprocess.Popen(
            [sys.executable, "-m", "clonos.cli", *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": path} | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """Runs one command to its end: exit code, standard output, standard error."""
        return _ended(self.start(*arguments, **variables))

    def close(self) -> None:
        """Ends them all."""
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with closing(Commands(tmp_path)) as commands:
        yield commands


def _ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, output, errors


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A job in ``job.py`` whose source reads as far as the gate is open."""
    source = Path(gated_source.__file__).read_text("utf-8")
    (tmp_path / "gated_source.py").write_text(source, "utf-8")
    job = (
        "from types import SimpleNamespace\n"
        "from clonos import Job, files\n"
        "from gated_source import GatedNumbers\n"
        'job = Job("typed", slots="process", checkpoint_every="100ms")\n'
        f"numbers = job.source(GatedNumbers(SimpleNamespace(path={str(tmp_path / 'gate')!r})))\n"
        'numbers.map(lambda n: {"n": n, "tenth": 10 // (n - 500)}).sink(files.jsonl("output"))\n'
    )
    (tmp_path / "job.py").write_text(job, "utf-8")
    return Gate(tmp_path / "gate")


STARTING = """
import sys
from clonos.io.process.fork_server_process import hash_seed_ahead
print(hash_seed_ahead() is not None, "clonos_standby.driver.driver" in sys.modules)
from clonos import Job, blackhole, values

job = Job("starting")
job.source(values([1])).sink(blackhole())
"""


@pytest.mark.parametrize("arguments", [["run", "job.py"], ["dev", "job.py", "--runs", "1"]], ids=["run", "dev"])
def test_the_fork_server_starts_before_the_driver_and_the_file_of_the_job_are_imported(
    commands: Commands, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "job.py").write_text(STARTING, "utf-8")
    assert commands.run(*arguments, CLONOS_SLOTS="process")[:2] == (ENDED, "True False\n")


def _wait_until_committed(folder: Path, count: int) -> None:
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        if (folder / "output").exists() and len(list(files.read_committed(folder / "output"))) >= count:
            return
        waiting.wait(0.02)
    raise AssertionError("nothing was committed")


def test_a_job_is_run_stopped_by_a_signal_and_resumed(gate: Gate, commands: Commands, tmp_path: Path) -> None:
    gate.open_to(100)
    first = commands.start("run", "job.py")
    _wait_until_committed(tmp_path, 100)
    gate.open_to(200)
    first.send_signal(signal.SIGTERM)
    code, output, errors = _ended(first)
    assert (code, output) == (ENDED, "")
    assert "was stopped with a final checkpoint; --resume continues from there" in errors

    code, _, errors = commands.run("run", "job.py")
    assert code == JOB_AT_FAULT
    assert re.search(r"holds the state of job typed-\w+, which is unfinished: it stopped after checkpoint \d+", errors)

    gate.end(300)
    code, _, errors = commands.run("run", "job.py:job", "--resume", "--metrics", "metrics.jsonl")
    assert code == ENDED, errors
    assert [row["n"] for row in files.read_committed(tmp_path / "output")] == list(range(300))
    assert json.loads((tmp_path / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["phase"] == "ended"


def test_two_signals_abort_the_job(gate: Gate, commands: Commands, tmp_path: Path) -> None:
    gate.open_to(100)
    process = commands.start("run", "job.py", CLONOS_CHECKPOINT_EVERY="1h")
    _wait_until_heeds_signals(process.pid)
    process.send_signal(signal.SIGSTOP)  # both are there when it looks
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    code, _, errors = _ended(process)
    assert code == ABORTED, errors
    assert "SIGTERM again: aborting typed" in errors or "SIGINT again: aborting typed" in errors
    assert re.search("typed was (aborted|stopped before it had begun)", errors), errors


def _wait_until_heeds_signals(pid: int) -> None:
    """Until the process catches SIGTERM, which Python by itself does not."""
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
        if caught >> (signal.SIGTERM - 1) & 1:
            return
        waiting.wait(0.02)
    raise AssertionError("no handler was installed")


def test_a_job_whose_code_raises_fails_with_a_message_that_names_step_and_record(
    gate: Gate, commands: Commands, tmp_path: Path
) -> None:
    gate.end(600)
    code, output, errors = commands.run("run", "job.py")
    assert (code, output) == (JOB_AT_FAULT, "")
    assert "clonos: job typed has failed" in errors
    assert "at the record 500, raised ZeroDivisionError: integer division or modulo by zero" in errors
    assert len(errors.splitlines()) <= LINES_MAX


def test_a_missing_java_is_reported_with_the_command_that_installs_it(
    gate: Gate, commands: Commands, tmp_path: Path
) -> None:
    code, _, errors = commands.run("run", "job.py", "--slots", "spark", JAVA_HOME=str(tmp_path))
    assert code == ENVIRONMENT_AT_FAULT
    assert errors.startswith("clonos: Spark needs Java 17 or later")
    assert not (tmp_path / ".clonos").exists()


@pytest.mark.timeout(120)
def test_the_demo_survives_its_kills_and_reports_a_clean_verdict(commands: Commands, tmp_path: Path) -> None:
    arguments = ("--slots", "process", "--seconds", "1", "--kills", "linked,executor", "--json", "verdict.json")
    process = commands.start("demo", *arguments)
    output, errors = process.communicate(timeout=scaled(110))
    assert process.returncode == ENDED, output + errors
    assert "exactly-once: nothing lost, duplicated or contradicted" in output
    assert "kept their processes and incarnations" in output
    verdict = json.loads((tmp_path / "verdict.json").read_text("utf-8"))
    assert list(verdict) == ["records", "lost", "duplicated", "contradicted", "calls_repeated", "kills"]
    assert [verdict[name] for name in ("lost", "duplicated", "contradicted")] == [0, 0, 0]
    assert verdict["records"] > 0
    assert verdict["kills"]
    for kill in verdict["kills"]:
        assert list(kill) == KILL_FIELDS
        assert kill["detected_ms"] <= kill["promoted_ms"] <= kill["replayed_ms"] <= kill["caught_up_ms"]
