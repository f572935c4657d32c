"""Steps with ``split_hot_keys=True`` in random jobs: parts are made in front of their exchange, whatever dies."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from clonos.operators.windows.partial_step import PartialStep
from clonos_chaos.jobs.aggregate_jobs import AggregateJob
from clonos_chaos.jobs.api_jobs import ApiJob
from clonos_chaos.jobs.columns.column_jobs import ColumnJob
from clonos_chaos.jobs.eager_parts import EagerPartials, EagerRows
from clonos_chaos.jobs.graphs.graph_jobs import GraphJob
from clonos_chaos.jobs.window_jobs import LateJob, WindowJob

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

SPLIT: dict[type[ApiJob], set[tuple[type[PartialStep], str]]] = {
    AggregateJob: {(EagerRows, "aggregate"), (EagerRows, "window_aggregate")},
    WindowJob: {(EagerRows, "window_aggregate")},
    LateJob: {(EagerRows, "window_aggregate")},
    GraphJob: {(EagerRows, "aggregate"), (EagerRows, "window_aggregate")},
    ColumnJob: {
        (EagerPartials, "aggregate"),
        (EagerPartials, "window_aggregate"),
        (EagerRows, "aggregate"),
        (EagerRows, "window_aggregate"),
    },
}
"""What makes parts in jobs of a kind, and the kinds of steps that they are of."""

JOBS = 150
COLUMN_JOBS = 240


@pytest.mark.parametrize("kind", SPLIT)
def test_random_jobs_have_split_steps_of_rows_and_of_columns(
    kind: type[ApiJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    create = PartialStep.__init__

    def creating(self: PartialStep, step: str, *arguments: Any) -> None:
        found.add((type(self), step.rstrip("-0123456789")))
        create(self, step, *arguments)

    monkeypatch.setattr(PartialStep, "__init__", creating)
    for seed in range(COLUMN_JOBS if kind is ColumnJob else JOBS):
        job = kind("split", Random(seed), 40, None)
        for vertex in range(len(job.plan.vertices)):
            job.new_chain(vertex)
    assert found >= SPLIT[kind]
