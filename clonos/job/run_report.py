"""Sentences about a run: each recovery when it has ended, what a stop waits for, and the summary at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clonos.api.step_graph import ERRORS_STEP
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_state import JobPhase
from clonos.core.model.ids import TaskId
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskCounter
from clonos.core.placement.survivability import names_of
from clonos.job.skew import hot_tasks_of_run
from clonos.job.starting import rows_text
from clonos.job.status_view import recovery_state
from clonos.operators.connector_contract import ImmediateSink, TransactionalSink
from clonos.operators.job_image import JobImage
from clonos.status import RecoveryState, Status, TaskState, by_step, late_by_step, late_text

RECOVERIES_SHOWN_MAX = 5
BEFORE_TASKS = (JobPhase.IDLE, JobPhase.LISTENING, JobPhase.STARTING)
NANOSECONDS_PER_MS = 1_000_000


def recovery_sentence(task: TaskId, incarnation: int, coordinator: Coordinator) -> str:
    """Returns how the recovery went that made this incarnation of a task, which may have failed again since."""
    recovery = next(each for each in coordinator.recoveries if each.task == task and each.incarnation == incarnation)
    assert coordinator.view is not None, task
    name, slot = recovery.name, coordinator.view.placements[task].slot
    register = next((found for found in coordinator.slots if found.slot == slot), None)
    where = "" if register is None else f" in process {register.pid} of {register.domain}"
    took = _took(recovery_state(recovery))
    records = coordinator.counters.get(task, {}).get(TaskCounter.REPLAYED_RECORDS, 0)
    replayed = f"{records:,} {'record' if records == 1 else 'records'} replayed"
    if recovery.is_move:
        return f"{name} has moved in {took}{where}"
    if recovery.failed is None:
        return f"{name} runs again from checkpoint {coordinator.checkpoint} after {took}{where}"
    if recovery.cause.startswith("it raised"):
        return f"{name} was restarted in {took}{where} and takes its input again, because {recovery.cause}"
    return f"{name} recovered in {took}{where}: {replayed}, no record lost ({recovery.cause})"


def what_a_stop_waits_for(coordinator: Coordinator) -> str:
    """Returns which tasks have not taken the final checkpoint, or what is missing before they can."""
    if coordinator.phase in BEFORE_TASKS:
        count = len(coordinator.slots)
        return f"no task runs yet, {count} {'process has' if count == 1 else 'processes have'} registered"
    missing = coordinator.awaited_by_drain
    if not missing:
        return "the output of the final checkpoint is being committed"
    return f"{names_of(coordinator.plan, missing)} {'has' if len(missing) == 1 else 'have'} not taken it yet"


def records_out(plan: Plan, tasks: Iterable[TaskState]) -> dict[str, int]:
    """Returns what each step has sent, as the tasks after it have received it; without steps before a merge, steps
    that write to a sink themselves, and rows of the error output."""
    sinks = steps_with_sinks(plan)
    received = by_step(tasks, TaskCounter.RECORDS_IN)
    found: dict[str, int] = {}
    for edge in plan.edges:
        step = plan.vertices[edge.source].name
        if edge.target is None or step in sinks or plan.vertices[edge.target].name == ERRORS_STEP:
            continue
        if sum(other.target == edge.target for other in plan.edges) == 1:
            found.setdefault(step, received[plan.vertices[edge.target].name])
    return found


def immediate_outputs(image: JobImage, tasks: Iterable[TaskState]) -> list[str]:
    """Returns the external systems of immediate sinks, with the number of rows that they have confirmed."""
    written = by_step(tasks, TaskCounter.ROWS_WRITTEN)
    found = []
    for vertex, sink in sorted(image.sinks.items()):
        if isinstance(sink, ImmediateSink) and not isinstance(sink, TransactionalSink):
            name = image.plan.vertices[vertex].name
            table = getattr(sink, "table", "")
            found.append(f"{f'table {table}' if table else name} ({rows_text(written[name])})")
    return found


def steps_with_sinks(plan: Plan) -> frozenset[str]:
    """Returns the steps whose tasks write to a sink: the records that they send to other tasks are not all output."""
    immediate = {plan.vertices[edge.source].name for edge in plan.edges if edge.target is None}
    return frozenset(immediate | {vertex.name for vertex in plan.vertices if vertex.is_transactional})


def summary_lines(
    status: Status,
    seconds: float,
    sent: Mapping[str, int],
    outputs: Iterable[str],
    keyed: frozenset[str] = frozenset(),
) -> list[str]:
    """Returns the lines about a run that has ended: times, recoveries, records and late ones by step, and where the
    output is.

    ``keyed``: the steps that share records by key, whose skew is said.
    """
    number = status.checkpoint
    last = f"last checkpoint {number}" if number else "no checkpoint"  # a number of an abandoned one counts too
    lines = [f"  {seconds:.1f} s, {last}{_recoveries(status.recoveries)}"]
    received = by_step(status.tasks, TaskCounter.RECORDS_IN)
    failed = received.pop(ERRORS_STEP, 0)
    width = max(map(len, received), default=0)
    for step, count in received.items():
        out = f", {sent[step]:,} out" if step in sent else ""
        late = late_by_step(task for task in status.tasks if task.name.rpartition("/")[0] == step)
        refused = f", late: {late_text(late)}" if late else ""
        lines.append(f"  {step:{width}}  {count:,} in{out}{refused}")
    lines += [f"  {hot}" for hot in hot_tasks_of_run(status, keyed, seconds)]
    if failed:
        lines.append(f"  {failed:,} failed {'record' if failed == 1 else 'records'} in the error output")
    return [*lines, *(f"  output: {output}" for output in outputs)]


def _recoveries(recoveries: tuple[RecoveryState, ...]) -> str:
    if not recoveries:
        return ""
    shown = [f"{each.task} {_took(each)}" for each in recoveries[:RECOVERIES_SHOWN_MAX]]
    more = ", ..." if len(recoveries) > RECOVERIES_SHOWN_MAX else ""
    return f", {len(recoveries)} {'recovery' if len(recoveries) == 1 else 'recoveries'} ({', '.join(shown)}{more})"


def _took(recovery: RecoveryState) -> str:
    duration_ns = recovery.duration_ns
    return "not over" if duration_ns is None else f"{duration_ns / NANOSECONDS_PER_MS:,.0f} ms"
