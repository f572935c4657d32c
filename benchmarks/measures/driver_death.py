"""Benchmark: the driver of a job on a server dies. Under load, by SIGKILL.

Measured is the longest time after the kill in which a task wrote no new row: none behind all those before.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from benchmarks.workloads import served_job
from clonos.cli.server_client import ServerClient
from clonos.core.model.errors import ClonosError
from clonos.server.supervision.job_folder import JobFolder
from clonos.spark.java import has_java
from clonos_chaos.real.server_process import ServerProcess

KILLS: Final = 5
KILLS_ON_SPARK: Final = 2
LIMIT_S: Final = 120.0
LOOK_EVERY_S: Final = 0.002
CHECKPOINTS: Final = 2
PAUSE_S: Final = 5.0
"""Seconds in which the server starts its next spare driver."""


def run(session: Session) -> None:
    """Kills the driver several times."""
    _measure(session, "process", 2 if session.is_quick else KILLS, "<= 3")
    if not has_java():
        session.leave_out("driver killed on Spark", "there is no Java")
    elif not session.is_quick:
        _measure(session, "spark", KILLS_ON_SPARK, "<= 15")


def _measure(session: Session, slots: str, kills: int, goal: str) -> None:
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        times = _served(Path(name), slots, kills)
    session.figure(f"driver killed, silence of the output, {slots} slots", statistics.median(times), "s, median", goal)
    session.figure(f"driver killed, silence of the output, {slots} slots, worst", max(times), "s")


def _served(folder: Path, slots: str, kills: int) -> list[float]:
    """Returns the seconds of each kill."""
    server = ServerProcess(folder, os.environ | {"PYTHONPATH": os.getcwd()})
    try:
        job_id = str(server.client.submit(Path(served_job.__file__), None, {"slots": slots})["id"])
        jobs = server.folder_of(job_id)
        times = []
        for attempt in range(1, kills + 1):
            _wait(partial(_has_completed, server.client, job_id, attempt), jobs)
            time.sleep(PAUSE_S)
            killed_ns = _kill(jobs)
            _wait(partial(_has_completed, server.client, job_id, attempt + 1), jobs)
            times.append(_silence_s(jobs, killed_ns))
        return times
    finally:
        server.close()


def _has_completed(client: ServerClient, job_id: str, attempt: int) -> bool:
    """Returns whether the driver of this number has completed checkpoints."""
    try:
        found = client.get(f"/jobs/{job_id}")
        document: dict[str, Any] = client.get(f"/jobs/{job_id}/checkpoints")
    except ClonosError:  # the driver is starting
        return False
    is_running = found["restarts"] == attempt - 1 and found["status"] == "RUNNING"
    return is_running and len(document["checkpoints"]) >= CHECKPOINTS


def _kill(jobs: JobFolder) -> int:
    """Kills the driver; returns when."""
    driver = jobs.read_driver()
    assert driver is not None, "it runs"
    os.kill(driver.pid, signal.SIGKILL)
    return time.monotonic_ns()


def _silence_s(jobs: JobFolder, killed_ns: int) -> float:
    """Returns the longest time after a kill in which a task wrote no new row."""
    longest_ns = 0
    paths = list(jobs.files.glob(served_job.FILES))
    if not paths:
        raise WrongResult("the job has no output")
    for path in paths:
        highest, last_ns = 0, killed_ns
        for end, _, at_ns in served_job.entries(path):
            if end > highest:
                highest = end
                if at_ns > killed_ns:
                    longest_ns = max(longest_ns, at_ns - last_ns)
                    last_ns = at_ns
    return longest_ns / 1e9


def _wait(is_done: Callable[[], object], jobs: JobFolder) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not is_done():
        if time.monotonic() > deadline_s:
            raise WrongResult(f"nothing came: {jobs.log.read_text('utf-8')}")
        time.sleep(LOOK_EVERY_S)
