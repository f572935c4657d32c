"""Attributes of a context, a value and a descriptor that other systems have: answered by what to use."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from clonos import ListState, ValueState
from clonos.api.graph import JobGraph
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.state.state_descriptors import MapState
from tests.unit.operators.driver import Given, Outbox, run


def failed(line: str, opening: str = "pass") -> str:
    """Returns the error of a process function with this line."""
    names: dict[str, Any] = {"ValueState": ValueState, "ListState": ListState}
    code = (
        "class Function:\n    seen = ValueState('seen', default=0)\n    all = ListState('all')\n"
        f"    def open(self, context):\n        {opening}\n"
        f"    def process(self, value, context):\n        {line}\n"
    )
    exec(compile(code, "job.py", "exec"), names)  # noqa: S102  the code of the test itself
    graph = JobGraph("etl")
    graph.source(Given([1])).key_by(lambda number: number).process(names["Function"]).sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        run(graph, parallelism=1)
    assert raised.value.at.step == "process"
    return str(raised.value.__cause__)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("context.get_state('seen')", "a Context has no get_state. Declare the state in the class"),
        ("context.timer_service()", "a Context has no timer_service. Use set_timer("),
        ("context.register_processing_time_timer(1)", "Use set_timer("),
        ("context.collect(value)", "a Context has no collect. Use emit(result), or yield it."),
        ("context.current_key()", "a Context has no current_key. Use key"),
        ("context.emitt(value)", "a Context has no emitt. Did you mean emit?"),
        ("context.state(self.seen).update(1)", "a Value has no update. Assign it: state.value = ..."),
        ("context.state(self.seen).set(1)", "a Value has no set. Assign it"),
        ("context.state(self.seen).get()", "a Value has no get. Read it: state.value"),
        ("context.state(self.seen).append(1)", "a Value has no append. Use a ListState"),
        ("self.seen.value += 1", "a ValueState has no value. A descriptor holds no state: write context.state("),
        ("self.seen.value = 1", "a ValueState has no value. A descriptor holds no state"),
        ("self.seen.update(1)", "A descriptor holds no state"),
        ("self.all.append(1)", "a ListState has no append. A descriptor holds no state"),
    ],
)
def test_a_missing_attribute_is_answered_by_what_to_use(line: str, sentence: str) -> None:
    assert sentence in failed(line)


@pytest.mark.parametrize(("line", "sentence"), [("context.emit(1)", "before the first"), ("context.key", "no key yet")])
def test_a_context_in_open_refuses_to_emit_without_a_record(line: str, sentence: str) -> None:
    assert sentence in failed("pass", opening=line)


def test_descriptors_are_copied_and_pickled_as_before() -> None:
    for state in (ValueState("seen", default=[1]), ListState[int]("all"), MapState[int, int]("known")):
        for twin in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):  # noqa: S301
            assert (type(twin), twin.name) == (type(state), state.name)
        assert not hasattr(state, "value")
