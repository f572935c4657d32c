"""Event time in a chain: the order of timers, when a watermark is passed on, and steps that hold it back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.model.watermark import ACTIVE, IDLE, Activity, Watermark
from clonos.core.ports.operator_chain import ChainContext
from clonos.operators.chain import Input, Node, OperatorChain, VertexImage
from clonos.operators.chain_outputs import ToEdge, ToImmediateSink, ToKeys
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.state.keyed_state import StateImage
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.state.timers import Timers, timer_spec
from clonos.operators.steps.async_map import AsyncMap
from clonos.operators.steps.stateless import Map
from tests.unit.operators.driver import Clock

EVENT_TIMERS = timer_spec("event timers")

Row = tuple[Any, ...]


class Alarms(Operator):
    """Sets a timer at the first field of each row, and emits the row when it fires, later by ``shift``."""

    has_event_timers: ClassVar[bool] = True

    def __init__(self, step: str, shift: int = 0) -> None:
        self.step, self.shift = step, shift

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (EVENT_TIMERS,)

    def open(self, scope: Scope) -> None:
        self.timers = Timers(EVENT_TIMERS, scope.state)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        for instant, *path in rows:
            self.timers.set(instant, tuple(path))

    def next_event_ns(self) -> int | None:
        return self.timers.next_ns()

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return self.timers.due(until_ns)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            if self.timers.take(timer):
                instant, _, path = timer.token
                self.out.rows([(instant + self.shift, *path, f"{self.step} {instant}")])


class Collected:
    """What leaves the chain, in order."""

    def __init__(self) -> None:
        self.elements: list[Any] = []

    def rows(self, port: int, rows: list[Any], keys: Any = None, times: Any = None) -> None:
        self.elements += [row[1:] if port == 0 else (port, *row) for row in rows]

    def pairs(self, port: int, keys: list[Any], rows: list[Any], times: Any = None) -> None:
        raise AssertionError("no key")

    def columns(self, port: int, batch: Any, groups: Any = None) -> None:
        raise AssertionError("rows only")

    def watermark(self, port: int, watermark: Watermark) -> None:
        content = watermark.name if isinstance(watermark, Activity) else watermark
        self.elements.append(content if port == 0 else (port, content))

    def prepared(self, part: bytes) -> None:
        raise AssertionError("no sink")

    def reach_limit(self) -> None:
        pass

    def routed_error(self, description: bytes) -> bool:
        raise AssertionError("no errors")


class Calls(Clock):
    """Takes asynchronous calls; the test completes them."""

    def limit_calls(self, capacity: int, held_max: int = 0) -> None:
        pass

    def submit(self, number: int, service: str, request: bytes, perform: Any, parts: object = None) -> str:
        return "key"


def chain(*nodes: Node, restored: StateImage | None = None) -> tuple[OperatorChain, Collected]:
    made, collected = VertexImage("steps", nodes, (Input(0),)).new_chain(), Collected()
    context = ChainContext("steps/0", 0, 0, 1, 128, "job", 0, 1, Calls(), collected, "")
    made.open(context, restored, None)
    return made, collected


def to_edge(port: int = 0) -> Node:
    return Node("to edge", lambda: ToEdge(port))


def alarms(step: str, *children: int, shift: int = 0) -> Node:
    return Node(step, lambda: Alarms(step, shift), children)


def calling(*children: int, ordered: bool = True) -> Node:
    return Node("call", lambda: AsyncMap("call", lambda row: row, 9, ordered), children)


# ------------------------------------------------------------------ the order


def test_timers_fire_before_the_watermark_is_passed_on() -> None:
    made, collected = chain(alarms("a", 1), to_edge())
    made.process_rows(0, [(5, "x"), (9, "y")])
    made.advance_watermark(7)
    made.advance_watermark(9)
    assert collected.elements == [("x", "a 5"), 7, ("y", "a 9"), 9]


def test_timers_of_several_steps_fire_by_time_then_step_then_registration() -> None:
    made, collected = chain(alarms("a", 1, shift=2), alarms("b", 2), to_edge())
    made.process_rows(0, [(3, "x"), (1, "z"), (3, "w"), (-4, "early")])
    made.advance_watermark(5)
    fired = [("early", "a -4", "b -2"), ("z", "a 1", "b 3"), ("x", "a 3", "b 5"), ("w", "a 3", "b 5")]
    assert collected.elements == [*fired, 5]
    order = [entry.split()[-1] for row in fired for entry in row[1:]]
    assert order == ["-4", "-2", "1", "3", "3", "5", "3", "5"]


class Recorded(Alarms):
    """Records when it fires."""

    story: ClassVar[list[str]] = []

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self.story.extend(f"{self.step} {timer.instant_ns}" for timer in due)
        super().fire_events(due)


TIMES = st.lists(st.integers(-9, 9), max_size=8)


@given(TIMES, st.lists(st.integers(-9, 12), max_size=6), st.integers(0, 3))
def test_the_order_does_not_depend_on_how_many_watermarks_there_are(
    instants: list[int], watermarks: list[int], shift: int
) -> None:
    def fired(cuts: list[int]) -> list[str]:
        Recorded.story = []
        nodes = (Node("a", partial(Recorded, "a", shift), (1,)), Node("b", partial(Recorded, "b"), (2,)), to_edge())
        made, _ = chain(*nodes)
        if instants:
            made.process_rows(0, [(instant, number) for number, instant in enumerate(instants)])
        for watermark in cuts:
            made.advance_watermark(watermark)
        return Recorded.story

    assert fired([*sorted(set(watermarks)), 99]) == fired([99])


def test_a_timer_that_a_deletion_has_overtaken_does_not_fire() -> None:
    operator = Alarms("a")
    made, collected = chain(Node("a", lambda: operator, (1,)), to_edge())
    made.process_rows(0, [(5, "x")])
    operator.timers.delete(5, ("x",))
    made.advance_watermark(7)
    assert collected.elements == [7]


def test_timers_are_in_the_snapshot_in_the_order_of_their_registration() -> None:
    made, _ = chain(alarms("a", 1), to_edge())
    made.process_rows(0, [(5, "x"), (5, "b"), (5, "a")])
    image = StateImage()
    image.apply(made.snapshot(1, True).changes)
    again, collected = chain(alarms("a", 1), to_edge(), restored=image)
    again.advance_watermark(5)
    assert collected.elements == [("x", "a 5"), ("b", "a 5"), ("a", "a 5"), 5]


# ------------------------------------------------------------------ ways


def test_each_output_gets_the_watermark_and_idle_and_active_fire_nothing() -> None:
    keys = Node("keys", lambda: ToKeys([2, 3], lambda row: row[0], [False, False]))
    sink = Node("sink", lambda: ToImmediateSink(4))
    made, collected = chain(alarms("a", 1, 2, 3, 4), to_edge(0), to_edge(1), keys, sink)
    made.process_rows(0, [(5, "x")])
    made.advance_watermark(IDLE)
    made.advance_watermark(ACTIVE)
    made.advance_watermark(2)
    each = [[name, *((port, name) for port in (1, 2, 3, 4))] for name in ("IDLE", "ACTIVE", 2)]
    assert collected.elements == [element for elements in each for element in elements]


def test_at_the_end_each_step_has_seen_all_of_its_input_before_its_timers_fire() -> None:
    made, collected = chain(alarms("a", 1, shift=2), alarms("b", 2), to_edge())
    made.process_rows(0, [(3, "x"), (1, "z")])
    made.end_of_input()
    assert collected.elements == [("z", "a 1", "b 3"), ("x", "a 3", "b 5")]


# ------------------------------------------------------------------ held back


def test_a_watermark_waits_for_the_calls_before_it_and_not_for_those_after_it() -> None:
    made, collected = chain(calling(1), alarms("a", 2), to_edge())
    made.process_rows(0, [(3, "x"), (1, "y")])
    made.advance_watermark(5)
    made.advance_watermark(IDLE)
    made.advance_watermark(ACTIVE)
    made.process_rows(0, [(9, "z")])
    made.advance_watermark(9)
    made.complete(1, encode_outcome("call", (1, "y")))
    assert collected.elements == []
    made.complete(0, encode_outcome("call", (3, "x")))
    assert collected.elements == [("y", "a 1"), ("x", "a 3"), 5, "IDLE", "ACTIVE"]
    made.complete(2, encode_outcome("call", (9, "z")))
    assert collected.elements[5:] == [("z", "a 9"), 9]
    made.advance_watermark(12)
    assert collected.elements[7:] == [12]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_watermark_that_is_held_back_is_in_the_snapshot(ordered: bool) -> None:
    made, before = chain(calling(1, ordered=ordered), to_edge())
    made.process_rows(0, [(3, "x"), (1, "y")])
    made.advance_watermark(-5)
    made.complete(1, encode_outcome("call", (1, "y")))
    image = StateImage()
    image.apply(made.snapshot(1, True).changes)
    again, collected = chain(calling(1, ordered=ordered), to_edge(), restored=image)
    again.complete(0, encode_outcome("call", (3, "x")))
    assert [*before.elements, *collected.elements] == ([("x",), ("y",), -5] if ordered else [("y",), ("x",), -5])


def test_steps_in_front_of_a_step_that_holds_back_fire_without_waiting() -> None:
    made, collected = chain(alarms("a", 1), calling(2), alarms("b", 3), to_edge())
    made.process_rows(0, [(3, "x")])
    made.advance_watermark(4)
    assert collected.elements == []
    made.complete(0, encode_outcome("call", (3, "x", "called")))
    assert collected.elements == [("x", "called", "b 3"), 4]


def test_a_step_without_event_time_passes_watermarks_on() -> None:
    made, collected = chain(Node("map", lambda: Map(lambda row: row), (1,)), to_edge())
    made.advance_watermark(4)
    assert collected.elements == [4]
