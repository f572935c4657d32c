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
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import ChainContext, StepFailed
from clonos.core.values.keys import state_key
from clonos.operators.chain import Node, OperatorChain, VertexImage
from clonos.operators.event_time.source_watermarks import SourceWatermarks, least_times
from clonos.operators.operator import Operator, Scope
from clonos.operators.state.declared_state import DeclaredState, StateUndeclared, StepState
from clonos.operators.state.dividing import Division, StateUndivided
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_descriptors import InvalidOnRescale, ListState, MapState, ValueState
from clonos.operators.state.state_spec import ANY, StateKind, StateScope, StateSpec, keyed, small
from clonos.operators.steps.context import InvalidArgument
from clonos.operators.steps.process import Process
from clonos.operators.steps.two_input_process import TwoInputProcess
from tests.unit.operators.driver import Clock, Given, Outbox, Run

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
        "a/broadcast/rules": (StateScope.FIRST, (0,), "rules"),
        "b/seen": (StateScope.FIXED, (0,), "seen"),
        "/ends": (StateScope.EQUAL, (0,), ""),
    }


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


class Shares:
    """Has state without a key."""

    waiting = ListState[int]("waiting", on_rescale="deal", ttl="1h")
    rules = MapState[str, int]("rules", on_rescale="union")

    def process(self, value: int, context: Any) -> None:
        context.state(self.waiting).append(value)
        context.state(self.rules)[f"rule {value}"] = value
        if value < 0:
            context.state(ListState[int]("aside", on_rescale="deal"))


def test_items_of_state_without_a_key_are_dealt_to_tasks_or_given_to_all() -> None:
    declared = VertexImage("shares", (Node("s", lambda: Process("s", Shares, False)),)).declared_state()
    old = StateImage(), StateImage()
    old[0].tables = {
        "s/waiting": {None: [1, 2, 3]},
        "s/rules": {None: {"a": 1}},
        "s//timers": {state_key((5, None)): None},
    }
    old[1].tables = {"s/waiting": {None: [4]}, "s/rules": {None: {"b": 2, "a": 9}}, "s/waiting//ttl": {None: 70}}
    found = []
    for task in range(3):
        division = Division(declared, task, 3, 128)
        for image in old:
            division.add(image)
        found.append(division.result().tables)
    assert [tables["s/waiting"] for tables in found] == [{None: [1, 4]}, {None: [2]}, {None: [3]}]
    assert [tables["s/rules"] for tables in found] == [{None: {"a": 1, "b": 2}}] * 3
    assert [list(tables["s//timers"]) for tables in found] == [[state_key((5, None))]] * 3
    assert [tables["s/waiting//ttl"] for tables in found] == [{None: 70}] * 3


def test_state_without_a_key_and_without_a_rule_is_not_divided() -> None:
    declared = DeclaredState([("b", spec) for spec in Process("b", Rules(), False).state_specs])
    with pytest.raises(StateUndivided, match=r"the step b cannot change: its state has no key.*on_rescale"):
        Division(declared, 0, 2, 128)


def run(*values: int) -> None:
    graph = JobGraph("job")
    graph.source(Given(values), parallelism=1).process(Shares, name="s").sink(Outbox())
    Run(graph.compile(Options(), parallelism=1)).finish()


def test_a_step_without_a_key_uses_the_state_that_it_declares_for_its_tasks_and_no_other() -> None:
    run(1, 2)
    with pytest.raises(StepFailed) as raised:
        run(-1)
    assert isinstance(raised.value.__cause__, InvalidArgument)
    assert "Declare it as an attribute of the class with on_rescale" in str(raised.value.__cause__)


def test_another_rule_for_a_change_of_the_width_is_refused() -> None:
    with pytest.raises(InvalidOnRescale, match="'waiting' has on_rescale='keep'"):
        ListState("waiting", on_rescale="keep")  # type: ignore[arg-type]


def test_state_that_is_declared_by_its_name_lets_no_other_name_be_opened() -> None:
    state = StepState(StateBackend(None), "words", (PANES.named(3),))
    state.table(PANES, 3)
    with pytest.raises(StateUndeclared):
        state.table(PANES, 4)
