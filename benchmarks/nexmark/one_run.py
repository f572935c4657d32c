"""Runs one query as a Clonos job, and prints what it cost: ``python -m benchmarks.nexmark.one_run {JSON}``.

The processor time is that of this process and of all processes that the job has started, from the start of the
interpreter on. Processes whose parent has ended become children of this one, so that none is missed.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clonos.io.system.collections_paused import collect_rarely, collections_paused

if TYPE_CHECKING:
    from benchmarks.nexmark.jobs.house import House

PR_SET_CHILD_SUBREAPER: Final = 36
REAP_S_MAX: Final = 20.0
SHAPES: Final = {
    "rows": ("rows_simple", "rows_joined", "rows_windows"),
    "columns": ("columns", "columns_joined", "columns_ranked", "columns_running"),
}
"""Modules of the jobs in each shape."""

OF_COLUMNS: Final = {"step_records_max": 1 << 17}
"""Options in columns: what a query takes of a step is often a small part of it."""


@dataclass(frozen=True)
class Run:
    """Request for one run. ``options``: of the job, besides those of all benchmarks."""

    query: str
    shape: str
    events: str
    folder: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """Cost of a run, and the files with its result."""

    cpu_s: float
    seconds: float
    parts: list[str]


def builder(query: str, shape: str) -> Callable[[House], Any]:
    """Returns the function that makes the job of a query in a shape."""
    modules = (import_module(f"benchmarks.nexmark.jobs.{name}") for name in SHAPES[shape])
    return next(getattr(module, query) for module in modules if hasattr(module, query))  # type: ignore[no-any-return]


def run_here(run: Run) -> list[Path]:
    """Runs the job; returns the files with its result."""
    collect_rarely()  # as ``clonos run`` does
    with collections_paused():
        from benchmarks.nexmark.jobs.house import House
        from benchmarks.nexmark.queries import QUERIES
        from benchmarks.nexmark.results import ResultSink
        from benchmarks.workloads.word_job import ALL_ON
        from clonos import Job

        make = builder(run.query, run.shape)
        job = Job(f"{run.query}-{run.shape}")
        sink = ResultSink(QUERIES[run.query], Path(run.folder))
        make(House(job, Path(run.events))).sink(sink, name="results")
    options = {**ALL_ON, **(OF_COLUMNS if run.shape == "columns" else {}), **run.options}
    job.run(slots="process", store=str(Path(run.folder) / "store"), overwrite=True, **options)
    return sink.parts


def main() -> None:
    """Runs what the argument says."""
    run = Run(**json.loads(sys.argv[1]))
    print_cost(lambda: run_here(run))


def print_cost(work: Callable[[], list[Path]]) -> None:
    """Does the work of this process, and prints its cost and the files with its result as the last line."""
    begun_s = time.monotonic()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    logging.getLogger("clonos").setLevel(logging.ERROR)
    parts = work()
    ended_s = time.monotonic()
    _reap(ended_s + REAP_S_MAX)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
    print(json.dumps(asdict(Cost(cpu_s, ended_s - begun_s, [str(part) for part in parts]))), flush=True)


def _reap(until_s: float) -> None:
    """Waits for all processes that are left: their processor time counts when they have ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        assert time.monotonic() < until_s, "the job has ended, but not all of its processes"
        if not pid:
            time.sleep(0.005)


if __name__ == "__main__":
    main()
