"""Keys by the name of a field: of dicts, of objects, of NamedTuples, and of all of them in one stream."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest

from clonos.api.graph import JobGraph
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values import register
from tests.unit.operators.driver import Given, Outbox, run


@register
@dataclasses.dataclass(frozen=True)
class Bid:
    auction: int


@register
class Pair(NamedTuple):
    auction: int
    price: int


ROWS: list[Any] = [{"auction": 1}, Bid(1), Pair(1, 5), Bid(2), {"auction": 2}]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[1:2], ROWS[2:3]], ids=["all", "dict", "dataclass", "tuple"])
def test_the_name_of_a_field_is_the_key_of_dicts_and_of_objects(rows: list[Any]) -> None:
    graph = JobGraph("fields")
    graph.source(Given(rows)).key_by("auction").count().sink(Outbox())
    (found,) = run(graph).written.values()
    counts = {1: 0, 2: 0}
    expected = []
    for row in rows:
        key = row["auction"] if isinstance(row, dict) else row.auction
        counts[key] += 1
        expected.append((key, counts[key]))
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("row", [{"other": 1}, Bid(1), 5])
def test_a_record_without_the_field_fails_its_step(row: Any) -> None:
    graph = JobGraph("fields")
    graph.source(Given([row])).key_by("price", name="by_price").count().sink(Outbox())
    with pytest.raises(StepFailed, match="by_price"):
        run(graph)
