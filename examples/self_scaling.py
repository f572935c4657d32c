"""Let a job scale itself: it gets more tasks while orders wait, and fewer when they have become few.

Each order needs a call of a service that takes 10 ms, so one task takes at most 100 orders per second. Orders are
appended to a log faster than that until the job has more tasks, and then no more. Each order is in the output once.

    python examples/self_scaling.py
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from clonos import Job, ScalingEvent, ScalingOutcome, files

LOG = Path("out/orders.jsonl")
LABELS = "out/labels"
SERVICE_S = 0.01

Order = dict[str, Any]

has_grown, has_shrunk = threading.Event(), threading.Event()


def label(order: Order) -> Order:
    time.sleep(SERVICE_S)  # as for the answer of a service
    return {**order, "label": f"parcel {order['order']}"}


def report(event: ScalingEvent) -> None:
    """Prints each decision. The process that runs this program calls it, so it can set its events."""
    print(f"{event.step}: {event.text}", flush=True)
    if event.outcome is ScalingOutcome.CHANGED:
        (has_grown if event.tasks_wanted > event.tasks_before else has_shrunk).set()


def labelled_orders() -> list[int]:
    rows: list[Order] = list(files.read_committed(LABELS))
    return [row["order"] for row in rows]


def append(first: int, count: int) -> None:
    with LOG.open("a", encoding="utf-8") as log:
        log.writelines(json.dumps({"order": number}) + "\n" for number in range(first, first + count))


job = Job(
    "self_scaling",
    store="out/store",
    checkpoint_every="1s",
    scale={"label": (1, 4)},
    scale_window="1s",  # 30 s by default: a load that lasts for two windows
    scale_down_after="5s",  # 10 minutes by default
    on_scale=report,
)
orders = job.source(files.tail(str(LOG)), name="orders").map(json.loads, name="parse")
orders.rebalance().map(label, name="label").sink(files.jsonl(LABELS), name="labels")


def main() -> None:
    LOG.parent.mkdir(exist_ok=True)
    LOG.touch()
    written = 0
    with job.start(slots="process", overwrite=True) as handle:
        while not has_grown.wait(0.1):  # 10 times a second
            append(written, 40)
            written += 40
        while len(labelled := labelled_orders()) < written:
            time.sleep(0.5)
        has_shrunk.wait()
        handle.stop()
        handle.wait()
    print(f"{written} orders, {len(labelled)} labels, each once: {sorted(labelled) == list(range(written))}")


if __name__ == "__main__":
    main()
