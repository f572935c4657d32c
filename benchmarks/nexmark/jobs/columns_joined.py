"""Queries in columns that join two kinds of events."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.nexmark.jobs.house import BID_COLUMNS, House
from benchmarks.nexmark.jobs.rows_joined import AUCTION_COLUMNS, CATEGORY, LONG, STATES
from benchmarks.nexmark.queries import AUCTION, BID, PERSON
from clonos import Stream, Tumbling, changes, col
from clonos.agg import first, max_, sum_

Result = Stream[Any]

APART: Final = ("-400s", "30s")
"""Bounds of the time from a bid to its auction, at 10 events per second or more."""
LONGEST: Final = "400s"
"""Length of the longest auction, at 10 events per second or more."""
PRICE_UNIT: Final = 1 << 33
"""Number of milliseconds, in front of which a difference of prices goes: 99 days."""


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


def in_time(house: House, auction_columns: tuple[str, ...], bid_columns: tuple[str, ...]) -> Result:
    """Joins auctions with the bids that came while they were open."""
    names = dict.fromkeys(("auction_id", "expires", "auction", *auction_columns, *bid_columns))
    events = house.events(*names, is_timed=True)
    auctions = events.filter(col("kind") == AUCTION, name="auctions")
    opened = auctions.select("auction_id", "date_time", "expires", *auction_columns)
    bids = events.filter(col("kind") == BID, name="bids").select("auction", "date_time", *bid_columns)
    pairs = opened.join(bids, on=("auction_id", "auction"), between=(0, LONGEST), name="in_time")
    return pairs.filter(col("date_time_right") <= col("expires"), name="open")


def q4(house: House) -> Result:
    """Averages the winning prices of each category."""
    prices = in_time(house, ("category",), ("price",)).select("auction_id", "category", "price", "join_time")
    highest = prices.key_by("auction_id", name="by_auction").aggregate(
        category=first("category"), price=max_("price"), emit=changes(before=True), name="highest"
    )
    raised = highest.filter(col("price_before").is_null() | (col("price") > col("price_before")), name="raised").select(
        "category", opened=col("price_before").is_null(), raise_=col("price") - col("price_before").fill_null(0)
    )
    totals = raised.key_by("category", name="by_category").aggregate(
        auctions=sum_("opened"), total=sum_("raise_"), emit=changes(), name="totals", parallelism=1
    )
    return totals.select("category", average=col("total") // col("auctions"), parallelism=1)


def q9(house: House) -> Result:
    """Gives the winning bid of each auction."""
    pairs = in_time(house, ("item_name", "seller", "category"), ("bidder", "price", "extra"))
    waited = col("date_time_right").dt.epoch("ms") - col("date_time").dt.epoch("ms")
    bids = pairs.with_columns(order=col("price") * PRICE_UNIT - waited, name="ordered")
    winning = bids.key_by("auction_id", name="by_auction").top_k(1, "order", rank="rank", name="winning")
    columns = ("auction_id", "item_name", "seller", "category", "bidder", "price", "date_time_right", "extra")
    return winning.select(*columns)
