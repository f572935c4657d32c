"""Benchmark: a keyed aggregate of which one key has half of the records, with ``split_hot_keys`` and without.

Batches of four tasks in front go through the exchange to four tasks, all in one process, without channels. The figures
are the processor time of the busiest task after the exchange, which limits the step, and of a task in front, for each
record of the job. Both sides of a pair get the same records.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any, Final

import pyarrow

from benchmarks.harness.ab_session import Session
from benchmarks.measures.choosing import (
    COLUMN_ROWS,
    RUNS,
    RUNS_QUICK,
    SCHEMA,
    Given,
    batch_of,
    made_step,
    open_alone,
    records_of,
)
from clonos import agg
from clonos.api.emission import changes
from clonos.api.graph import JobGraph
from clonos.core.ports.operator_chain import ROWS_AT_ONCE
from clonos.core.values.key_encoding import encode_key
from clonos.core.values.keys import key_group, task_of_group
from clonos.operators.operator import Operator
from clonos.operators.state.keyed_state import StateBackend

TASKS: Final = 4
GROUPS: Final = 128
KEYS_MAX: Final = 1_000
UNIT: Final = "ns a record"


class Gathered(Operator):
    """End of an operator: keeps what it passes on."""

    changes_rows = False

    def __init__(self) -> None:
        self.found: list[Any] = []

    def rows(self, rows: list[Any], times: Any = None) -> None:
        self.found.append(rows)

    def columns(self, batch: Any) -> None:
        self.found.append(batch)


def run(session: Session) -> None:
    """Measures both sides with rows and with columns."""
    records = _records(records_of(session))
    for is_columnar in (False, True):
        shape = "columns" if is_columnar else "rows"
        pairs = [
            [_measured(records, is_columnar, is_split=is_split) for is_split in (False, True)]
            for _ in range(RUNS_QUICK if session.is_quick else RUNS)
        ]
        for place, side in enumerate(("without", "with split_hot_keys")):
            busiest, front = (min(pair[place][each] for pair in pairs) / len(records) * 1e9 for each in (0, 1))
            session.figure(f"skew in {shape}, {side}: busiest task", busiest, UNIT)
            session.figure(f"skew in {shape}, {side}: task in front", front, UNIT)
        ratios = sorted(max(with_parts) / max(without) for without, with_parts in pairs)
        session.figure(
            f"skew in {shape}: with / without, the task that limits", ratios[len(ratios) // 2], "times", "<= 1"
        )


def _records(count: int) -> list[tuple[str, int, int]]:
    """Returns (key, instant, number) of each record; the first key has half of them, the second a sixth."""
    rng = Random(7)
    return [(f"key{min(int(1 / (1 - rng.random())), KEYS_MAX)}", place, rng.randrange(10**6)) for place in range(count)]


def _graph(is_columnar: bool, is_split: bool) -> JobGraph:
    graph = JobGraph("job")
    source: Any = Given(SCHEMA if is_columnar else None)
    keyed: Any = graph.source(source, parallelism=1).key_by("key")
    keyed.aggregate(n=agg.count(), total=agg.sum_("x"), emit=changes(), split_hot_keys=is_split, name="step")
    return graph


def _front(graph: JobGraph, is_columnar: bool) -> Operator | None:
    """Returns the operator that makes parts; None if none does."""
    step = next(step for step in graph.steps if step.name == "step")
    make: Any = step.form.before_exchange("step") if is_columnar and step.form is not None else step.splits
    return make() if make else None


def _measured(records: list[tuple[str, int, int]], is_columnar: bool, *, is_split: bool) -> tuple[float, float]:
    """Returns the processor time of the busiest task, and of a task in front."""
    graph, gathered = _graph(is_columnar, is_split), Gathered()
    front = _front(graph, is_columnar) if is_split else None
    if front is not None:
        open_alone(front, gathered, StateBackend(None))
    steps = [made_step(graph) for _ in range(TASKS)]
    for step in steps:
        open_alone(step, Gathered(), StateBackend(None))
    task_of = {key: task_of_group(key_group(encode_key(key), GROUPS), TASKS, GROUPS) for key, *_ in records}
    busy_s, front_s = [0.0] * TASKS, 0.0
    size = COLUMN_ROWS if is_columnar else ROWS_AT_ONCE
    for first in range(0, len(records), size):
        part = records[first : first + size]
        batch: Any = batch_of(part, SCHEMA) if is_columnar else [(key, {"key": key, "x": x}) for key, _, x in part]
        began_s = time.process_time()
        if front is None:
            gathered.found.append(batch)
        else:
            front.columns(batch) if is_columnar else front.rows(batch)
        front_s += time.process_time() - began_s
        for found in gathered.found:
            for task, taken in enumerate(_by_task(found, task_of, is_columnar)):
                began_s = time.process_time()
                steps[task].keyed_columns(taken, "key") if is_columnar else steps[task].rows(taken)
                busy_s[task] += time.process_time() - began_s
        gathered.found.clear()
    return max(busy_s), front_s / TASKS


def _by_task(found: Any, task_of: dict[str, int], is_columnar: bool) -> list[Any]:
    if not is_columnar:
        return [[row for row in found if task_of[row[0]] == task] for task in range(TASKS)]
    tasks = [task_of[key] for key in found.column("key").to_pylist()]
    return [found.filter(pyarrow.array([each == task for each in tasks])) for task in range(TASKS)]
