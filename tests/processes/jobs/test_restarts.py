"""Restart strategies of ``clonos run`` and ``Job.run``: a job whose environment fails starts again from its last
checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clonos.cli import ENDED
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(60.0)
COUNT = 200
JOB = """
from pathlib import Path

from clonos import EnvironmentFault, Job, files


class Numbers:
    def splits(self, parallelism):
        return [b"all"]

    def reader(self):
        return Reader()


class Reader:
    def open(self, split, mark):
        self.next = int(mark or b"0")

    def read(self, records_max):
        if self.next == 100:  # the service is down when half of its records are read
            lives = Path("lives")
            times = int(lives.read_text()) if lives.exists() else 0
            if times < DOWN:
                lives.write_text(str(times + 1))
                raise EnvironmentFault("the service is down")
        found = list(range(self.next, min(self.next + 10, COUNT)))
        self.next += len(found)
        return found or None

    def mark(self):
        return str(self.next).encode()

    def close(self):
        pass


job = Job("numbers", slots="process", checkpoint_every="200ms", failures_per_epoch_max=1)
job.source(Numbers(), parallelism=1, name="numbers").map(lambda number: {"number": number}).sink(files.jsonl("out"))
"""


def _run(folder: Path, down: int, strategy: str) -> subprocess.CompletedProcess[str]:
    text = JOB.replace("DOWN", str(down)).replace("COUNT", str(COUNT))
    (folder / "job.py").write_text(text, "utf-8")
    arguments = [sys.executable, "-m", "clonos.cli", "run", "job.py", "--restart-strategy", strategy]
    return subprocess.run(arguments, cwd=folder, text=True, capture_output=True, timeout=LIMIT_S, check=False)


def _numbers_of(folder: Path) -> list[int]:
    lines = [line for file in sorted((folder / "out").rglob("*.jsonl")) for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["number"] for line in lines)


def test_a_job_starts_again_until_its_environment_works_and_counts_each_record_once(tmp_path: Path) -> None:
    ended = _run(tmp_path, 3, "fixed-delay:attempts=3,delay=50ms")
    assert ended.returncode == ENDED, ended.stderr
    assert "numbers starts again in 0.05 s (loss 1 without a checkpoint in between)" in ended.stderr
    assert _numbers_of(tmp_path) == list(range(COUNT))


def test_a_script_starts_its_job_again_though_its_first_start_was_to_overwrite(tmp_path: Path) -> None:
    code = JOB.replace("DOWN", "2").replace("COUNT", str(COUNT))
    code = code.replace('Job("numbers"', 'Job("numbers", overwrite=True')
    code += "print(job.run(restart_strategy='fixed-delay:attempts=2,delay=10ms').has_finished)\n"
    (tmp_path / "job.py").write_text(code, "utf-8")
    ended = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, text=True, capture_output=True, timeout=LIMIT_S, check=False
    )
    assert ended.stdout == "True\n", ended.stderr
    assert "numbers starts again in 0.01 s" in ended.stderr
    assert _numbers_of(tmp_path) == list(range(COUNT))


def test_a_wrong_strategy_is_refused_before_anything_starts(tmp_path: Path) -> None:
    ended = _run(tmp_path, 0, "sometimes")
    assert ended.returncode == 1
    assert "the restart strategy 'sometimes' is unknown" in ended.stderr
    assert not (tmp_path / "out").exists()
