"""Benchmark: bids enriched by a recorded call each, aggregated by auction, compared with plain processes."""

from __future__ import annotations

from benchmarks.harness.ab_session import Session
from benchmarks.measures.bids import against_bare

RECORDS_FIRST = 1e5


def run(session: Session) -> None:
    """Measures both sides in turn. Plain processes make the same call, but do not record it."""
    against_bare(session, "enrichment", RECORDS_FIRST)
