"""Each task of a job on child processes, killed and captured: its record repeats itself in another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, clock
from clonos.connectors import sqlite
from clonos.job.handle import Handle
from clonos.replay.elsewhere import TIME_ZONE
from tests.harnesses.replays import replays_elsewhere
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled
from tests.waiting import await_condition

pytestmark = pytest.mark.processes

LIMIT_S = scaled(60.0)
wait_until = partial(await_condition, LIMIT_S)
KEYS, STEP = 7, 100
WRITER = "out/0"
"""Its sink is part of the task: the record has digests of the rows that the database had not confirmed."""
TASKS = ("read-stamped/0", "total/0", WRITER)


def _job(folder: Path, gate: Gate) -> Job:
    job = Job("stamps", slots="process", parallelism=1, checkpoint_every="1h", store=str(folder / "store"))
    stamped = job.source(GatedNumbers(gate), name="read").map(_stamped, name="stamped")
    totals = stamped.key_by(lambda row: row[0] % KEYS).stateful_map(_total, name="total")
    last = totals.key_by(lambda row: row[0] % 2).stateful_map(_total, name="out")
    last.sink(sqlite(str(folder / "out.db"), "totals", ["n", "time", "total"]), name="rows")
    return job


def _stamped(n: int) -> tuple[int, int]:
    return n, clock.time_ns()


def _total(_: Any, total: int | None, row: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    new = (total or 0) + row[0]
    return new, (row[0], clock.time_ns(), new)


def _replayed(folder: Path, elsewhere: Path) -> dict[str, Any]:
    """What the command says in a process with another time zone and folder, and in others with other hashes, too."""
    done = subprocess.run(
        [sys.executable, "-m", "clonos.cli", "replay", str(folder), "--elsewhere", "--format", "json"],
        env={**os.environ, "TZ": TIME_ZONE, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _kill(handle: Handle, name: str) -> None:
    os.kill(next(task.pid for task in handle.status().tasks if task.name == name), signal.SIGKILL)


def _all_counted(handle: Handle, records: int) -> bool:
    return [task.counters.get("records_in", 0) for task in handle.status().tasks] == [records] * len(TASKS)


def test_each_task_repeats_itself_in_another_process_after_it_was_killed(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    (elsewhere := tmp_path / "elsewhere").mkdir()
    folders: list[tuple[str, int, Path]] = []
    with _job(tmp_path, gate).start() as handle:
        handle.checkpoint(LIMIT_S)
        wait_until(lambda: handle.checkpoints()[-1].completed_ns is not None)
        records = 0
        for killed in (None, *TASKS):
            if killed:
                _kill(handle, killed)
            records += STEP
            gate.open_to(records)
            wait_until(partial(_all_counted, handle, records))
            for name in TASKS if killed is None else (killed,):
                folder = handle.capture(name, tmp_path / "records" / f"{records}", timeout=LIMIT_S)
                folders.append((name, records, folder))
        handle.stop(drain=False)
        result = handle.wait(LIMIT_S)
    assert {each.task for each in result.status.recoveries} == set(TASKS)
    gate.open_to(0)  # a replay reads no source
    reports = replays_elsewhere([folder for _, _, folder in folders], elsewhere)
    of_writer = next(folder for name, _, folder in folders if name == WRITER)
    assert _replayed(of_writer, elsewhere)["differing"] == 0, "its rows are compared with those of other processes"
    for (name, count, _), report in zip(folders, reports, strict=True):
        assert (report["task"], report["as_recorded"], report["records"]) == (name, True, count), report
        assert report["equal"] + report["not_compared"] == count
        assert name == WRITER or report["not_compared"] == 0
