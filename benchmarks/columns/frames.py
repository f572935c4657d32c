"""Benchmark: frames of windows by ``map_frames``, compared with a bare loop over ``groupby`` of pandas.

The job has everything on, without the fixed cost of a job. Both sides are compared by processor time of all processes.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Final

import pandas
import pyarrow
import pyarrow.parquet

from benchmarks.columns.measure import KEYS, RECORDS_EMPTY, cpu_s
from benchmarks.columns.one_run import COLUMNS, WINDOW_S, smoothed, write_records
from benchmarks.harness.ab_session import Session
from benchmarks.harness.isolated_run import ROOT
from benchmarks.harness.result_counter import WrongResult

RECORDS: Final = 5_000_000
RECORDS_QUICK: Final = 1_000_000
GOAL: Final = ">= 0.7"


def run(session: Session) -> None:
    """Measures both sides in turn."""
    count = session.events or (RECORDS_QUICK if session.is_quick else RECORDS)
    records, empty = write_records(ROOT / "build", count, KEYS), write_records(ROOT / "build", RECORDS_EMPTY, KEYS)
    fixed_s = statistics.median(cpu_s(empty, RECORDS_EMPTY, WINDOW_S, has_frames=True) for _ in range(3))
    bare_s, job_s = [], []
    for _ in range(session.pairs):
        bare_s.append(_loop_s(records, count))
        job_s.append(cpu_s(records, count, WINDOW_S, has_frames=True) - fixed_s)
    session.compared("frames/loop over groupby, per core", bare_s, job_s, GOAL)
    session.figure("a record in a frame, loop", statistics.median(bare_s) * 1e9 / count, "ns")
    session.figure("a record in a frame, job", statistics.median(job_s) * 1e9 / count, "ns")


def _loop_s(records: Path, count: int) -> float:
    """Reads the same files, and calls the same function with each group; returns the processor time."""
    begun_s = time.process_time()
    table = pyarrow.concat_tables(
        pyarrow.parquet.read_table(path, columns=list(COLUMNS), use_threads=False)
        for path in sorted(records.glob("*.parquet"))
    )
    frame = table.to_pandas(use_threads=False)
    groups = frame.groupby([frame["at"].dt.floor(f"{WINDOW_S}s"), "key"], sort=False)
    found = pyarrow.Table.from_pandas(pandas.concat([smoothed(group) for _, group in groups]), preserve_index=False)
    used_s = time.process_time() - begun_s
    if found.num_rows != count:
        raise WrongResult(f"the loop has {found.num_rows:,} rows, and {count:,} are expected")
    return used_s
