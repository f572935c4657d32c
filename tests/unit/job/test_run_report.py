"""Which numbers the summary of a run has for a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import files, sqlite, stdout
from clonos.core.coordinator.coordinator_effects import Milestone
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskPhase
from clonos.job.run_report import immediate_outputs, records_out, recovery_sentence, steps_with_sinks, summary_lines
from clonos.status import Phase, Status, TaskState
from tests.harnesses.coordinator_harness import live_chain
from tests.harnesses.late_families import late_families
from tests.unit.connectors.writing import JOB, part_of
from tests.unit.operators.driver import Given, Outbox


def _plan(*, is_immediate: bool = False, has_count: bool = True) -> Plan:
    graph = JobGraph("job", errors=Outbox())
    read = graph.source(Given([1, 2, 3]), name="read").map(str, name="text")
    if has_count:
        read.key_by(str).count(name="count").sink(Outbox())
    else:
        read.sink(stdout() if is_immediate else Outbox())
    return graph.compile(Options(), parallelism=1).plan


def _task(name: str, records_in: int) -> TaskState:
    return TaskState(f"{name}/0", 1, 7, 4711, "process-1", TaskPhase.LIVE, {"records_in": records_in}, 1, 1)


def test_a_step_has_sent_what_the_next_one_has_received() -> None:
    plan = _plan()
    first, second, errors = (vertex.name for vertex in plan.vertices)
    tasks = [_task(first, 200), _task(second, 152), _task(errors, 48)]
    assert records_out(plan, tasks) == {first: 152}
    assert steps_with_sinks(plan) == {second, errors}


@pytest.mark.parametrize("is_immediate", [False, True])
def test_rows_of_the_error_output_are_not_what_a_step_with_a_sink_has_sent(is_immediate: bool) -> None:
    plan = _plan(is_immediate=is_immediate, has_count=False)
    step, errors = (vertex.name for vertex in plan.vertices)
    assert records_out(plan, [_task(step, 200), _task(errors, 48)]) == {}
    assert steps_with_sinks(plan) == {step, errors}


def test_the_summary_counts_failed_records_apart_from_the_steps() -> None:
    tasks = (_task("read", 200), _task("errors", 48))
    lines = summary_lines(Status("job", Phase.ENDED, tasks=tasks), 1.5, {}, ["/out (152 rows)"])
    assert lines[1:] == ["  read  200 in", "  48 failed records in the error output", "  output: /out (152 rows)"]
    tasks = (_task("read", 200), _task("errors", 0))
    lines = summary_lines(Status("job", Phase.ENDED, tasks=tasks), 1.5, {}, [])
    assert lines == ["  1.5 s, no checkpoint", "  read  200 in"]


def test_the_summary_names_the_last_checkpoint_because_some_may_have_been_abandoned() -> None:
    assert summary_lines(Status("job", Phase.ENDED, checkpoint=7), 1.5, {}, []) == ["  1.5 s, last checkpoint 7"]


def test_the_summary_counts_late_records_by_step() -> None:
    tasks = tuple(
        replace(_task(vertex, 10), name=f"{vertex}/{index}", metrics=late_families(**late))
        for vertex, index, late in [
            ("read", 0, {}),
            ("average-merge", 0, {"average": 1_200}),
            ("average-merge", 1, {"average": 34, "merge": 5}),
        ]
    )
    lines = summary_lines(Status("job", Phase.ENDED, tasks=tasks), 1.5, {"read": 20}, [])
    assert lines[1:] == [
        "  read           10 in, 20 out",
        "  average-merge  20 in, late: average 1,234, merge 5",
    ]


def test_the_summary_has_the_rows_that_an_immediate_sink_has_written(tmp_path: Path) -> None:
    graph = JobGraph("job")
    rows = graph.source(Given([1, 2, 3]), name="read")
    rows.sink(sqlite(tmp_path / "out.db", "words"), parallelism=2, name="table")
    rows.sink(Outbox(), name="own", parallelism=3)
    image = graph.compile(Options(), parallelism=1)
    tasks = [
        TaskState(f"{step}/{index}", 1, 7, 4711, "process-1", TaskPhase.LIVE, {"rows_written": count}, 1, 1)
        for step, index, count in [("table", 0, 2), ("table", 1, 1), ("own", 0, 1)]
    ]
    assert immediate_outputs(image, tasks) == ["table words (3 rows)", "own (1 row)"]


def test_sinks_know_how_many_rows_they_have_written(tmp_path: Path) -> None:
    for sink in (stdout(lambda row: ""), files.jsonl(tmp_path / "out")):
        sink.prepare_output(JOB, False, False)
        assert sink.rows_written() == 0
        parts = [part_of(sink, 1, [1, 2]), part_of(sink, 1, [3], index=1)]
        for _ in range(2):  # a repeated commit counts once
            sink.commit(JOB, 1, parts)
        assert sink.rows_written() == 3


def test_a_recovery_is_described_although_its_task_has_failed_again_since() -> None:
    harness = live_chain()
    harness.gone(harness.of(2).hosting_slot)
    harness.tick(100)
    task, incarnation = harness.of(2).task, harness.of(2).incarnation
    harness.receive(harness.of(2).hosting_slot, harness.failure(2))
    recoveries = [each for each in harness.coordinator.recoveries if each.task == task]
    assert [each.has_reached(Milestone.REPLAYED) for each in recoveries] == [True, False]
    sentence = recovery_sentence(task, incarnation, harness.coordinator)
    assert sentence.startswith("map/0 recovered in 0 ms")
    assert "0 records replayed, no record lost (" in sentence, "calls may be repeated, so it speaks of records"
