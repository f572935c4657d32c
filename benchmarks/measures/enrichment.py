"""Bids whose bidders are looked up by a recorded call each, then an aggregate by auction, beside plain processes."""

from __future__ import annotations

from benchmarks.harness.ab_session import Session
from benchmarks.measures.bids import against_bare

RECORDS_FIRST = 1e5


def run(session: Session) -> None:
    """Both sides in turn. Plain processes ask, and keep nothing of the answer."""
    against_bare(session, "enrichment", RECORDS_FIRST)
