"""Queries with running results in columns: one change a key and batch."""

from __future__ import annotations

from typing import Any

from benchmarks.nexmark.jobs.columns import bids
from benchmarks.nexmark.jobs.house import House
from benchmarks.nexmark.jobs.rows_simple import HIGH, LOW
from clonos import Expr, Stream, changes, col, concat_str, lit, when
from clonos.agg import count, count_distinct, max_, min_, sum_

Result = Stream[Any]


def q17(house: House) -> Result:
    """Gives statistics of each auction and day."""
    price = col("price")
    priced = bids(house, "auction", "price", "date_time").select(
        "auction",
        "price",
        day=col("date_time").dt.epoch("d").cast("int32"),
        low=price < LOW,
        middle=price.is_between(LOW, HIGH, closed="left"),
        high=price >= HIGH,
    )
    totals = priced.key_by("auction", "day").aggregate(
        n=count(),
        low=sum_("low"),
        middle=sum_("middle"),
        high=sum_("high"),
        least=min_("price"),
        most=max_("price"),
        total=sum_("price"),
        emit=changes(),
        name="totals",
    )
    day, average = col("day").cast("date32").cast(str), (col("total") // col("n")).alias("average")
    return totals.select("auction", day, "n", "low", "middle", "high", "least", "most", average, "total")


def q16(house: House) -> Result:
    """Gives statistics of each channel and day: bids, and distinct bidders and auctions, by rank of the price."""
    price, bidder, auction = col("price"), col("bidder"), col("auction")
    ranks = {"rank1": price < LOW, "rank2": price.is_between(LOW, HIGH, closed="left"), "rank3": price >= HIGH}
    parts: dict[str, Any] = {f"{name}_bids": condition for name, condition in ranks.items()}
    parts |= {f"{name}_bidder": when(condition).then(bidder) for name, condition in ranks.items()}
    parts |= {f"{name}_auction": when(condition).then(auction) for name, condition in ranks.items()}
    counted: dict[str, Any] = {f"{name}_bids": sum_(f"{name}_bids") for name in ranks}
    counted |= {"total_bidders": count_distinct("bidder")}
    counted |= {f"{name}_bidders": count_distinct(f"{name}_bidder") for name in ranks}
    counted |= {"total_auctions": count_distinct("auction")}
    counted |= {f"{name}_auctions": count_distinct(f"{name}_auction") for name in ranks}
    ranked = bids(house, "auction", "bidder", "price", "channel", "date_time").select(
        "channel",
        "bidder",
        "auction",
        day=col("date_time").dt.epoch("d").cast("int32"),
        minute=col("date_time").dt.truncate("1m"),
        **parts,
    )
    totals = ranked.key_by("channel", "day").aggregate(
        minute=max_("minute"), total_bids=count(), **counted, emit=changes(), name="totals"
    )
    minute = concat_str(_two_digits(col("minute").dt.hour()), lit(":"), _two_digits(col("minute").dt.minute()))
    day = col("day").cast("date32").cast(str)
    return totals.select("channel", day, minute.alias("minute"), "total_bids", *counted)


def _two_digits(number: Expr) -> Expr:
    return when(number < 10).then(concat_str(lit("0"), number)).otherwise(number.cast(str))
