"""Benchmark: bids as in Nexmark with a running aggregate per auction, compared with plain processes."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Final

from benchmarks.baselines import bare_keyed
from benchmarks.harness.ab_session import Session
from benchmarks.measures.throughput import in_turn, record_core_rates, record_rates, sized_of
from benchmarks.workloads import keyed_job
from benchmarks.workloads.keyed import KeyedWorkload

RECORDS_FIRST = 5e5
GOALS: Final = {"bids/bare": ">= 0.70", "bids in columns/bare": ">= 3"}
SECONDS = 2.5


def run(session: Session) -> None:
    """Measures both sides in turn."""
    against_bare(session, "bids", RECORDS_FIRST)
    against_bare(session, "bids", RECORDS_FIRST, "columns")


def against_bare(session: Session, kind: str, records_first: float, shape: str = "rows") -> None:
    """Measures a keyed workload and plain processes on rows in turn. ``shape``: that of the job."""
    title = kind if shape == "rows" else f"{kind} in {shape}"
    name = f"{title}/bare"
    if "bare" not in session.against:
        session.leave_out(name, "it is compared with bare only")
        return
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        workload = KeyedWorkload(folder, kind, 0)
        job = sized_of(session, workload, partial(keyed_job.run, shape=shape), records_first, SECONDS)
        limit = sized_of(session, workload, bare_keyed.run, records_first, SECONDS)
        found = in_turn(session, name, job, limit)
        record_rates(session, name, found, GOALS)
        record_core_rates(session, name, found)
        bytes_each = max(run.determinant_bytes / run.words for run in found[0])
        session.figure(f"{title}, determinants", bytes_each, "bytes a record")
