"""Sum up the purchases of each customer, and of all, when the input has ended.

Gives one JSON line per customer, with the number of purchases, their total and mean, the 95th percentile, the three
largest and the items bought; and one line for the whole shop. All results of a customer are made in one pass. With
`emit=each(1)`, which is the default, the same step gives a line after each purchase.

    clonos run examples/customer_totals.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clonos import Job, at_end, files
from clonos.agg import approx_distinct, count, distinct, mean, quantile, sum_, top_k

PURCHASES = Path(__file__).with_name("data") / "purchases.jsonl"


def row(result: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    customer, totals = result
    largest = [purchase["number"] for purchase in totals["largest"]]
    return {"customer": customer, **totals, "largest": largest, "items": sorted(totals["items"])}


job = Job("customer_totals", parallelism=2, checkpoint_every="1s")
purchases = job.source(files.jsonl(PURCHASES), name="purchases")
(
    purchases.key_by("customer")
    .aggregate(
        purchases=count(),
        total=sum_("cents"),
        mean=mean("cents"),
        p95=quantile("cents", 0.95),
        largest=top_k(3, by="cents"),
        items=distinct("item"),
        emit=at_end(),
        name="totals",
    )
    .map(row)
    .sink(files.jsonl("out/customer_totals"), name="customers")
)
(
    purchases.aggregate(
        purchases=count(),
        total=sum_("cents"),
        customers=approx_distinct("customer"),
        emit=at_end(),
        name="shop",
    ).sink(files.jsonl("out/shop_totals"), name="shop_totals")
)
