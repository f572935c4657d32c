"""Jobs resume after their driver: killed at any time, killed twice, sent back to an earlier checkpoint, or changed."""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import files
from clonos.core.checkpoint.checkpoint_metadata import PlanChanged
from clonos.io.store.store import CheckpointStore, NothingToResume
from clonos.job import Job
from tests.processes.harness import gated_source
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled
from tests.tidy.source import PACKAGE_FOLDERS
from tests.waiting import await_condition

pytestmark = pytest.mark.processes

LIMIT_S = scaled(50.0)
wait_until = partial(await_condition, LIMIT_S)


def committed(folder: Path) -> list[Any]:
    """Rows that an output shows, none before it is there."""
    return list(files.read_committed(folder)) if folder.exists() else []


class Typed:
    """A job that is run by ``clonos run`` in a process of its own, whose output leaves by epoch and at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, Gate(folder / "gate")
        source = Path(gated_source.__file__).read_text("utf-8")
        (folder / "gated_source.py").write_text(source, "utf-8")
        job = (
            "from types import SimpleNamespace\n"
            "from clonos import Job, files, random, sqlite\n"
            "from gated_source import GatedNumbers\n"
            'job = Job("typed", slots="process")\n'
            f"numbers = job.source(GatedNumbers(SimpleNamespace(path={str(folder / 'gate')!r})))\n"
            'drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(40)}, effects=True)\n'
            'drawn.sink(sqlite("table.db", "drawn", {"n": "INTEGER", "draw": "INTEGER"}))\n'
            'counted = drawn.key_by(lambda row: row["n"] % 3).stateful_map(\n'
            '    lambda _, seen, row: ((seen or 0) + 1, row | {"seen": (seen or 0) + 1}))\n'
            'counted.sink(files.jsonl("output"))\n'
            'latest = counted.map(lambda row: {"key": row["n"] % 3, "seen": row["seen"], "draw": row["draw"]})\n'
            'latest.key_by("key").sink(sqlite("table.db", "latest", ["key", "seen", "draw"], upsert="key"))\n'
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

    def stored(self, table: str = "drawn", columns: str = "n, draw") -> list[Any]:
        """Rows of a table."""
        if not (self.folder / "table.db").exists():
            return []
        with closing(sqlite3.connect(self.folder / "table.db", timeout=20)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                return []
            return connection.execute(f"SELECT {columns} FROM {table} ORDER BY rowid").fetchall()

    def seen(self) -> int:
        """Number of records counted in the table with one row per key."""
        return sum(seen for (seen,) in self.stored("latest", "seen"))

    def checkpoints(self) -> list[int]:
        """Completed checkpoints."""
        store = CheckpointStore(str(self.folder / ".clonos" / "typed"))
        store.find_job()
        return store.checkpoints()

    def end(self, records: int, *arguments: str) -> str:
        """Runs a driver to the end of the input; what it wrote to standard error."""
        self.gate.end(records)
        last = self.start("100ms", *arguments)
        _, errors = last.communicate(timeout=LIMIT_S)
        assert last.returncode == 0, errors
        return errors

    def check(self, records: int) -> None:
        """Checks that all outputs have each record once, with one draw."""
        rows = committed(self.folder / "output")
        assert Counter(row["n"] for row in rows) == Counter(range(records))
        for key in range(3):
            assert [row["seen"] for row in rows if row["n"] % 3 == key] == list(range(1, records // 3 + 1))
        assert sorted(self.stored()) == sorted((row["n"], row["draw"]) for row in rows)
        latest = {row["n"] % 3: (row["n"] % 3, row["seen"], row["draw"]) for row in rows}
        assert sorted(self.stored("latest", "key, seen, draw")) == sorted(latest.values())


def withdrawn(errors: str, table: str) -> int:
    """Number of rows withdrawn from a table, from the driver's log."""
    pattern = re.compile(rf"WARNING clonos.*rows (\d+) to (\d+) of \S+ were withdrawn from the table {table},")
    return sum(int(last) - int(first) + 1 for first, last in pattern.findall(errors))


def test_a_driver_that_is_killed_twice_leaves_each_row_in_its_tables_once(tmp_path: Path) -> None:
    typed = Typed(tmp_path)
    typed.gate.open_to(102)
    typed.kill_when(lambda: len(committed(tmp_path / "output")) > 0)
    left, left_seen = len(typed.stored()), typed.seen()
    typed.gate.open_to(201)
    # The second driver dies before its first checkpoint: its output does not count either.
    errors = typed.kill_when(
        lambda: len(typed.stored()) > left + 50 and typed.seen() > left_seen + 10, "--resume", checkpoint_every="1h"
    )
    errors += typed.end(300, "--resume")
    typed.check(300)
    assert re.search(r"calls with an effect that were made since checkpoint \d+ may be made again, by map", errors)
    assert withdrawn(errors, "drawn") > 50
    assert withdrawn(errors, "latest") > 0
    assert "had left before the rollback" not in errors


def test_a_driver_that_resumes_from_an_earlier_checkpoint_withdraws_later_rows(tmp_path: Path) -> None:
    typed = Typed(tmp_path)

    def manifests() -> int:
        return len(list((tmp_path / ".output.clonos" / "manifests").glob("[0-9]*.manifest")))

    def has_committed(checkpoints: int) -> Callable[[], bool]:
        """Lets in a few records at each look, so that no two checkpoints are alike, until these have completed."""
        reach, before = itertools.count(len(typed.stored()), 6), manifests()

        def is_there() -> bool:
            typed.gate.open_to(next(reach))
            return manifests() >= before + checkpoints

        return is_there

    typed.kill_when(has_committed(2))
    typed.kill_when(has_committed(3), "--resume")
    *_, before, _ = typed.checkpoints()
    left = len(typed.stored())
    errors = typed.end(left + 300 - left % 3, "--resume", "--checkpoint", str(before))
    typed.check(left + 300 - left % 3)
    committed_names = [os.path.basename(part.path) for part in files.committed(tmp_path / "output")]
    assert sorted(os.listdir(tmp_path / "output")) == sorted(committed_names)
    assert "cannot be withdrawn" not in errors
    assert "had left before the rollback" not in errors
    assert withdrawn(errors, "drawn") > 0
    assert withdrawn(errors, "latest") > 0


def test_an_existing_table_without_our_columns_is_warned_of_and_its_repeats_are_numbered(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        connection.execute("CREATE TABLE drawn (n INTEGER, draw INTEGER)")
    typed = Typed(tmp_path)
    typed.gate.open_to(102)
    first = typed.kill_when(lambda: len(committed(tmp_path / "output")) > 0)
    assert first.count("the table drawn has no columns clonos_task and clonos_number") == 1
    left = len(typed.stored())
    typed.gate.open_to(201)
    errors = typed.kill_when(lambda: len(typed.stored()) > left + 50, "--resume", checkpoint_every="1h")
    errors += typed.end(300, "--resume")
    reported = [(int(number), int(last) + 1) for number, last in SUPERSEDED.findall(errors)]
    twice = Counter(range(300)) + sum((Counter(range(*these)) for these in reported), Counter())
    stored = typed.stored()
    assert sum(stop - start for start, stop in reported) > 50
    assert Counter(n for n, _ in stored) == twice
    # The last report is about the checkpoint that the job continues from.
    draws = dict(stored)
    assert all(draws[row["n"]] == row["draw"] for row in committed(tmp_path / "output"))


SUPERSEDED = re.compile(r"WARNING clonos.*output (\d+) to (\d+) of \S+ had left before the rollback")
"""Output that may leave again, as the driver's log says."""


class Described:
    """A job with two outputs at one step, run in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, Gate(folder / "gate")

    def job(self, step: str = "double", lines: str = "lines", **options: Any) -> Job:
        """A new description; the step's name and the folders are part of the plan."""
        job = Job("described", slots="process", checkpoint_every="100ms", store=self.folder / "store", **options)
        doubled = job.source(GatedNumbers(self.gate)).map(lambda n: {"n": n, "double": 2 * n}, name=step)
        doubled.sink(files.jsonl(self.folder / lines))
        doubled.sink(files.csv(self.folder / "table"))
        return job

    def stop_after(self, count: int, **options: Any) -> int:
        """Runs the job until a checkpoint after ``count`` records; returns the checkpoint's number."""
        self.gate.open_to(count)
        with self.job(**options).start() as handle:
            wait_until(lambda: len(committed(self.folder / "table")) >= count)
            handle.stop()
            return handle.wait(LIMIT_S).checkpoint

    def checkpoints(self) -> list[int]:
        """Completed checkpoints; a slow one may be subsumed by the next."""
        store = CheckpointStore(str(self.folder / "store"))
        store.find_job()
        return store.checkpoints()

    def check(self, count: int) -> None:
        """Checks that each record is once in both outputs."""
        assert [row["n"] for row in committed(self.folder / "lines")] == list(range(count))
        assert [int(row["n"]) for row in committed(self.folder / "table")] == list(range(count))


def test_a_driver_killed_after_going_back_leaves_a_job_that_resumes_exactly_once(tmp_path: Path) -> None:
    described = Described(tmp_path)
    first = described.stop_after(100)
    last = described.stop_after(200, resume=True)
    assert last > first
    store = CheckpointStore(str(tmp_path / "store"))
    store.find_job()
    assert {first, last} <= set(store.checkpoints())
    before_last = store.checkpoints()[-2]
    # A driver that was asked to go back, and died before it touched any output.
    store.acquire_term(resume_from=before_last)

    described.gate.end(300)
    with pytest.raises(NothingToResume, match=f"no checkpoint {last}. Its checkpoints are: .*{before_last}"):
        described.job().run(resume=True, checkpoint=last)
    described.job().run(resume=True)
    described.check(300)


def test_both_outputs_of_a_step_are_withdrawn_when_a_job_goes_back(tmp_path: Path) -> None:
    described = Described(tmp_path)
    described.stop_after(100)
    described.stop_after(200, resume=True)
    described.gate.end(300)
    described.job().run(resume=True, checkpoint=described.checkpoints()[-2])
    described.check(300)


def test_a_changed_plan_is_refused_before_any_output_is_touched(tmp_path: Path) -> None:
    described = Described(tmp_path)
    described.stop_after(100)
    with pytest.raises(PlanChanged, match="the job has changed: the task"):
        described.job(step="twice").run(resume=True, checkpoint=described.checkpoints()[-2])
    with pytest.raises(PlanChanged, match=f'the output of the step "sink" was {tmp_path}/lines, is {tmp_path}/rows'):
        described.job(lines="rows").run(resume=True)
    assert not (tmp_path / "rows").exists()
    described.check(100)
    described.gate.end(200)
    described.job().run(resume=True)
    described.check(200)
