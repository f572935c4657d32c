"""Tasks that may have a key which a user has written: no text is beyond it."""

from __future__ import annotations

import pytest

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.operators.key_places import tasks_of_key
from tests.unit.operators.driver import Given, Outbox


def _plan() -> Plan:
    graph = JobGraph("job")
    graph.source(Given([1])).key_by(lambda number: number).count(name="count").sink(Outbox())
    return graph.compile(Options(), parallelism=4).plan


@pytest.mark.parametrize(
    "key", ["{[1]: 2}", "a\0b", "\ud800", "1" * 5000, "(" * 4000, "", "17", "('a', 17)"], ids=ascii
)
def test_a_key_of_any_text_has_its_tasks_or_none(key: str) -> None:
    plan = _plan()
    vertex = next(number for number, each in enumerate(plan.vertices) if "count" in each.name)
    assert len(tasks_of_key(plan, vertex, key)) <= 2
