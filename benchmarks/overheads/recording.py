"""Benchmark: cost of recording every epoch of all tasks, by the same job with and without it.

A run in which epochs were given up is cheaper than it should be, so their number is a figure, too. The driver reads
and writes the epochs, so its processor time counts on both sides.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import Measured
from benchmarks.measures.throughput import in_turn, record_core_rates, record_rates, sized
from benchmarks.workloads import word_job, words
from clonos.io.epochs.record_parts import HEAD
from clonos.io.epochs.record_writer import GIVEN_UP

SECONDS: Final = 6.0
SHAPES: Final = ("rows", "columns")
GOAL: Final = ">= 0.95"
LIMIT: Final = "1GiB"


def run(session: Session) -> None:
    """Measures both shapes."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        words.prepare(folder)
        for shape in SHAPES:
            counts = Counter[str]()
            recorded = sized(session, folder, partial(_recorded, shape, counts), seconds_usual=SECONDS)
            plain = sized(session, folder, partial(_run, shape), seconds_usual=SECONDS)
            counts.clear()
            case = f"{shape}, recorded/not"
            found = in_turn(session, case, recorded, plain)
            record_rates(session, case, found, {case: GOAL})
            record_core_rates(session, case, found)
            session.figure(f"{shape}, epochs recorded", counts["recorded"], "epochs", ">= 1")
            session.figure(f"{shape}, epochs given up", counts["given up"], "epochs", "<= 0")
            session.figure(f"{shape}, bytes of the records", counts["bytes"] / session.pairs, "bytes a run")


class HeldLines(word_job.PreparedLines):
    """The same lines, which a process loads once: the driver opens a reader for each epoch, and lines in memory are no
    cost of the recording."""

    def reader(self) -> HeldReader:
        """Makes the reader of a share."""
        return HeldReader(self.workload, self.is_columnar)


class HeldReader(word_job.LineReader):
    """Reader whose share stays in the memory of its process."""

    def lines_of(self, split: bytes) -> Callable[[int, int], Any]:
        """Returns the lines that were loaded before."""
        return _after(self._workload, int(split), self._is_columnar)


@cache
def _after(workload: words.Workload, reader: int, is_columnar: bool) -> Callable[[int, int], Any]:
    share = workload.share(reader)
    return share.columns().after if is_columnar else share.after


def _run(shape: str, workload: words.Workload, **options: Any) -> Measured:
    """Runs the job, and adds the processor time of the driver, which is in this process."""
    begun_s = time.process_time()
    found = word_job.run(workload, shape, source=HeldLines(workload, shape == "columns"), **options)
    return replace(found, read_cpu_s=found.read_cpu_s + time.process_time() - begun_s)


def _recorded(shape: str, counts: Counter[str], workload: words.Workload) -> Measured:
    """Runs the job with all its tasks recorded. ``counts``: gets the epochs and the bytes."""
    root = Path(workload.folder) / "recorded"
    try:
        found = _run(shape, workload, record="all", record_folder=str(root), record_limit=LIMIT)
        counts["recorded"] += sum(1 for _ in root.glob(f"*/*/{HEAD}"))
        counts["given up"] += sum(len(file.read_bytes().splitlines()) for file in root.glob(f"*/{GIVEN_UP}"))
        counts["bytes"] += sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return found
