"""A job goes on after its driver: killed at any time, also twice, gone back to an earlier checkpoint, or changed."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import files
from clonos.core.metadata import PlanChanged
from clonos.io.store import CheckpointStore, NothingToResume
from clonos.job import Job
from tests.processes.gated_source import Gate, GatedNumbers
from tests.tidy.source import PACKAGE_FOLDERS

pytestmark = pytest.mark.processes

LIMIT_S = 50.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Asks again and again."""
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        if condition():
            return
        waiting.wait(0.02)
    raise AssertionError(f"never: {condition}")


def committed(folder: Path) -> list[Any]:
    """Rows that an output shows, none before it is there."""
    return list(files.read_committed(folder)) if (folder / "_manifests").exists() else []


class Typed:
    """A job that is run by ``clonos run`` in a process of its own, whose output leaves by epoch and at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, Gate(folder / "gate")
        source = Path(__file__).with_name("gated_source.py").read_text("utf-8")
        (folder / "gated_source.py").write_text(source, "utf-8")
        job = (
            "from types import SimpleNamespace\n"
            "from clonos import Job, files, random, sqlite\n"
            "from gated_source import GatedNumbers\n"
            'job = Job("typed", slots="process")\n'
            f"numbers = job.source(GatedNumbers(SimpleNamespace(path={str(folder / 'gate')!r})))\n"
            'drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(40)})\n'
            'drawn.sink(sqlite("table.db", "drawn", {"n": "INTEGER", "draw": "INTEGER"}))\n'
            'counted = drawn.key_by(lambda row: row["n"] % 3).stateful_map(\n'
            '    lambda _, seen, row: ((seen or 0) + 1, row | {"seen": (seen or 0) + 1}))\n'
            'counted.sink(files.jsonl("output"))\n'
        )
        (folder / "job.py").write_text(job, "utf-8")

    def start(self, checkpoint_every: str, *arguments: str) -> subprocess.Popen[str]:
        """A driver."""
        path = os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())
        option = f"checkpoint_every={checkpoint_every}"
        return subprocess.Popen(
            [sys.executable, "-m", "clonos.cli", "run", "job.py", "--option", option, *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_when(self, condition: Callable[[], bool], *arguments: str, checkpoint_every: str = "100ms") -> str:
        """Runs a driver until the condition holds, then kills it; what it wrote to standard error."""
        process = self.start(checkpoint_every, *arguments)
        try:
            wait_until(condition)
        finally:
            process.kill()
            _, errors = process.communicate()
        return errors

    def stored(self) -> list[tuple[int, int]]:
        """Rows of the table."""
        if not (self.folder / "table.db").exists():
            return []
        with closing(sqlite3.connect(self.folder / "table.db")) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'drawn'").fetchone():
                return []
            return connection.execute("SELECT n, draw FROM drawn ORDER BY rowid").fetchall()


def superseded(errors: str) -> list[tuple[int, int]]:
    """(first, next) number of output that may leave again, as the driver's log says."""
    pattern = re.compile(r"WARNING clonos.*output (\d+) to (\d+) of \S+ had left before the rollback")
    return [(int(first), int(last) + 1) for first, last in pattern.findall(errors)]


def test_a_driver_is_killed_twice_and_only_what_was_told_leaves_again(tmp_path: Path) -> None:
    typed = Typed(tmp_path)
    typed.gate.open_to(100)
    typed.kill_when(lambda: len(committed(tmp_path / "output")) > 0)
    left = len(typed.stored())
    typed.gate.open_to(200)
    # The second driver dies before its first checkpoint: what it let out counts for nobody either.
    errors = typed.kill_when(lambda: len(typed.stored()) > left + 50, "--resume", checkpoint_every="1h")
    told = superseded(errors)
    typed.gate.end(300)
    last = typed.start("100ms", "--resume")
    _, errors = last.communicate(timeout=LIMIT_S)
    assert last.returncode == 0, errors
    told += superseded(errors)

    rows = committed(tmp_path / "output")
    assert Counter(row["n"] for row in rows) == Counter(range(300))
    for key in range(3):
        assert [row["seen"] for row in rows if row["n"] % 3 == key] == list(range(1, 101))
    stored = typed.stored()
    twice = Counter(range(300)) + sum((Counter(range(*these)) for these in told), Counter())
    assert Counter(n for n, _ in stored) == twice
    # What the job goes on from is what it says last.
    draws = dict(stored)
    assert all(draws[row["n"]] == row["draw"] for row in rows)


class Described:
    """A job with two outputs at one step, run in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, Gate(folder / "gate")

    def job(self, step: str = "double", **options: Any) -> Job:
        """A new description; the step's name is part of the plan."""
        job = Job("described", slots="process", checkpoint_every="100ms", store=self.folder / "store", **options)
        doubled = job.source(GatedNumbers(self.gate)).map(lambda n: {"n": n, "double": 2 * n}, name=step)
        doubled.sink(files.jsonl(self.folder / "lines"))
        doubled.sink(files.csv(self.folder / "table"))
        return job

    def stop_after(self, count: int, **options: Any) -> int:
        """Runs it until a checkpoint behind so many records; the checkpoint's number."""
        self.gate.open_to(count)
        with self.job(**options).start() as handle:
            wait_until(lambda: len(committed(self.folder / "table")) >= count)
            handle.stop()
            return handle.wait(LIMIT_S).checkpoint

    def checkpoints(self) -> list[int]:
        """That have completed: one that takes long may be passed over for the next."""
        store = CheckpointStore(str(self.folder / "store"))
        store.find_job()
        return store.checkpoints()

    def check(self, count: int) -> None:
        """Each record is once in both outputs."""
        assert [row["n"] for row in committed(self.folder / "lines")] == list(range(count))
        assert [int(row["n"]) for row in committed(self.folder / "table")] == list(range(count))


def test_a_driver_that_dies_when_it_has_gone_back_leaves_a_job_that_is_whole(tmp_path: Path) -> None:
    described = Described(tmp_path)
    first = described.stop_after(100)
    last = described.stop_after(200, resume=True)
    assert last > first
    store = CheckpointStore(str(tmp_path / "store"))
    store.find_job()
    assert {first, last} <= set(store.checkpoints())
    before_last = store.checkpoints()[-2]
    store.claim(goes_back_to=before_last)  # a driver that was asked to go back, and died before it touched any output

    described.gate.end(300)
    with pytest.raises(NothingToResume, match=f"no checkpoint {last}. There are: .*{before_last}"):
        described.job().run(resume=True, checkpoint=last)
    described.job().run(resume=True)
    described.check(300)


def test_both_outputs_of_a_step_are_taken_back_when_a_job_goes_back(tmp_path: Path) -> None:
    described = Described(tmp_path)
    described.stop_after(100)
    described.stop_after(200, resume=True)
    described.gate.end(300)
    described.job().run(resume=True, checkpoint=described.checkpoints()[-2])
    described.check(300)


def test_a_changed_plan_is_refused_before_any_output_is_touched(tmp_path: Path) -> None:
    described = Described(tmp_path)
    described.stop_after(100)
    with pytest.raises(PlanChanged, match="Steps, names or parallelism have changed"):
        described.job(step="twice").run(resume=True, checkpoint=described.checkpoints()[-2])
    described.check(100)
    described.gate.end(200)
    described.job().run(resume=True)
    described.check(200)
