"""Checks before the state of a savepoint is transferred to a job with other tasks."""

from __future__ import annotations

from itertools import chain

import msgspec
import pytest

from clonos.connectors import stdout, values
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, metadata_of_start
from clonos.core.checkpoint.snapshot import encode_snapshot
from clonos.core.log.call_usage import MODEL_SPENT
from clonos.core.model.ids import CheckpointId
from clonos.core.model.metric_series import Metric, MetricFamily, MetricKind, MetricSeries
from clonos.core.model.options import Options
from clonos.core.model.plan import refusals
from clonos.core.ports.task_snapshot import Snapshot
from clonos.job import Job
from clonos.job.continuing.state_transfer import StateTransfer, differences_of_transfer
from clonos.job.description import graph_of
from clonos.operators.job_image import JobImage
from tests.unit.inflight.samples import snapshot


def _image(*, total_parallelism: int = 2, has_key: bool = True, has_more: bool = False) -> JobImage:
    job = Job("numbers")
    numbers = job.source(values(range(10)), name="read", parallelism=1)
    if has_more:
        numbers = numbers.union(job.source(values(range(3)), name="read-more", parallelism=1))
    if has_key:
        keyed = numbers.key_by(lambda n: n % 3)
        keyed.count(name="total", parallelism=total_parallelism).sink(stdout(), name="show")
    numbers.limit(5, name="first").sink(stdout(), name="show-first")
    return graph_of(job).compile(Options(), parallelism=1)


def _metadata(image: JobImage, *ended: str) -> CheckpointMetadata:
    found = metadata_of_start(image.plan, "numbers-1", 1)
    return msgspec.structs.replace(
        found,
        tasks=tuple(
            msgspec.structs.replace(entry, final=image.plan.task_name(entry.task) in ended) for entry in found.tasks
        ),
    )


def test_state_of_a_step_whose_tasks_stay_fits_a_job_with_a_new_step_after_another_exchange() -> None:
    before, now = _image(has_key=False), _image()
    assert differences_of_transfer(_metadata(before), now, {0: "read"}) == ()


def test_keyed_state_fits_a_job_with_more_tasks() -> None:
    before, now = _image(), _image(total_parallelism=3)
    assert differences_of_transfer(_metadata(before), now, {0: "read"}) == ()


def test_a_step_that_cannot_be_divided_keeps_the_number_of_tasks_with_step_and_reason() -> None:
    plan = _image().plan
    (name,) = (vertex.name for vertex in plan.vertices if "first" in {step.name for step in vertex.steps})
    assert any("first cannot be divided, because it counts" in reason for reason in refusals(plan, {name: 2}))
    (total,) = (vertex.name for vertex in plan.vertices if "total" in {step.name for step in vertex.steps})
    assert refusals(plan, {total: 5}) == ()


def test_a_task_that_had_ended_and_would_get_new_input_is_named() -> None:
    before, now = _image(), _image(has_more=True)
    ended = [before.plan.task_name(task) for task in before.plan.tasks]
    found = differences_of_transfer(_metadata(before, *ended), now, {0: "read"})
    assert any("had ended, in contrast to those that send to it now" in text for text in found), found


COUNTED = Metric(MetricKind.COUNTER, "seen", "Records that code has seen.")


def _entries_at(
    before: JobImage, now: JobImage, records: dict[str, int], spending: tuple[str, ...] = ("copy",)
) -> dict[str, Snapshot]:
    """Returns the snapshots of the tasks of a job that goes on with other widths, by the names of the tasks.
    ``records``: what each task had counted. Each step of ``spending`` in a task had spent three times as much."""
    start, plan = metadata_of_start(before.plan, "numbers-1", 1), before.plan
    heads, entries = {}, []
    for entry in start.tasks:
        name = plan.task_name(entry.task)
        seen = MetricFamily(COUNTED, (MetricSeries((), (records[name] / 10,)),))
        nodes = {node.step for node in before.vertices[plan.vertex_of[entry.task]].nodes}
        series = (MetricSeries(("m", "USD", step), (records[name] * 3,)) for step in spending if step in nodes)
        spent = MetricFamily(MODEL_SPENT, tuple(series))
        counts = {"records_in": records[name], "metrics": (seen, spent)}
        head = msgspec.structs.replace(snapshot(1, ()), task=entry.task, **counts)
        heads[name] = [encode_snapshot(head)]
        entries.append(msgspec.structs.replace(entry, objects=(name,), snapshot=CheckpointId(1)))
    taken = msgspec.structs.replace(start, tasks=tuple(entries), checkpoint=CheckpointId(1))
    transfer = StateTransfer(taken, now, {0: "read"}, heads.__getitem__, is_same_job=True)
    written: dict[str, Snapshot] = {}

    def write(moved: Snapshot, _kind: str) -> str:
        written[now.plan.task_name(moved.task)] = moved
        return f"moved/{moved.task}"

    transfer.entries(CheckpointId(2), write)
    return written


def _numbers(head: Snapshot, metric: Metric) -> tuple[float, ...]:
    families = [family for family in head.metrics if family.metric.name == metric.name]
    return tuple(chain.from_iterable(each.numbers for family in families for each in family.series))


def test_tasks_keep_their_own_counts_at_another_width_and_the_first_takes_those_of_tasks_that_end() -> None:
    def image(width: int) -> JobImage:
        job = Job("numbers")
        rows = job.source(values(range(10)), name="read", parallelism=1).rebalance()
        rows.map(lambda n: n, name="copy", parallelism=width).sink(stdout(), name="show")
        return graph_of(job).compile(Options(), parallelism=1)

    two, three = image(2), image(3)
    names = [two.plan.task_name(task) for task in two.plan.tasks]
    counts = dict(zip(names, (100, 40, 60), strict=True))
    (copy,) = {name.rpartition("/")[0] for name in names[1:]}
    for before, now, found in ((two, three, (40, 60, 0)), (two, image(1), (100,))):
        heads = _entries_at(before, now, counts)
        here = [heads[f"{copy}/{index}"] for index in range(len(found))]
        assert tuple(head.records_in for head in here) == found
        assert [_numbers(head, COUNTED) for head in here] == [(count / 10,) if count else () for count in found]
        assert [_numbers(head, MODEL_SPENT) for head in here] == [(300 / len(found),)] * len(found), "equal parts"
        assert heads[names[0]].records_in == 100


def _asking(width: int, *exchanged: str) -> JobImage:
    """Job with the steps ask and check. ``exchanged``: those with an exchange in front of them."""
    job = Job("numbers")
    rows = job.source(values(range(10)), name="read", parallelism=1)
    for step in ("ask", "check"):
        rows = rows.rebalance() if step in exchanged else rows
        rows = rows.map(lambda n: n, name=step, parallelism=width)
    rows.sink(stdout(), name="show")
    return graph_of(job).compile(Options(), parallelism=1)


@pytest.mark.parametrize(
    ("before", "now", "records", "ask", "check"),
    [
        (_asking(2), _asking(1), (0, 40, 60), [300], [300]),
        (_asking(1), _asking(2), (100,), [150, 150], [150, 150]),
        (_asking(1, "ask"), _asking(1), (0, 100), [300], [300]),
        (_asking(2, "ask", "check"), _asking(2, "ask"), (0, 10, 20, 30, 40), [45, 45], [105, 105]),
        (_asking(2, "ask"), _asking(2, "ask", "check"), (0, 40, 60), [150, 150], [150, 150]),
        (_asking(2, "ask"), _asking(4, "check"), (0, 40, 60), [75] * 4, [75] * 4),
    ],
    ids=["narrower and chained", "wider and apart", "without the exchange", "merged", "split", "regrouped"],
)
def test_the_budget_of_a_step_goes_on_wherever_its_tasks_run(
    before: JobImage, now: JobImage, records: tuple[int, ...], ask: list[float], check: list[float]
) -> None:
    names = [before.plan.task_name(task) for task in before.plan.tasks]
    heads = _entries_at(before, now, dict(zip(names, records, strict=True)), ("ask", "check"))
    for step, spent in (("ask", ask), ("check", check)):
        series = [
            each
            for head in heads.values()
            for family in head.metrics
            if family.metric.name == MODEL_SPENT.name
            for each in family.series
        ]
        assert [each.numbers[0] for each in series if each.labels == ("m", "USD", step)] == spent, step
