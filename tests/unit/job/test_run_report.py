"""Which numbers the summary of a run has for a step."""

from __future__ import annotations

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import stdout
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskPhase
from clonos.job.run_report import records_out, steps_with_sinks
from clonos.status import TaskState
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
