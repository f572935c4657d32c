"""Queries in columns that join two kinds of events."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.nexmark.generator import AUCTION, BID, PERSON
from benchmarks.nexmark.jobs.house import BID_COLUMNS, House
from benchmarks.nexmark.jobs.rows_joined import AUCTION_COLUMNS, CATEGORY, LONG, STATES
from clonos import Stream, Tumbling, col

Result = Stream[Any]

APART: Final = ("-400s", "30s")
"""Bounds of the time from a bid to its auction, at 10 events per second or more."""


def q3(house: House) -> Result:
    """Joins auctions of a category with sellers of some states."""
    events = house.events("id", "name", "city", "state", "auction_id", "seller", "category")
    auctions = events.filter(col("category") == CATEGORY, name="auctions").select("seller", "auction_id")
    persons = events.filter(col("state").is_in(sorted(STATES)), name="persons").select("id", "name", "city", "state")
    sold = auctions.join(persons, on=("seller", "id"), ttl=LONG, name="sold")
    return sold.select("name", "city", "state", "auction_id")


def q8(house: House) -> Result:
    """Gives the persons that have opened auctions in the ten seconds in which they came."""
    events = house.events("id", "name", "seller", is_timed=True)
    persons = events.filter(col("kind") == PERSON, name="persons").select("id", "name", "date_time")
    auctions = events.filter(col("kind") == AUCTION, name="auctions").select("seller", "date_time")
    sellers = persons.join(auctions, on=("id", "seller"), window=Tumbling("10s"), how="semi", name="sellers")
    return sellers.select("id", "name", begins=col("date_time").dt.truncate("10s"))


def q20(house: House) -> Result:
    """Joins bids with their auctions of a category."""
    names = dict.fromkeys(("auction_id", *AUCTION_COLUMNS, *BID_COLUMNS))
    events = house.events(*names, is_timed=True)
    is_wanted = (col("kind") == AUCTION) & (col("category") == CATEGORY)
    auctions = events.filter(is_wanted, name="auctions").select("auction_id", *AUCTION_COLUMNS)
    bids = events.filter(col("kind") == BID, name="bids").select(*BID_COLUMNS)
    expanded = bids.join(auctions, on=("auction", "auction_id"), between=APART, name="expanded")
    of_auction = [f"{name}_right" if name in BID_COLUMNS else name for name in AUCTION_COLUMNS]
    return expanded.select(*BID_COLUMNS, *of_auction)
