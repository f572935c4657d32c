"""Keys of Zipf's distribution with ``split_hot_keys=True``, while tasks on both sides of the exchange die."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from clonos.agg import count, sum_
from clonos.api.emission import changes
from clonos.api.windows import Tumbling
from clonos.connectors import files, sqlite
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.job import Job
from clonos.job.handle import Handle
from clonos.status import TaskState
from tests.processes.harness.gated_source import Gate, GatedNumbers, GatedReader
from tests.speed import scaled
from tests.waiting import await_condition

pytestmark = pytest.mark.processes

LIMIT_S = scaled(30.0)
wait_until = partial(await_condition, LIMIT_S)
BATCH, RECORDS, TASKS = 400, 8_000, 2
BEGIN_S, SPAN_S, KEYS_MAX = 1_700_000_000, 1_000, 200


def key_of(number: int) -> int:
    """Key of a number: the first one has half of them, the second a sixth, the third a twelfth."""
    return min(int(2**32 / (number * 2_654_435_761 % 2**32 + 1)), KEYS_MAX)


class Numbers(GatedNumbers):
    """Numbers in batches that are worth splitting."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate, BATCH)


class NumbersInColumns(Numbers):
    """The same in batches of Arrow."""

    is_columnar = True

    def reader(self) -> GatedReader:
        return ReaderOfColumns(self.path, self.batch)


class ReaderOfColumns(GatedReader):
    """Reader of one split."""

    def read(self, records_max: int) -> Any:
        numbers = super().read(records_max)
        if not numbers:
            return numbers
        at = pyarrow.array([(BEGIN_S + n) * 1_000_000 for n in numbers], pyarrow.timestamp("us", "UTC"))
        columns = {"key": pyarrow.array([key_of(n) for n in numbers]), "n": pyarrow.array(numbers), "at": at}
        return pyarrow.record_batch(columns)


class Skewed:
    """Job that counts hot keys, all records of each and those of each window."""

    def __init__(self, folder: Path, *, is_columnar: bool) -> None:
        self.folder, self.gate, self.is_columnar = folder, Gate(folder / "gate"), is_columnar

    def job(self) -> Job:
        job = Job("skewed", slots="process", parallelism=TASKS, checkpoint_every="200ms", store=str(self.folder / "s"))
        if self.is_columnar:
            rows: Any = job.source(NumbersInColumns(self.gate), name="read", timestamps="at")
        else:
            numbers = job.source(Numbers(self.gate), name="read", timestamps=lambda n: BEGIN_S + n)
            rows = numbers.map(lambda n: {"key": key_of(n), "n": n}, name="row")
        keyed = rows.key_by("key")
        totals = keyed.aggregate(rows=count(), sum=sum_("n"), emit=changes(), split_hot_keys=True, name="totals")
        shown = totals.map(lambda pair: {"key": pair[0], **pair[1]}, name="shown").key_by("key")
        shown.sink(sqlite(str(self.folder / "t.db"), "totals", ["key", "rows", "sum"], upsert=["key"]), name="table")
        windows = keyed.window(Tumbling(f"{SPAN_S}s")).aggregate(n=count(), split_hot_keys=True, name="per-window")
        found = windows.map(lambda each: [each.key, int(each.start.timestamp()) - BEGIN_S, each.value["n"]])
        found.sink(files.jsonl(str(self.folder / "windows")), name="windows")
        return job

    def totals(self) -> dict[int, tuple[int, int]]:
        """Number and sum of the records of each key, as the table has them."""
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.folder / "t.db", timeout=20)) as table:
            return {key: (rows, total) for key, rows, total in table.execute("SELECT key, rows, sum FROM totals")}
        return {}


def expected(records: int) -> tuple[dict[int, tuple[int, int]], list[list[int]]]:
    """Totals of all keys, and windows."""
    numbers = range(records)
    rows, sums = Counter(map(key_of, numbers)), Counter[int]()
    for number in numbers:
        sums[key_of(number)] += number
    windows = Counter((key_of(number), number - number % SPAN_S) for number in numbers)
    return {key: (rows[key], sums[key]) for key in rows}, sorted([*place, n] for place, n in windows.items())


def tasks_of(handle: Handle, step: str) -> list[TaskState]:
    """Tasks of a step, the one with the most records first."""
    found = [task for task in handle.status().tasks if step in task.name]
    return sorted(found, key=lambda task: -task.counters.get(TaskCounter.RECORDS_IN, 0))


@pytest.mark.parametrize("is_columnar", [False, True], ids=["rows", "columns"])
def test_hot_keys_that_are_split_are_counted_exactly_while_their_tasks_die(tmp_path: Path, is_columnar: bool) -> None:
    flow = Skewed(tmp_path, is_columnar=is_columnar)
    with flow.job().start() as handle:
        for share, step in ((1, "totals"), (2, "read"), (3, "totals")):
            records = share * RECORDS // 4
            flow.gate.open_to(records // TASKS)
            wait_until(lambda: flow.totals() == expected(records)[0])  # noqa: B023
            hottest = tasks_of(handle, step)[0]
            assert hottest.pid is not None
            if share == 1:
                taken = sum(task.counters.get(TaskCounter.RECORDS_IN, 0) for task in tasks_of(handle, "totals"))
                assert taken < records / 2, "the parts are fewer than the records"
            os.kill(hottest.pid, signal.SIGKILL)
            wait_until(lambda: all(task.phase is TaskPhase.LIVE for task in handle.status().tasks))
        flow.gate.end(RECORDS // TASKS)
        handle.wait(LIMIT_S)
    totals, windows = expected(RECORDS)
    assert flow.totals() == totals
    assert sorted(files.read_committed(tmp_path / "windows")) == windows
