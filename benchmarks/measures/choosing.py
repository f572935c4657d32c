"""Benchmark: steps that choose among the records of each key, and sessions, alone: rows and columns, by processor time.

Each step gets the same batches in one process without a source, channels or a sink: rows in parts as a chain passes
them, columns in batches of a source. A barrier takes the changes of its state now and then. Compare two checkouts in
turn: the figures of one run depend on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow

from benchmarks.harness.ab_session import Session
from clonos import agg
from clonos.api import windows
from clonos.api.columns.described_columns import maker_of
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.core.ports.operator_chain import ROWS_AT_ONCE, ChainContext
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import Operator, Scope
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.user_errors import Guard

RECORDS: Final = 200_000
RECORDS_QUICK: Final = 40_000
COLUMN_ROWS: Final = 8192
BATCHES_A_BARRIER: Final = 25
RECORDS_A_SECOND: Final = 1000
DISORDER_NS: Final = 200_000_000
BEGIN_NS: Final = 1_700_000_000_000_000_000
NS_A_RECORD: Final = 1_000_000_000 // RECORDS_A_SECOND
RUNS: Final = 5
RUNS_QUICK: Final = 2

SCHEMA: Final = pyarrow.schema(
    [("key", pyarrow.string()), ("at", pyarrow.timestamp("us", "UTC")), ("x", pyarrow.int64())]
)


WINDOW: Final = windows.Session("2s")
NAMED: Final[dict[str, Any]] = {"n": agg.count(), "total": agg.sum_("x")}


class Case(NamedTuple):
    """One step: its name, how it is added to a keyed stream, the number of keys, and whether records have times."""

    name: str
    add: Callable[[Any], Any]
    keys: int
    is_timed: bool = False


CASES: Final = (
    Case("distinct, few keys", lambda keyed: keyed.distinct("key", name="step"), 1_000),
    Case("distinct, new keys", lambda keyed: keyed.distinct("key", name="step"), 1 << 40),
    Case("deduplicate", lambda keyed: keyed.deduplicate(name="step"), 1_000),
    Case("last so far", lambda keyed: keyed.deduplicate(keep="last", name="step"), 1_000, True),
    Case("first within 10 s", lambda keyed: keyed.deduplicate(within="10s", name="step"), 5_000, True),
    Case("last within 10 s", lambda keyed: keyed.deduplicate(keep="last", within="10s", name="step"), 5_000, True),
    Case("top 5 lists", lambda keyed: keyed.top_k(5, "x", name="step"), 1_000),
    Case("top 5 ranks", lambda keyed: keyed.top_k(5, "x", rank="rank", name="step"), 1_000),
    Case("top 5 lists, many keys", lambda keyed: keyed.top_k(5, "x", name="step"), 50_000),
    Case("top 5 ranks, many keys", lambda keyed: keyed.top_k(5, "x", rank="rank", name="step"), 50_000),
    Case("long sessions", lambda keyed: keyed.window(WINDOW).count(name="step"), 100, True),
    Case("short sessions", lambda keyed: keyed.window(WINDOW).count(name="step"), 5_000, True),
    Case("aggregates of sessions", lambda keyed: keyed.window(WINDOW).aggregate(**NAMED, name="step"), 2_000, True),
    Case("late sessions", lambda keyed: keyed.window(WINDOW, lateness="2s").count(name="step"), 2_000, True),
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


class Counted(Operator):
    """End of the step: counts results."""

    changes_rows = False
    results = 0

    def rows(self, rows: list[Any], times: Any = None) -> None:
        self.results += len(rows)

    def columns(self, batch: Any) -> None:
        self.results += batch.num_rows

    def on_watermark(self, watermark: Any) -> None:
        """Takes the watermark, which ends here."""


class Clock:
    """Recorder of a clock that stands still."""

    def instant_ns(self, is_call: bool) -> int:
        """Returns the same instant."""
        return BEGIN_NS


def run(session: Session) -> None:
    """Measures each step with rows and with columns."""
    measure(session, CASES)


def measure(session: Session, cases: Sequence[Case]) -> None:
    """Measures each of these steps with rows and with columns."""
    for case in cases:
        records = _records(case, records_of(session))
        for is_columnar in (False, True):
            batches = _columns(records) if is_columnar else _rows(records, case.is_timed)
            note(session, case.name, is_columnar, partial(_measured, case, batches, is_columnar))


def records_of(session: Session) -> int:
    """Returns how many records a step gets."""
    return RECORDS_QUICK if session.is_quick else RECORDS


def note(session: Session, name: str, is_columnar: bool, measured: Callable[[], tuple[float, int]]) -> None:
    """Notes the least time of some runs. ``measured`` returns the seconds of one, and the number of its results."""
    shape = "columns" if is_columnar else "rows"
    runs = [measured() for _ in range(RUNS_QUICK if session.is_quick else RUNS)]
    session.progress(f"{name} in {shape}: {runs[0][1]:,} results")
    figure = min(spent_s for spent_s, _ in runs) / records_of(session) * 1e9  # what disturbs a run only adds to it
    session.figure(f"{name} in {shape}", figure, "ns a record")


def _records(case: Case, count: int) -> list[tuple[str, int, int]]:
    """Returns (key, instant, number) of each record; instants rise, with some disorder."""
    rng = Random(7)
    return [
        (
            f"key{rng.randrange(case.keys)}",
            BEGIN_NS + place * NS_A_RECORD - rng.randrange(DISORDER_NS),
            rng.randrange(10**6),
        )
        for place in range(count)
    ]


def _rows(records: list[tuple[str, int, int]], is_timed: bool) -> list[Any]:
    found = []
    for first in range(0, len(records), ROWS_AT_ONCE):
        part = records[first : first + ROWS_AT_ONCE]
        rows = [(key, {"key": key, "at": at_ns, "x": x}) for key, at_ns, x in part]
        found.append((rows, [at_ns for _, at_ns, _ in part] if is_timed else None, part[0][1]))
    return found


def _columns(records: list[tuple[str, int, int]]) -> list[Any]:
    found = []
    for first in range(0, len(records), COLUMN_ROWS):
        part = records[first : first + COLUMN_ROWS]
        found.append((batch_of(part, SCHEMA), None, part[0][1]))
    return found


def batch_of(records: list[tuple[str, int, int]], schema: Any) -> Any:
    """Returns records as columns."""
    columns = [[key for key, _, _ in records], [at_ns // 1000 for _, at_ns, _ in records], [x for _, _, x in records]]
    arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _operator(case: Case, is_columnar: bool) -> Operator:
    graph = JobGraph("job")
    timestamps: Any = Timestamps("at", out_of_order="1s") if case.is_timed else None
    source: Any = Given(SCHEMA if is_columnar else None)
    keyed = graph.source(source, parallelism=1, timestamps=timestamps).key_by("key")
    case.add(keyed)
    return made_step(graph)


def made_step(graph: JobGraph) -> Operator:
    """Creates the operator of the step with the name "step"."""
    step = next(step for step in graph.steps if step.name == "step")
    make = maker_of(step, graph.steps)
    assert make is not None, step
    return make()


def open_alone(operator: Operator, out: Operator, state: StateBackend) -> None:
    """Opens an operator without a chain around it."""
    nobody: Any = None
    operator.out, operator.guard = out, Guard("step", True, nobody, None)
    recorder: Any = Clock()
    operator.open(
        Scope(
            ChainContext("task", 0, 0, 1, 128, "job", 0, 0, recorder, nobody, ""),
            StepState(state, "step", operator.state_specs),
        )
    )


def _measured(case: Case, batches: list[Any], is_columnar: bool) -> tuple[float, int]:
    """Returns the processor time of all batches, and the number of results."""
    operator, out, state = _operator(case, is_columnar), Counted(), StateBackend(None)
    operator.timestamp_column = TimestampColumn("at") if case.is_timed and is_columnar else None
    open_alone(operator, out, state)
    started_s = time.process_time()
    for number, (batch, times, at_ns) in enumerate(batches):
        if is_columnar:
            operator.keyed_columns(batch, "key")
        else:
            operator.rows(batch, times)
        if case.is_timed:
            _advance(operator, at_ns - DISORDER_NS)
        if number % BATCHES_A_BARRIER == 0:
            operator.prepare(number)
            state.changes(False)
    operator.end_of_time()
    return time.process_time() - started_s, out.results


def _advance(operator: Operator, watermark_ns: int) -> None:
    """Fires timers as a region does, and passes the watermark."""
    while (next_ns := operator.next_event_ns()) is not None and next_ns <= watermark_ns:
        operator.fire_events(operator.due_events(watermark_ns if operator.fires_in_spans else next_ns))
    operator.on_watermark(watermark_ns)
