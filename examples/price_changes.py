"""Compare each price of a share with the one before it, and with its mean of the last ten minutes.

Gives one JSON line per price, by the times of the prices: they may come up to a minute out of order.

    clonos run examples/price_changes.py
"""

from __future__ import annotations

from typing import Any

from clonos import Job, Range, Timestamps, WindowResult, files, values
from clonos.agg import last, mean

OPENING = 1_690_000_000
PRICES = [
    {"share": "ab"[number % 2], "at": OPENING + 20 * (number ^ 2), "price": 100.0 + number * number % 9}
    for number in range(200)
]


def change(pair: tuple[dict[str, Any], dict[str, Any] | None]) -> dict[str, Any]:
    now, before = pair
    return {
        "share": now["share"],
        "at": now["at"],
        "change": None if before is None else now["price"] - before["price"],
    }


def distance(window: WindowResult[str, dict[str, Any]]) -> dict[str, Any]:
    return {"share": window.key, "at": window.end, "above mean": window.value["price"] - window.value["mean"]}


job = Job("price_changes", parallelism=2, checkpoint_every="1s")
prices = job.source(values(PRICES), name="prices", timestamps=Timestamps("at", out_of_order="1min")).key_by("share")
prices.lag(name="before").map(change).sink(files.jsonl("out/price_changes"), name="changes")
means = prices.window(Range("10min")).aggregate(price=last("price"), mean=mean("price"), name="mean")
means.map(distance).sink(files.jsonl("out/price_distances"), name="distances")
