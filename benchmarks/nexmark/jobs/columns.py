"""Queries in columns, as far as there are columnar steps for them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.generator import BID
from benchmarks.nexmark.jobs.house import House
from benchmarks.nexmark.jobs.rows_windows import most
from clonos import Session, Sliding, Stream, Tumbling

Result = Stream[Any]

RATE: Final = pa.scalar(Decimal("0.908"))
WHOLE: Final = pa.decimal128(19, 0)
PRICE_MIN: Final = pa.scalar(Decimal("1000000.000"), pa.decimal128(23, 3))
PRICE_MAX: Final = pa.scalar(Decimal("50000000.000"), pa.decimal128(23, 3))

PLAIN: Final = ("auction", "bidder", "price", "date_time", "extra")


def bids_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Selects the bids of a batch, without the column of kinds."""
    return batch.filter(pc.equal(batch.column("kind"), BID)).drop_columns(["kind"])


def q0(house: House) -> Result:
    """Passes bids on."""
    return house.events(*PLAIN).map_batches(bids_of)


def q1(house: House) -> Result:
    """Converts prices."""
    return house.events(*PLAIN).map_batches(converted)


def converted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns bids with converted prices."""
    bids = bids_of(batch)
    return bids.set_column(2, "price", euros(bids.column("price")))


def euros(prices: pa.Array) -> pa.Array:
    """Converts prices, in decimals."""
    return pc.multiply(prices.cast(WHOLE), RATE)


def q2(house: House) -> Result:
    """Selects the bids for some auctions."""
    return house.events("auction", "price").map_batches(of_some_auctions)


def of_some_auctions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Selects bids by auction."""
    bids = bids_of(batch)
    return bids.filter(pa.array(bids.column("auction").to_numpy() % 123 == 0))


def q14(house: House) -> Result:
    """Computes columns of bids in a range of prices."""
    return house.events(*PLAIN).map_batches(calculated)


def calculated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Computes columns of bids in a range of prices."""
    bids = bids_of(batch)
    prices = euros(bids.column("price"))
    chosen = pc.and_(pc.greater(prices, PRICE_MIN), pc.less(prices, PRICE_MAX))
    bids, prices = bids.filter(chosen), prices.filter(chosen)
    hours = pc.hour(bids.column("date_time"))
    is_day = pc.and_(pc.greater_equal(hours, 8), pc.less_equal(hours, 18))
    is_night = pc.or_(pc.less_equal(hours, 6), pc.greater_equal(hours, 20))
    part = pc.case_when(pc.make_struct(is_day, is_night), "dayTime", "nightTime", "otherTime")
    extra = bids.column("extra")
    return pa.record_batch(
        {
            "auction": bids.column("auction"),
            "bidder": bids.column("bidder"),
            "price": prices,
            "bid_time_type": part,
            "date_time": bids.column("date_time"),
            "extra": extra,
            "c_counts": pc.count_substring(extra, "c"),
        }
    )


def q22(house: House) -> Result:
    """Splits URLs."""
    return house.events("auction", "bidder", "price", "channel", "url").map_batches(directories)


def directories(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns bids with the directories of their URLs."""
    bids = bids_of(batch)
    parts = pc.split_pattern(bids.column("url"), "/", max_splits=6)
    plain = {name: bids.column(name) for name in ("auction", "bidder", "price", "channel")}
    return pa.record_batch(plain | {f"dir{place - 2}": pc.list_element(parts, place) for place in (3, 4, 5)})


def q5(house: House) -> Result:
    """Finds the auctions with the most bids of the last ten seconds, every two seconds."""
    bids = house.events("auction", is_timed=True).map_batches(bids_of)
    counts = bids.key_by("auction").window(Sliding("10s", every="2s")).count()
    return counts.window(Tumbling("2s")).apply(most, name="most")


def q11(house: House) -> Result:
    """Counts the bids of each session of a bidder."""
    sessions = house.events("bidder", is_timed=True).map_batches(bids_of).key_by("bidder").window(Session("10s"))
    return sessions.count().map(lambda session: (session.key, session.value, session.start, session.end))


def q12(house: House) -> Result:
    """Counts the bids of each bidder per ten seconds of the clock."""
    windows = house.events("bidder").map_batches(bids_of).key_by("bidder").window(Tumbling("10s", time="processing"))
    return windows.count().map(lambda window: (window.key, window.value))


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
