"""Benchmark: the joins by key alone: rows and columns, by processor time.

Each join gets the same batches of both sides in turn, in one process without a source, channels or a sink. A barrier
takes the changes of its state now and then. Compare two checkouts in turn: the figures of one run depend on the
machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow

from benchmarks.harness.ab_session import Session
from benchmarks.measures.choosing import (
    BATCHES_A_BARRIER,
    BEGIN_NS,
    COLUMN_ROWS,
    DISORDER_NS,
    NS_A_RECORD,
    Counted,
    Given,
    batch_of,
    made_step,
    note,
    open_alone,
    records_of,
)
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.ports.operator_chain import ROWS_AT_ONCE
from clonos.io.system.collections_paused import collect_rarely
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import InputSide
from clonos.operators.state.keyed_state import StateBackend

SIDES: Final = tuple(
    pyarrow.schema([("key", pyarrow.string()), ("at", pyarrow.timestamp("us", "UTC")), (name, pyarrow.int64())])
    for name in ("x", "y")
)


class Case(NamedTuple):
    """One join: its name, how it is added to two streams, the number of keys, and the right records in 20."""

    name: str
    add: Callable[[Any, Any], Any]
    keys: int
    rights: int = 10


CASES: Final = (
    Case("as of", lambda a, b: a.join_as_of(b, on="key", name="step"), 1_000, 4),
    Case(
        "as of, nearest in 1 s",
        lambda a, b: a.join_as_of(b, on="key", direction="nearest", tolerance="1s", name="step"),
        1_000,
        4,
    ),
    Case("lookup", lambda a, b: a.lookup(b, on="key", name="step"), 1_000, 4),
    Case(
        "semi in 10 s windows",
        lambda a, b: a.join(b, on="key", window=Tumbling("10s"), how="semi", name="step"),
        10_000,
    ),
    Case("inner in 10 s windows", lambda a, b: a.join(b, on="key", window=Tumbling("10s"), name="step"), 10_000),
    Case("inner between 2 s", lambda a, b: a.join(b, on="key", between=("-1s", "1s"), name="step"), 1_000),
    Case("left between 2 s", lambda a, b: a.join(b, on="key", between=("-1s", "1s"), how="left", name="step"), 10_000),
)


def run(session: Session) -> None:
    """Measures each join with rows and with columns."""
    collect_rarely()  # as the processes of a job do
    for case in CASES:
        for is_columnar in (False, True):
            batches = _batches(case, records_of(session), is_columnar)
            note(session, case.name, is_columnar, partial(_measured, case, batches, is_columnar))


def _batches(case: Case, count: int, is_columnar: bool) -> list[tuple[bool, Any, list[int], int]]:
    """Returns (whether it is of the left side, batch, timestamps, first instant): the sides in turn."""
    rng = Random(7)
    size = COLUMN_ROWS if is_columnar else ROWS_AT_ONCE
    left_count = size * (20 - case.rights) // 20
    found = []
    for first in range(0, count, size):
        records = [
            (f"key{rng.randrange(case.keys)}", BEGIN_NS + place * NS_A_RECORD - rng.randrange(DISORDER_NS), place)
            for place in range(first, min(first + size, count))
        ]
        rng.shuffle(records)
        for is_left, part in ((False, records[left_count:]), (True, records[:left_count])):
            if part:
                times = [at_ns for _, at_ns, _ in part]
                batch = batch_of(part, SIDES[not is_left]) if is_columnar else _rows(part, is_left)
                found.append((is_left, batch, times, BEGIN_NS + first * NS_A_RECORD))
    return found


def _rows(records: list[tuple[str, int, int]], is_left: bool) -> list[Any]:
    name = "x" if is_left else "y"
    return [(key, {"key": key, "at": at_ns, name: x}) for key, at_ns, x in records]


def _operator(case: Case, is_columnar: bool) -> Any:
    graph = JobGraph("job")
    sources: list[Any] = [Given(schema if is_columnar else None) for schema in SIDES]
    left, right = (
        graph.source(source, parallelism=1, timestamps=Timestamps("at", out_of_order="1s")) for source in sources
    )
    case.add(left, right)
    return made_step(graph)


def _measured(case: Case, batches: list[Any], is_columnar: bool) -> tuple[float, int]:
    """Returns the processor time of all batches, and the number of results."""
    operator, out, state = _operator(case, is_columnar), Counted(), StateBackend(None)
    operator.pass_watermark = out.on_watermark
    open_alone(operator, out, state)
    sides = [InputSide(True), InputSide(False)]
    for side in sides:
        side.out, side.guard = operator, operator.guard
        side.timestamp_column = TimestampColumn("at") if is_columnar else None
    started_s = time.process_time()
    for number, (is_left, batch, times, at_ns) in enumerate(batches):
        side = sides[not is_left]
        if is_columnar:
            side.keyed_columns(batch, "key")
        else:
            side.rows(batch, times)
        if is_left:
            operator.on_watermark(at_ns - DISORDER_NS)
        if number % BATCHES_A_BARRIER == 0:
            operator.prepare(number)
            state.changes(False)
    return time.process_time() - started_s, out.results
