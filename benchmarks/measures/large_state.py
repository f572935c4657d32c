"""A million keys with 500 bytes each: all are written once, then once more all over, beside plain processes.

Everything on means here too that each second's changes are stored, and go to the standbys.
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
"""A run takes a while, and is long enough to be even."""


def run(session: Session) -> None:
    """Both sides in turn."""
    if "bare" not in session.against:
        session.leave_out("large_state/bare", "there is nothing but bare to compare it with")
        return
    keys = KEYS_QUICK if session.is_quick else LARGE_KEYS
    session.progress(f"{keys:,} keys, {keys * LARGE_VALUE_BYTES / 1e6:,.0f} MB")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        workload = KeyedWorkload(folder, "large_state", 2 * keys, keys)
        sides = partial(keyed_job.run, workload), partial(bare_keyed.run, workload)
        found = in_turn(session, "large_state/bare", *sides, pairs=min(session.pairs, PAIRS_MAX))
    record_rates(session, "large_state/bare", found, {})
    record_core_rates(session, "large_state/bare", found)
