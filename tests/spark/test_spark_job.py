"""Whole jobs on Spark: on a user's own session, and with each kind of task killed in mid-epoch."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from clonos.api.windows import Tumbling
from clonos.connectors import collect, files, sqlite, values
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.core.model.errors import JobError
from clonos.demo.kills import executor_pids, is_live
from clonos.job import Handle, Job
from clonos.operators.windows.window_results import WindowResult
from clonos.status import Status, TaskState
from clonos_services import random
from clonos_services.logger import logger
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.timed_job import TimedJob, check
from tests.speed import scaled

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

LIMIT_S = scaled(60.0)
KEYS = 5


class Drawing:
    """read -> draw a number for each record -> by key in windows -> files; and each draw, at once, into a table."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.gate = Gate(folder / "gate")
        self.job = Job("drawing", store=folder / "store", checkpoint_every="500ms", **options)
        drawn = self.job.source(GatedNumbers(self.gate), name="read").map(draw)
        drawn.key_by(lambda row: row["n"] % KEYS).window(Tumbling("200ms")).aggregate(
            list, lambda rows, row: rows.append((row["n"], row["draw"])), name="window"
        ).map(flat).sink(files.jsonl(folder / "windows"))
        drawn.rebalance().map(lambda row: row, name="table").sink(
            sqlite(folder / "table.db", "drawn", {"n": "INTEGER", "draw": "INTEGER"})
        )

    def check(self, count: int) -> None:
        """Checks that each number is once in both outputs, with one draw."""
        with closing(sqlite3.connect(self.folder / "table.db")) as connection:
            stored = sorted(connection.execute("SELECT n, draw FROM drawn"))
        counted = sorted(tuple(pair) for row in files.read_committed(self.folder / "windows") for pair in row["rows"])
        assert [number for number, _ in stored] == list(range(count))
        assert counted == stored


def draw(number: int) -> dict[str, int]:
    return {"n": number, "draw": random.getrandbits(30)}


def talk(number: int) -> int:
    print("printed", number)
    logging.getLogger("talk").warning("logged %d", number)
    logger.warning("causal", n=number)
    return number


def flat(window: WindowResult[int, list[tuple[int, int]]]) -> dict[str, Any]:
    return {"key": window.key, "rows": window.value}


def _await(handle: Handle, condition: Any) -> Status:
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        status = handle.status()
        if condition(status):
            return status
        waiting.wait(0.02)
    raise AssertionError(handle.status())


def _is_whole(status: Status) -> bool:
    """Whether all tasks are live with standbys, and the table's tasks have keepers, without which they must not die."""
    held = [task.keepers for task in status.tasks if task.name.startswith("table")]
    return is_live(status) and all(task.standbys for task in status.tasks) and all(held)


def _has_recovered(status: Status, victim: TaskState) -> bool:
    failed = {(one.task, one.failed_incarnation) for one in status.recoveries}
    return (victim.name, victim.incarnation) in failed and is_live(status)


def test_a_job_runs_on_the_users_own_session_which_stays_open(context: SparkContext, tmp_path: Path) -> None:
    session = SparkSession(context)
    job, output = Job("squares", parallelism=2, store=tmp_path / "store"), collect()
    job.source(values(range(500))).map(lambda number: number * number).sink(output)
    assert job.run(spark=session).ending is Ending.FINISHED
    assert sorted(output.rows) == [number * number for number in range(500)]
    assert context.parallelize([1, 2, 3], 1).sum() == 6


def _seed(number: int) -> str:
    return os.environ["PYTHONHASHSEED"]  # clonos: ok the test compares the seeds of processes


def test_printed_and_logged_lines_of_user_code_on_executors_reach_the_terminal_with_its_task(
    context: SparkContext, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    job = Job("talking", store=tmp_path / "store")
    job.source(values(range(3))).map(talk, name="talk").sink(collect())
    job.run(spark=context)
    errors = capsys.readouterr().err.splitlines()
    assert [line for line in errors if line.startswith("[talk/0]")] == [f"[talk/0] printed {n}" for n in range(3)]
    assert [m for m in caplog.messages if "logged" in m] == [f"talk/0: logged {n}" for n in range(3)]
    assert [m for m in caplog.messages if "causal" in m] == [f"talk/0: causal n={n}" for n in range(3)]


def test_a_users_own_session_stays_unchanged_and_its_open_ports_are_warned_of(
    context: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(context.environment, "PYTHONHASHSEED", "0")
    monkeypatch.setattr(context, "getConf", lambda: SparkConf(loadDefaults=False))
    job, output = Job("seeds", parallelism=2, store=tmp_path / "store"), collect()
    job.source(values(range(10))).map(_seed).sink(output)
    assert job.run(spark=context).ending is Ending.FINISHED
    assert output.rows == ["0"] * 10
    assert "hash seed 0" in caplog.text
    assert "has no spark.authenticate" in caplog.text


def test_a_session_whose_workers_have_different_hash_seeds_is_refused(
    context: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(context.environment, "PYTHONHASHSEED", "random")
    job = Job("seeds", store=tmp_path / "store")
    job.source(values(range(10))).sink(collect())
    with pytest.raises(JobError, match="PYTHONHASHSEED=random"):
        job.run(spark=context)


@pytest.mark.timeout(150)
def test_all_outputs_agree_after_a_source_a_window_and_a_sink_died_in_mid_epoch(
    context: SparkContext, tmp_path: Path
) -> None:
    drawing = Drawing(tmp_path, spare_slots=2)
    reach = 0
    with drawing.job.start(spark=context) as handle:
        status = _await(handle, _is_whole)
        for step in ("read", "window", "table"):
            status = _await(handle, _is_whole)
            reach += 200
            drawing.gate.open_to(reach)
            victim = next(task for task in status.tasks if task.name.startswith(step))
            healthy = {task.name: task.incarnation for task in status.tasks if task.pid != victim.pid}
            os.kill(victim.pid, signal.SIGKILL)
            status = _await(handle, lambda now, victim=victim: _has_recovered(now, victim))
            after = {task.name: task.incarnation for task in status.tasks}
            assert after[victim.name] > victim.incarnation
            assert {name: after[name] for name in healthy} == healthy
        drawing.gate.end(reach + 200)
        result = handle.wait(LIMIT_S)
    drawing.check(reach + 200)
    assert result.status.generation == status.generation, "no death here needs a rollback"


@pytest.mark.timeout(150)
def test_all_outputs_agree_after_a_whole_executor_died(context: SparkContext, tmp_path: Path) -> None:
    drawing = Drawing(tmp_path, spare_slots=2)
    with drawing.job.start(spark=context) as handle:
        status = _await(handle, _is_whole)
        drawing.gate.open_to(300)
        domain = next(task.domain for task in status.tasks if task.name.startswith("window"))
        (executor,) = executor_pids([slot.pid for slot in status.slots if slot.domain == domain])
        os.kill(executor, signal.SIGKILL)
        _await(handle, lambda now: now.recoveries and is_live(now))
        drawing.gate.end(600)
        result = handle.wait(LIMIT_S)
    drawing.check(600)
    assert result.status.generation == status.generation, "no death here needs a rollback"


@pytest.mark.timeout(150)
def test_windows_joins_and_sessions_equal_their_twin_after_tasks_and_an_executor_died(
    context: SparkContext, tmp_path: Path
) -> None:
    timed = TimedJob(Job("timed", store=tmp_path / "store", checkpoint_every="300ms", spare_slots=2), tmp_path)
    with timed.job.start(spark=context) as handle:
        for step in ("window", "join", "session"):
            status = _await(handle, _is_whole)
            timed.advance()
            _await(handle, lambda now, done=status.checkpoint: now.checkpoint > done)
            timed.advance()
            victim = next(task for task in status.tasks if task.name.startswith(step))
            os.kill(victim.pid, signal.SIGKILL)
            _await(handle, lambda now, victim=victim: _has_recovered(now, victim))
        status = _await(handle, _is_whole)
        timed.advance()
        domain = next(task.domain for task in status.tasks if task.name.startswith("join"))
        (executor,) = executor_pids([slot.pid for slot in status.slots if slot.domain == domain])
        known = len(status.recoveries)
        os.kill(executor, signal.SIGKILL)
        _await(handle, lambda now: len(now.recoveries) > known and is_live(now))
        timed.end()
        result = handle.wait(LIMIT_S)
    check(timed.outputs(), timed.reach)
    assert result.status.generation == status.generation, "no death here needs a rollback"
