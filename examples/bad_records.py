"""Read JSON lines of which some are damaged, and set those aside.

Gives the sum of the valid orders of each customer so far, and a folder of the lines that raised an exception, with the
step and the error. Without `errors=` the job ends at the first such line and names it.

    clonos run examples/bad_records.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clonos import Job, files, stdout

ORDERS = Path(__file__).with_name("data") / "orders_with_errors.jsonl"


def parse(line: str) -> tuple[str, int]:
    order: dict[str, Any] = json.loads(line)
    return order["customer"], int(order["cents"])


def add(so_far: tuple[str, int], order: tuple[str, int]) -> tuple[str, int]:
    return so_far[0], so_far[1] + order[1]


job = Job("bad_records", checkpoint_every="1s", errors=files.jsonl("out/bad_records"))
orders = job.source(files.lines(ORDERS), name="lines").map(parse, name="parse")
orders.key_by(lambda order: order[0]).reduce(add, name="sum").map(lambda result: result[1]).sink(stdout())
