"""Queries in columns, as far as there are columnar steps for them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.generator import BID
from benchmarks.nexmark.jobs.house import House
from benchmarks.nexmark.jobs.rows_windows import most
from clonos import Session, Sliding, Stream, Tumbling, col, lit, when

Result = Stream[Any]

RATE: Final = Decimal("0.908")
PRICE_MIN, PRICE_MAX = 1_000_000, 50_000_000
PLAIN: Final = ("auction", "bidder", "price", "date_time", "extra")


def bids(house: House, *columns: str, is_timed: bool = False) -> Result:
    """Selects the bids, with their kind."""
    return house.events(*columns, is_timed=is_timed).filter(col("kind") == BID, name="bids")


def q0(house: House) -> Result:
    """Passes bids on."""
    return bids(house, *PLAIN).select(*PLAIN)


def q1(house: House) -> Result:
    """Converts prices."""
    return bids(house, *PLAIN).select("auction", "bidder", lit(RATE) * col("price"), "date_time", "extra")


def q2(house: House) -> Result:
    """Selects the bids for some auctions."""
    return bids(house, "auction", "price").filter(col("auction") % 123 == 0).select("auction", "price")


def q14(house: House) -> Result:
    """Computes columns of bids in a range of prices."""
    price, hour = (lit(RATE) * col("price")).alias("price"), col("date_time").dt.hour()
    part = (
        when(hour.is_between(8, 18))
        .then(lit("dayTime"))
        .when((hour <= 6) | (hour >= 20))
        .then(lit("nightTime"))
        .otherwise(lit("otherTime"))
    )
    letters = col("extra").str
    count = letters.len_chars() - letters.replace_all("c", "", literal=True).str.len_chars()
    return (
        bids(house, *PLAIN)
        .filter((price > PRICE_MIN) & (price < PRICE_MAX), name="in_range")
        .select("auction", "bidder", price, part.alias("part"), "date_time", "extra", count.alias("c_counts"))
    )


def q22(house: House) -> Result:
    """Splits URLs."""
    return bids(house, "auction", "bidder", "price", "channel", "url").map_batches(directories)


def directories(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns bids with the directories of their URLs."""
    parts = pc.split_pattern(batch.column("url"), "/", max_splits=6)
    plain = {name: batch.column(name) for name in ("auction", "bidder", "price", "channel")}
    return pa.record_batch(plain | {f"dir{place - 2}": pc.list_element(parts, place) for place in (3, 4, 5)})


def q5(house: House) -> Result:
    """Finds the auctions with the most bids of the last ten seconds, every two seconds."""
    counts = bids(house, "auction", is_timed=True).key_by("auction").window(Sliding("10s", every="2s")).count()
    return counts.window(Tumbling("2s")).apply(most, name="most")


def q11(house: House) -> Result:
    """Counts the bids of each session of a bidder."""
    sessions = bids(house, "bidder", is_timed=True).key_by("bidder").window(Session("10s")).count()
    return sessions.map(lambda session: (session.key, session.value, session.start, session.end))


def q12(house: House) -> Result:
    """Counts the bids of each bidder per ten seconds of the clock."""
    windows = bids(house, "bidder").key_by("bidder").window(Tumbling("10s", time="processing")).count()
    return windows.map(lambda window: (window.key, window.value))


JOIN: Final = "there is no join of streams of columns yet"
RUNNING: Final = "there is no columnar form of these running aggregates yet"

NOT_YET: Final = {
    "q3": JOIN,
    "q4": JOIN,
    "q7": "there is no columnar aggregate that keeps whole rows in windows yet",
    "q8": JOIN,
    "q9": JOIN,
    "q16": RUNNING,
    "q17": RUNNING,
    "q18": "there is no columnar form of the last record of a key yet",
    "q19": "there is no columnar top_k yet",
    "q20": JOIN,
}
