"""Skew of keyed steps: when a task is named, in the live table and in the summary."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskPhase
from clonos.job.live_table import LiveTable
from clonos.job.run_report import summary_lines
from clonos.job.skew import hot_tasks_of_run, keyed_steps
from clonos.status import Phase, RescalePhase, RescaleState, Status, TaskState
from tests.unit.operators.driver import Given, Outbox

KEYED = frozenset({"count"})


def _task(name: str, records: int, busy_s: float) -> TaskState:
    counters = {"records_in": records, "busy_us": int(busy_s * 1e6)}
    return TaskState(name, 1, 7, 4711, "process-1", TaskPhase.LIVE, counters, 1, 1)


def _status(records: tuple[int, ...], busy_s: float, step: str = "count") -> Status:
    tasks = tuple(_task(f"{step}/{index}", count, busy_s) for index, count in enumerate(records))
    return Status("words", Phase.RUNNING, tasks=tasks)


@pytest.mark.parametrize(
    ("records", "busy_s", "step", "share"),
    [
        ((10, 920, 30, 40), 8.0, "count", "92%"),
        ((100, 301), 8.0, "count", "75%"),
        ((0, 5), 8.0, "count", "100%"),
        ((100, 300), 8.0, "count", ""),
        ((10, 920, 30, 40), 2.0, "count", ""),
        ((10, 920, 30, 40), 8.0, "read", ""),
        ((920,), 8.0, "count", ""),
        ((0, 0), 8.0, "count", ""),
    ],
    ids=["hot", "just above", "one key", "thrice", "not busy", "without a key", "one task", "no records"],
)
def test_the_summary_names_a_task_that_gets_most_records_and_is_busy(
    records: tuple[int, ...], busy_s: float, step: str, share: str
) -> None:
    lines = [line for line in summary_lines(_status(records, busy_s, step), 10.0, {}, [], KEYED) if "gets" in line]
    expected = [f"  count/1 gets {share} of the records of count"]
    assert lines == (expected if share else [])


@pytest.mark.parametrize(
    ("records", "hot_key_share", "named"),
    [
        ((100, 300, 100, 100), 0.66, ", the key 'ann' alone 33%"),
        ((100, 300, 100, 100), 0.5, None),
        ((100, 140), 0.9, None),
        ((100, 160), 0.9, ", the key 'ann' alone 55%"),
        ((10, 920, 30, 40), 0.3, ""),
    ],
    ids=["a third", "a quarter", "equal tasks", "two tasks", "many keys"],
)
def test_the_hottest_key_is_named_if_it_has_much_of_its_step(
    records: tuple[int, ...], hot_key_share: float, named: str | None
) -> None:
    status = _status(records, 8.0)
    tasks = tuple(replace(task, hot_key="'ann'", hot_key_share=hot_key_share) for task in status.tasks)
    lines = summary_lines(replace(status, tasks=tasks), 10.0, {}, [], KEYED)[2:]
    advice = "; where the step aggregates, split_hot_keys=True divides it, else take a finer key" if named else ""
    expected = f"  count/1 gets {records[1] / sum(records):.0%} of the records of count{named}{advice}"
    assert lines == ([] if named is None else [expected])


def test_the_live_lines_name_a_task_that_gets_most_records_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("clonos.job.live_table.time.monotonic", lambda: now[0])
    screen = io.StringIO()
    table = LiveTable(Console(file=screen, width=250))
    for second in range(6):
        table.show(_status((10_000, second * 900, second * 10), second * 0.9), frozenset(), KEYED)
        now[0] += 1
    assert "; count/1 gets 99% of the records of count" in screen.getvalue()


def test_steps_after_a_key_are_keyed() -> None:
    graph = JobGraph("job")
    read = graph.source(Given([1]), name="read").map(str, name="text")
    read.key_by(str).count(name="count").sink(Outbox())
    assert keyed_steps(graph.compile(Options(), parallelism=2).plan) == {"count"}


def test_a_run_whose_widths_have_changed_names_no_hot_task() -> None:
    status = _status((10, 920, 30, 40), 8.0)
    changed = replace(status, rescale=RescaleState(1, RescalePhase.DONE, {}, ""))
    assert hot_tasks_of_run(status, KEYED, 10.0)
    assert hot_tasks_of_run(changed, KEYED, 10.0) == []
