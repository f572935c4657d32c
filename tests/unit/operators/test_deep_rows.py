"""Rows that a function has nested too deep: each is an error of its own, and the rows around it go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from clonos.api.graph import JobGraph
from clonos.core.values import register
from clonos.core.values.value_limits import VALUE_DEPTH_MAX
from clonos.operators.deep_rows import too_deep
from tests.unit.operators.driver import Given, Outbox, run


@register
class Node(msgspec.Struct):
    """A record of the user."""

    within: Any = None


def nested(depth: int, kind: Callable[[Any], Any] = lambda value: [value]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = kind(value)
    return value


def cyclic() -> Any:
    value: list[Any] = []
    value.extend([value, value])
    return value


MAKERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda value: [value, None],
    "dict": lambda value: {"a": value},
    "tuple": lambda value: (value, None),
    "record": Node,
}
STEPS: dict[str, Callable[[Any], Any]] = {
    "sink": lambda stream: stream,
    "exchange": lambda stream: stream.rebalance().map(lambda row: row),
    "chosen": lambda stream: stream.partition_custom(lambda row, tasks: 0).map(lambda row: row),
    "key": lambda stream: stream.key_by("n").reduce(lambda one, other: other).map(lambda pair: pair[1]),
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_row_that_is_too_deep_is_an_error_and_the_rows_around_it_go_on(steps: str, maker: str) -> None:
    def made(n: int) -> Any:
        return {"n": n, "x": nested(70 if n == 2 else 3, MAKERS[maker])}

    graph = JobGraph("job", errors=Outbox())
    STEPS[steps](graph.source(Given(range(5)), name="read").rebalance().map(made, name="make")).sink(
        Outbox(), name="out"
    )
    done = run(graph, parallelism=1)
    assert sorted(row["n"] for name in done.written if name != "errors" for row in done.written[name]) == [0, 1, 3, 4]
    (error,) = done.written["errors"]
    assert error.error.startswith("ValueBeyondLimit: depth of a value")
    assert error.record.startswith("{'n': 2, 'x': ")


def test_values_at_the_limit_go_on_and_those_that_contain_themselves_are_found() -> None:
    rows = [nested(VALUE_DEPTH_MAX - 1), nested(VALUE_DEPTH_MAX + 1), nested(3), cyclic(), nested(10**5)]
    assert [index for index, _ in too_deep([{"a": row} for row in rows])] == [1, 3, 4]
    shared = nested(40, lambda value: [value, value])  # two to the power of 40 paths
    assert list(too_deep([shared])) == []


def test_a_record_at_the_limit_that_raises_still_fits_into_its_error() -> None:
    def fail(row: Any) -> Any:
        raise ValueError("never")

    graph = JobGraph("job", errors=Outbox())
    stream = graph.source(Given([1]), name="read").map(lambda n: nested(VALUE_DEPTH_MAX), name="make")
    stream.rebalance().map(fail).sink(Outbox(), name="out")
    (error,) = run(graph, parallelism=1).written["errors"]
    assert error.record.startswith("[[[")
