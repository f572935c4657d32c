"""Queries in columns that keep some of the bids of each key: the last one, the highest ones."""

from __future__ import annotations

from typing import Any

from benchmarks.nexmark.jobs.columns import bids
from benchmarks.nexmark.jobs.house import BID_COLUMNS, House
from benchmarks.nexmark.jobs.rows_simple import TOP
from clonos import Stream

Result = Stream[Any]


def q18(house: House) -> Result:
    """Keeps the last bid of each bidder and auction."""
    chosen = bids(house, *BID_COLUMNS, is_timed=True).select(*BID_COLUMNS)
    return chosen.key_by("bidder", "auction").deduplicate(keep="last", name="last")


def q19(house: House) -> Result:
    """Keeps the ten highest bids of each auction; a change gives each rank that has changed, with the whole bid."""
    return bids(house, *BID_COLUMNS).select(*BID_COLUMNS).key_by("auction").top_k(TOP, "price", rank="rank", name="top")
