"""Benchmark: the joins by key alone: rows and columns, by processor time.

Each join gets the same batches of both sides in turn, in one process without a source, channels or a sink. A barrier
takes the changes of its state now and then. Compare two checkouts in turn: the figures of one run depend on the
machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow

from benchmarks.harness.ab_session import Session
from benchmarks.measures.choosing import BATCHES_A_BARRIER, BEGIN_NS, COLUMN_ROWS, Clock, Counted
from clonos.api.columns.described_columns import maker_of
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.ports.operator_chain import ROWS_AT_ONCE, ChainContext
from clonos.io.system.collections_paused import collect_rarely
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import InputSide, Scope
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.user_errors import Guard

RECORDS: Final = 200_000
RECORDS_QUICK: Final = 40_000
RECORDS_A_SECOND: Final = 1000
NS_A_RECORD: Final = 1_000_000_000 // RECORDS_A_SECOND
DISORDER_NS: Final = 200_000_000
RUNS: Final = 5
RUNS_QUICK: Final = 2

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


class Given:
    """Source that is only described."""

    def __init__(self, schema: Any | None) -> None:
        self._schema = schema

    @property
    def is_columnar(self) -> bool:
        """Whether it gives columns."""
        return self._schema is not None

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split."""
        return [b""]

    def reader(self) -> Any:
        """Raises: AssertionError: nothing is read."""
        raise AssertionError("the benchmark gives the batches")

    def column_schema(self) -> Any:
        """Returns the columns of its batches; None for rows."""
        return self._schema


def run(session: Session) -> None:
    """Measures each join with rows and with columns."""
    collect_rarely()  # as the processes of a job do
    count = RECORDS_QUICK if session.is_quick else RECORDS
    for case in CASES:
        for is_columnar in (False, True):
            shape = "columns" if is_columnar else "rows"
            batches = _batches(case, count, is_columnar)
            runs = [_measured(case, batches, is_columnar) for _ in range(RUNS_QUICK if session.is_quick else RUNS)]
            session.progress(f"{case.name} in {shape}: {runs[0][1]:,} results")
            figure = min(spent_s for spent_s, _ in runs) / count * 1e9  # what disturbs a run only adds to it
            session.figure(f"{case.name} in {shape}", figure, "ns a record")


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
                batch = _columns(part, is_left) if is_columnar else _rows(part, is_left)
                found.append((is_left, batch, times, BEGIN_NS + first * NS_A_RECORD))
    return found


def _rows(records: list[tuple[str, int, int]], is_left: bool) -> list[Any]:
    name = "x" if is_left else "y"
    return [(key, {"key": key, "at": at_ns, name: x}) for key, at_ns, x in records]


def _columns(records: list[tuple[str, int, int]], is_left: bool) -> Any:
    schema = SIDES[not is_left]
    columns = [[key for key, _, _ in records], [at_ns // 1000 for _, at_ns, _ in records], [x for _, _, x in records]]
    arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _operator(case: Case, is_columnar: bool) -> Any:
    graph = JobGraph("job")
    sources: list[Any] = [Given(schema if is_columnar else None) for schema in SIDES]
    left, right = (
        graph.source(source, parallelism=1, timestamps=Timestamps("at", out_of_order="1s")) for source in sources
    )
    case.add(left, right)
    step = next(step for step in graph.steps if step.name == "step")
    make = maker_of(step, graph.steps)
    assert make is not None, case.name
    return make()


def _measured(case: Case, batches: list[Any], is_columnar: bool) -> tuple[float, int]:
    """Returns the processor time of all batches, and the number of results."""
    operator, out, state = _operator(case, is_columnar), Counted(), StateBackend(None)
    nobody: Any = None
    operator.out, operator.guard = out, Guard("step", True, nobody, None)
    operator.pass_watermark = out.on_watermark
    sides = [InputSide(True), InputSide(False)]
    for side in sides:
        side.out, side.guard = operator, operator.guard
        side.timestamp_column = TimestampColumn("at") if is_columnar else None
    recorder: Any = Clock()
    operator.open(Scope(ChainContext("task", 0, 0, 1, 128, "job", 0, 0, recorder, nobody, ""), state))
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
