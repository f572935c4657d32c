"""Benchmark: a million keys with 500 bytes each, all written twice, compared with plain processes.

The changes of each second are stored, and sent to the standbys.
"""

from __future__ import annotations

import tempfile
from functools import partial

from benchmarks.baselines import bare_keyed
from benchmarks.harness.ab_session import Session
from benchmarks.measures.throughput import in_turn, record_core_rates, record_rates
from benchmarks.workloads import keyed_job
from benchmarks.workloads.keyed import LARGE_KEYS, LARGE_VALUE_BYTES, KeyedWorkload

KEYS_QUICK = 100_000
PAIRS_MAX = 3
"""A run is long, and long enough to be steady."""


def run(session: Session) -> None:
    """Measures both sides in turn."""
    if "bare" not in session.against:
        session.leave_out("large_state/bare", "it is compared with bare only")
        return
    keys = KEYS_QUICK if session.is_quick else LARGE_KEYS
    session.progress(f"{keys:,} keys, {keys * LARGE_VALUE_BYTES / 1e6:,.0f} MB")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        workload = KeyedWorkload(folder, "large_state", 2 * keys, keys)
        sides = partial(keyed_job.run, workload), partial(bare_keyed.run, workload)
        found = in_turn(session, "large_state/bare", *sides, pairs=min(session.pairs, PAIRS_MAX))
    record_rates(session, "large_state/bare", found, {})
    record_core_rates(session, "large_state/bare", found)
