"""Work of the loops by hand on one batch, in Arrow's kernels."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.jobs import columns
from benchmarks.nexmark.queries import BID

RATE: Final = pa.scalar(Decimal("0.908"))
WHOLE: Final = pa.decimal128(19, 0)
PRICE_MIN: Final = pa.scalar(Decimal("1000000.000"), pa.decimal128(23, 3))
PRICE_MAX: Final = pa.scalar(Decimal("50000000.000"), pa.decimal128(23, 3))


def bids_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Selects the bids of a batch, without the column of kinds."""
    return batch.filter(pc.equal(batch.column("kind"), BID)).drop_columns(["kind"])


def converted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns bids with converted prices."""
    bids = bids_of(batch)
    return bids.set_column(2, "price", euros(bids.column("price")))


def euros(prices: pa.Array) -> pa.Array:
    """Converts prices, in decimals."""
    return pc.multiply(prices.cast(WHOLE), RATE)


def of_some_auctions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Selects bids by auction."""
    bids = bids_of(batch)
    return bids.filter(pa.array(bids.column("auction").to_numpy() % 123 == 0))


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


def directories(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns bids with the directories of their URLs."""
    return columns.directories(bids_of(batch))
