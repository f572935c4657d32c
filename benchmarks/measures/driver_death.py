"""Benchmark: the driver of a job on a server dies. Under load, by SIGKILL.

Measured is the longest time after the kill in which a task wrote no new row: none after all those before.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from benchmarks.workloads import served_job
from clonos.spark.java import has_java
from clonos_chaos.project.served.server_process import ServerFailed, ServerProcess

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
    server = ServerProcess(folder / "server", os.environ | {"PYTHONPATH": os.getcwd()})
    try:
        server.start()
        job_id = server.submit(Path(served_job.__file__), {"slots": slots})
        times = []
        for attempt in range(1, kills + 1):
            _wait(server, job_id, attempt)
            time.sleep(PAUSE_S)
            assert server.kill_driver(job_id), "it runs"
            killed_ns = time.monotonic_ns()
            _wait(server, job_id, attempt + 1)
            times.append(_silence_s(server.files_of(job_id), killed_ns))
        return times
    finally:
        server.close()


def _has_completed(server: ServerProcess, job_id: str, attempt: int) -> bool:
    """Returns whether the driver of this number has completed checkpoints."""
    try:
        found = server.get(f"/jobs/{job_id}")
        document: dict[str, Any] = server.get(f"/jobs/{job_id}/checkpoints")
    except ServerFailed:  # the driver is starting
        return False
    is_running = found["restarts"] == attempt - 1 and found["status"] == "RUNNING"
    return is_running and len(document["checkpoints"]) >= CHECKPOINTS


def _silence_s(folder: Path, killed_ns: int) -> float:
    """Returns the longest time after a kill in which a task wrote no new row."""
    longest_ns = 0
    paths = list(folder.glob(served_job.FILES))
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


def _wait(server: ServerProcess, job_id: str, attempt: int) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not _has_completed(server, job_id, attempt):
        if time.monotonic() > deadline_s:
            raise WrongResult(f"nothing came: {server.log_of(job_id)}")
        time.sleep(LOOK_EVERY_S)
