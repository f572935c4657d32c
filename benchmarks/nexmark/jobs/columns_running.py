"""Queries with running results in columns: one change a key and batch."""

from __future__ import annotations

from typing import Any

from benchmarks.nexmark.jobs.columns import bids
from benchmarks.nexmark.jobs.house import House
from benchmarks.nexmark.jobs.rows_simple import HIGH, LOW
from clonos import Stream, changes, col
from clonos.agg import count, max_, min_, sum_

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
