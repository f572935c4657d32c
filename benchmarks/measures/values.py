"""Rates of the codec and the router, compared with plain msgpack: ``python -m benchmarks.measures.values``.

Plain msgpack is not an alternative (it turns tuples into lists and fails beyond 64 bits), but shows the cost of
exactness. Each figure is the best of many interleaved turns, in processor time of this process.
"""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable
from typing import Any

import msgpack

from clonos.core.values import decode_rows, decode_value, encode_rows, encode_value
from clonos.core.values.keys import Router

ROWS = 2000
TURNS = 60


def shapes() -> dict[str, list[Any]]:
    """Returns typical batches of rows: numbered words with a Zipf-like distribution."""
    stream = random.Random(1)
    known = ["".join(stream.choices("abcdefghijklmnop", k=stream.randint(2, 10))) for _ in range(10_000)]
    words = stream.choices(known, weights=[1 / rank for rank in range(1, 10_001)], k=ROWS)
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    return {
        "str": words,
        "int": [stream.randrange(10**6) for _ in words],
        "(str, int)": [(word, number) for number, word in enumerate(words)],
        "((str, int, int), str)": [((word, number, 7), word) for number, word in enumerate(words)],
        "(str, datetime)": [(word, start + datetime.timedelta(seconds=number)) for number, word in enumerate(words)],
        "{str: ...}": [{"word": word, "count": number} for number, word in enumerate(words)],
        "str or tuple": [word if number % 2 else (word, number) for number, word in enumerate(words)],
    }


def best(steps: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Returns the rate of each step in million rows per second."""
    fastest_ns = dict.fromkeys(steps, 1 << 62)
    for _ in range(TURNS):
        for name, step in steps.items():
            begin_ns = time.process_time_ns()
            step()
            fastest_ns[name] = min(fastest_ns[name], time.process_time_ns() - begin_ns)
    return {name: ROWS * 1000 / max(1, taken_ns) for name, taken_ns in fastest_ns.items()}


def steps_of(rows: list[Any]) -> dict[str, Callable[[], object]]:
    """Returns the measured steps for one batch."""
    data, single = encode_rows(rows), [encode_value(row) for row in rows]
    steps: dict[str, Callable[[], object]] = {
        "encode_rows": lambda: encode_rows(rows),
        "decode_rows": lambda: decode_rows(data),
        "encode_value": lambda: [encode_value(row) for row in rows],
        "decode_value": lambda: [decode_value(row) for row in single],
    }
    try:
        plain = msgpack.packb(rows)
    except TypeError:  # datetimes are beyond it
        return steps
    steps["msgpack encode"] = lambda: msgpack.packb(rows)
    steps["msgpack decode"] = lambda: msgpack.unpackb(plain, use_list=False)
    return steps


def routing(keys: list[Any]) -> dict[str, Callable[[], object]]:
    """Returns steps that partition by known keys for 2 and 32 tasks, and by new keys."""
    few, many, forgetful = Router(2, 128), Router(32, 128), Router(2, 128, cached_keys_max=1)
    return {
        "split in 2": lambda: few.split(keys, keys),
        "split in 32": lambda: many.split(keys, keys),
        "split, new keys": lambda: forgetful.split(keys, keys),
    }


def main() -> None:
    """Prints one line for each shape."""
    for name, rows in shapes().items():
        steps = steps_of(rows)
        if name in ("str", "int", "(str, int)"):
            steps |= routing(rows)
        print(f"{name:24s}", "  ".join(f"{step} {rate:.2f}" for step, rate in best(steps).items()))


if __name__ == "__main__":
    main()
