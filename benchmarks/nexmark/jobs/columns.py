"""Queries in columns, as far as there are columnar steps for them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.jobs.house import House, Row
from benchmarks.nexmark.queries import BID
from clonos import Session, Sliding, Stream, Tumbling, Window, col, lit, when

Result = Stream[Any]

RATE: Final = Decimal("0.908")
PRICE_MIN, PRICE_MAX = 1_000_000, 50_000_000
WINDOW_MS: Final = 10_000
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
    windows = bids(house, "auction", is_timed=True).key_by("auction").window(Sliding("10s", every="2s"))
    highest = windows.count(name="counts").map_batches(most_of_batch, name="most_of_batch")
    return highest.window(Tumbling("2s")).apply(most, name="most")


def most_of_batch(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Drops the counts that are not the highest of their window in this batch, so that few are left to compare."""
    return highest_of(counts, counts.column("end").cast(pa.int64()).to_numpy(), "value")


def highest_of(batch: pa.RecordBatch, windows: np.ndarray[Any, Any], name: str) -> pa.RecordBatch:
    """Returns the rows with the highest value of their window."""
    values = batch.column(name).to_numpy()
    if windows.min() == windows.max():
        return batch.filter(pa.array(values == values.max())).replace_schema_metadata(None)
    distinct, at = np.unique(windows, return_inverse=True)
    highest = np.zeros(len(distinct), values.dtype)
    np.maximum.at(highest, at, values)
    return batch.filter(pa.array(values == highest[at])).replace_schema_metadata(None)  # dicts, no WindowResults


def most(_: None, window: Window, counts: list[Row]) -> Iterable[tuple[int, int]]:
    """Returns the auctions with the most bids of a window."""
    highest = max(count["value"] for count in counts)
    return [(count["auction"], count["value"]) for count in counts if count["value"] == highest]


def q7(house: House) -> Result:
    """Finds the highest bids of each ten seconds."""
    highest = bids(house, *PLAIN, is_timed=True).map_batches(dearest_of_batch, name="dearest_of_batch")
    return highest.window(Tumbling("10s")).apply(dearest, name="dearest")


def dearest_of_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drops the bids that are not the highest of their window in this batch, so that few are left to compare."""
    return highest_of(batch, batch.column("date_time").cast(pa.int64()).to_numpy() // WINDOW_MS, "price")


def dearest(_: None, window: Window, bids: list[Row]) -> Iterable[tuple[Any, ...]]:
    """Returns the highest bids of a window."""
    highest = max(bid["price"] for bid in bids)
    names = ("auction", "price", "bidder", "date_time", "extra")
    return [tuple(bid[name] for name in names) for bid in bids if bid["price"] == highest]


def q11(house: House) -> Result:
    """Counts the bids of each session of a bidder."""
    sessions = bids(house, "bidder", is_timed=True).key_by("bidder").window(Session("10s")).count()
    return sessions.select("bidder", "value", "start", "end")


def q12(house: House) -> Result:
    """Counts the bids of each bidder per ten seconds of the clock."""
    windows = bids(house, "bidder").key_by("bidder").window(Tumbling("10s", time="processing")).count()
    return windows.select("bidder", "value")


ROWS_BEHIND: Final = {
    **dict.fromkeys(("q5", "q7"), "columns up to the highest of each batch, the last window works on rows"),
}
"""Queries whose later steps work on rows."""
