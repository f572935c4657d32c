"""State that operators declare: a step opens no other, and a stored name has one declaration."""

from __future__ import annotations

import ast
import inspect
import textwrap
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import clonos.operators
from clonos.core.ports.operator_chain import ChainContext
from clonos.operators.chain import Node, OperatorChain, VertexImage
from clonos.operators.event_time.source_watermarks import SourceWatermarks, least_times
from clonos.operators.operator import Operator, Scope
from clonos.operators.state.declared_state import DeclaredState, StateUndeclared, StepState
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_descriptors import MapState, ValueState
from clonos.operators.state.state_spec import ANY, StateKind, StateScope, StateSpec, keyed, small
from clonos.operators.steps.process import Process
from clonos.operators.steps.two_input_process import TwoInputProcess
from tests.unit.operators.driver import Clock

COUNTS = keyed("counts")
PANES = keyed(f"pane/{ANY}")
ROWS = StateSpec("rows", StateKind.ROWS, StateScope.DRAINED)


class Counts(Operator):
    """Opens a table, and declares what a test says."""

    declared: tuple[StateSpec, ...] = ()

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return self.declared

    def open(self, scope: Scope) -> None:
        scope.state.table(COUNTS)


def chain_of(declared: tuple[StateSpec, ...]) -> OperatorChain:
    def make() -> Counts:
        made = Counts()
        made.declared = declared
        return made

    return VertexImage("counts", (Node("words", make),)).new_chain()


def opened(declared: tuple[StateSpec, ...]) -> None:
    nobody: Any = None
    context = ChainContext("words/0", 0, 0, 1, 128, "job", 0, 1, Clock(), nobody, "")
    chain_of(declared).open(context, None, None)


def test_a_step_opens_state_that_it_declares_whatever_divides_it() -> None:
    for declared in (COUNTS, COUNTS.by_key(False)):
        opened((declared,))


@pytest.mark.parametrize(
    "declared",
    [(), (keyed("others"),), (small("counts", StateScope.KEYED),), (keyed("counts", key_place=(0, 1)),)],
    ids=["none", "of another name", "otherwise", "with another key"],
)
def test_a_step_cannot_open_state_that_it_does_not_declare(declared: tuple[StateSpec, ...]) -> None:
    with pytest.raises(StateUndeclared, match="the step words opens the state"):
        opened(declared)


def test_numbered_state_is_declared_once_and_found_by_its_numbers() -> None:
    backend, image = StateBackend(None), StateImage()
    state = StepState(backend, "words", (PANES,))
    for number in (11, -2, 5):
        state.table(PANES, number).set("a", number)
    state.drop(PANES, 5)
    image.apply(backend.changes(True))
    assert sorted(image.tables) == ["words/pane/-2", "words/pane/11"]
    again = StepState(StateBackend(image), "words", (PANES,))
    assert again.restored(PANES) == [-2, 11]
    with pytest.raises(StateUndeclared):
        again.table(keyed(f"late/{ANY}"), 5)


def test_rows_are_not_opened_as_a_table() -> None:
    with pytest.raises(StateUndeclared):
        StepState(StateBackend(None), "words", (ROWS,)).table(ROWS)


def test_restored_state_that_no_step_declares_stays_in_the_snapshots() -> None:
    backend, image, again = StateBackend(None), StateImage(), StateImage()
    backend.table("gone/counts").set("a", 1)
    image.apply(backend.changes(True))
    restored = StateBackend(image)
    StepState(restored, "words", (COUNTS,)).table(COUNTS)
    again.apply(restored.changes(True))
    assert again.tables["gone/counts"] == {"a": 1}


class Rules:
    """Has state of keys with a ttl, and broadcast state."""

    seen = ValueState("seen", 0, ttl="1h")
    rules = MapState[str, int]("rules")

    def process_first(self, value: int, context: Any) -> None:
        context.state(self.seen).value += 1

    def process_second(self, value: int, context: Any) -> None:
        context.broadcast_state(self.rules)["all"] = value


def test_a_stored_name_has_one_declaration() -> None:
    nodes = (
        Node("a", lambda: TwoInputProcess("a", Rules(), True, True)),
        Node("b", lambda: Process("b", Rules(), False)),
    )
    declared = VertexImage("steps", nodes).declared_state()
    scopes = {
        name: (found[1].scope, found[1].key_place, found[2].replace(ANY, ""))
        for name in (
            "a/seen",
            "a/seen//ttl",
            "a//timers",
            "a/broadcast/rules",
            "b/seen",
            "a//strange",
            "c/seen",
            "/ends",
        )
        if (found := declared.find(name)) is not None
    }
    assert scopes == {
        "a/seen": (StateScope.KEYED, (0,), "seen"),
        "a/seen//ttl": (StateScope.KEYED, (0,), "seen"),
        "a//timers": (StateScope.KEYED, (0, 1), ""),
        "a/broadcast/rules": (StateScope.UNION, (0,), "rules"),
        "b/seen": (StateScope.FIXED, (0,), "seen"),
        "/ends": (StateScope.EQUAL, (0,), ""),
    }


def test_state_without_a_key_is_declared_with_a_reason() -> None:
    (spec,) = {
        spec.reason for _, spec in DeclaredState([("b", spec) for spec in Process("b", Rules(), False).state_specs])
    }
    assert spec == "its records have no key, so that nothing tells which task needs which of its state"


def classes() -> list[type[Operator]]:
    """Returns all classes of operators of the product."""
    for module in walk_packages(clonos.operators.__path__, "clonos.operators."):
        import_module(module.name)
    found: list[type[Operator]] = [Operator]
    for each in found:
        found += [one for one in each.__subclasses__() if one.__module__.startswith("clonos.") and one not in found]
    return found


def opens_state(cls: type[Operator]) -> bool:
    """Returns whether a class has code that takes the state of its scope."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    return any(
        isinstance(node, ast.Attribute) and node.attr == "state" and ast.unparse(node.value) == "scope"
        for node in ast.walk(tree)
    )


def test_each_operator_that_opens_state_declares_it() -> None:
    opening = tuple(filter(opens_state, classes()))
    assert len(opening) >= 20, opening
    last = [cls for cls in classes() if issubclass(cls, opening) and not cls.__subclasses__()]
    assert [cls.__qualname__ for cls in last if cls.state_specs is Operator.state_specs] == []


def test_the_watermark_of_a_joined_input_is_the_least_of_all() -> None:
    tasks = [SourceWatermarks([0], 0, 0) for _ in range(3)]
    for task, reached_ns in zip(tasks, (30, 10, None), strict=True):
        task.begin(0)
        task.reach(0, reached_ns)
    for count, expected in ((1, 30), (2, 10), (3, None)):
        joined = SourceWatermarks([0], 0, 0)
        joined.restore(least_times([task.state() for task in tasks[:count]]))
        assert joined.reached_ns(0) == expected
