"""Benchmark: from the command to the first visible row, on process slots and on Spark beside Spark's own start."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from clonos.spark.java import has_java

STARTS: Final = 5
LIMIT_S: Final = 180.0
LOOK_EVERY_S: Final = 0.005
MASTER: Final = "local-cluster[2,4,1024]"

JOB: Final = """
from clonos import Job, files

job = Job("start", parallelism=2)
words = job.source(files.lines("in/*.txt", {watch})).flat_map(str.split).key_by(lambda word: word)
words.count().sink(files.jsonl("out"))
"""

BARE_SPARK: Final = f"""
from pyspark.sql import SparkSession

session = (
    SparkSession.builder.master("{MASTER}").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").getOrCreate()
)
assert session.sparkContext.parallelize([1], 1).map(lambda n: n + 1).collect() == [2]
open("done", "w").close()
session.stop()
"""


def run(session: Session) -> None:
    """Measures each start several times."""
    starts = 1 if session.is_quick else STARTS
    on_processes = ("-m", "clonos.cli", "run", "job.py", "--slots", "process")
    in_dev = ("-m", "clonos.cli", "dev", "job.py", "--runs", "1")
    _measure(session, "process slots, input that ends", "", on_processes, _has_row, starts, "<= 1.5")
    _measure(session, "process slots, watched files", 'watch="1s"', on_processes, _has_row, starts, "<= 1.5")
    _measure(session, "clonos dev", "", in_dev, _has_preview, starts, "<= 1.5")
    if not has_java():
        session.leave_out("first row on Spark", "there is no Java")
        return
    starts = 1 if session.is_quick else max(2, STARTS // 2)
    _measure(session, "bare Spark: session and first task", "", ("bare.py",), _is_done, starts, "")
    on_spark = ("-m", "clonos.cli", "run", "job.py", "--master", MASTER)
    _measure(session, "Spark", 'watch="1s"', on_spark, _has_row, starts, "<= 12")


def _measure(
    session: Session,
    name: str,
    watch: str,
    arguments: tuple[str, ...],
    is_there: Callable[[Path], bool],
    starts: int,
    goal: str,
) -> None:
    times = [_start(watch, arguments, is_there) for _ in range(starts)]
    session.figure(f"first row, {name}", min(seconds for seconds, _ in times), "s, best", goal)
    session.figure(f"first row, {name}, median", statistics.median(seconds for seconds, _ in times), "s")
    if "--slots" in arguments or "dev" in arguments:  # nobody waits for a JVM, so its processor time is unknown
        session.figure(f"processor, {name}", statistics.median(used for _, used in times), "s, to the end")


def _start(watch: str, arguments: tuple[str, ...], is_there: Callable[[Path], bool]) -> tuple[float, float]:
    """Returns the seconds from the start of a command to its first row, and its processor time with all children."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "in" / "words.txt").write_text("to be or not to be\n", "utf-8")
        (folder / "job.py").write_text(JOB.format(watch=watch), "utf-8")
        (folder / "bare.py").write_text(BARE_SPARK, "utf-8")
        with (folder / "errors.txt").open("w") as errors:
            begun_s = time.monotonic()
            process = subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=errors, stderr=errors)
            while not is_there(folder):
                if process.poll() is not None or time.monotonic() - begun_s > LIMIT_S:
                    process.kill()
                    raise WrongResult(f"no row came: {(folder / 'errors.txt').read_text('utf-8')}")
                time.sleep(LOOK_EVERY_S)
            seconds = time.monotonic() - begun_s
            if watch:
                process.terminate()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise WrongResult((folder / "errors.txt").read_text("utf-8"))
    return seconds, used.ru_utime + used.ru_stime


def _has_row(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.glob("out/*.jsonl"))


def _has_preview(folder: Path) -> bool:
    return "preview" in (folder / "errors.txt").read_text("utf-8")


def _is_done(folder: Path) -> bool:
    return (folder / "done").exists()
