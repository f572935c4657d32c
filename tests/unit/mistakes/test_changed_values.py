"""Values that user code changes in place after they were emitted, or that another branch of the stream gets too."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pytest

from clonos import ListState, MapState, ValueState, clock, register
from clonos.api.graph import JobGraph
from clonos.core.values.copying import copied, copied_rows
from clonos.operators.operator import Fork, Operator, Times
from clonos.operators.steps import process
from clonos.operators.user_errors import RoutedError
from tests.unit.operators.driver import Given, Outbox, run

ROWS = [{"k": "a", "n": n} for n in range(1, 5)]
RUNNING = [1, 3, 6, 10]


@register
@dataclass
class Total:
    """A mutable record."""

    n: int
    parts: list[int]


def add_to_dict(total: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    total["n"] += row["n"]
    return total


def add_to_record(total: Total, other: Total) -> Total:
    total.n += other.n
    total.parts += other.parts
    return total


def rows_of(step: Any, rows: list[Any]) -> list[Any]:
    """Returns what a step emits for rows of one key."""
    graph = JobGraph("job")
    step(graph.source(Given(rows)).key_by(lambda _: "a")).sink(Outbox())
    (written,) = run(graph, 1).written.values()
    return written


def test_reduce_in_place_emits_each_value_so_far() -> None:
    assert [row["n"] for _, row in rows_of(lambda keyed: keyed.reduce(add_to_dict), ROWS)] == RUNNING


def test_reduce_of_registered_records_in_place_emits_each_value_so_far() -> None:
    totals = [Total(n, [n]) for n in range(1, 5)]
    emitted = [total for _, total in rows_of(lambda keyed: keyed.reduce(add_to_record), totals)]
    assert emitted == [Total(sum(range(n + 1)), list(range(1, n + 1))) for n in range(1, 5)]


@pytest.mark.parametrize(
    "wrap",
    [lambda state: state, lambda state: {"so far": state}, lambda state: ("so far", state)],
    ids=["bare", "in a dict", "in a tuple"],
)
def test_stateful_map_emits_its_state_as_it_is_now(wrap: Any) -> None:
    def add(key: str, state: list[int] | None, row: dict[str, Any]) -> tuple[Any, Any]:
        state = state if state is not None else []
        state.append(row["n"])
        return state, wrap(state)

    expected = [wrap([1, 2, 3, 4][: n + 1]) for n in range(4)]
    assert rows_of(lambda keyed: keyed.stateful_map(add), ROWS) == expected


def test_a_copy_shares_no_mutable_part_and_immutable_values_are_not_copied() -> None:
    value = {"list": [{"a": [1]}], "tuple": ([2],), "set": {3}, "record": Total(1, [1])}
    copy = copied(value)
    assert copy == value
    for part in (value["list"][0]["a"], value["tuple"][0], value["record"].parts):  # type: ignore[index, attr-defined]
        part.append(9)
    value["set"].add(9)  # type: ignore[attr-defined]
    assert copy == {"list": [{"a": [1]}], "tuple": ([2],), "set": {3}, "record": Total(1, [1])}
    for rows in ([1, "a", None], [(1, "a"), (2, None)], [RoutedError("step", 1, "error", ""), (2,)]):
        assert copied_rows(rows) is rows


def test_a_value_that_cannot_be_copied_is_shared() -> None:
    uncopyable = (value for value in "ab")
    assert copied(uncopyable) is uncopyable
    (shared,) = copied_rows([[uncopyable]])
    assert shared[0] is uncopyable


def masked(row: dict[str, Any]) -> dict[str, Any]:
    row["n"] = 0
    return row


@pytest.mark.parametrize("masks_first", [True, False])
def test_a_branch_that_changes_its_rows_leaves_those_of_the_other_branch(masks_first: bool) -> None:
    graph = JobGraph("job")
    rows = graph.source(Given([dict(row) for row in ROWS]))
    branches = [lambda: rows.map(masked, name="masked"), lambda: rows.filter(bool, name="kept")]
    for branch in branches if masks_first else reversed(branches):
        branch().rebalance().map(itemgetter("n")).sink(Outbox())
    assert sorted(run(graph, 1).written.values()) == [[0, 0, 0, 0], [1, 2, 3, 4]]


class Held(Operator):
    """A consumer that holds its rows until the end of the step, as an edge does."""

    def __init__(self, *, changes_rows: bool = True) -> None:
        self.changes_rows = changes_rows
        self.held: list[Any] = []

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.held = rows


class Masking(Held):
    """A consumer that changes its rows."""

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.held = list(map(masked, rows))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("changes_rows", [True, False])
def test_rows_that_a_consumer_holds_are_not_changed_by_its_siblings(place: int, changes_rows: bool) -> None:
    consumers = [Held(changes_rows=changes_rows), Held(changes_rows=changes_rows)]
    consumers.insert(place, Masking())
    Fork(consumers).rows([dict(row) for row in ROWS])
    for number, consumer in enumerate(consumers):
        assert [row["n"] for row in consumer.held] == ([0, 0, 0, 0] if number == place else [1, 2, 3, 4])


def test_consumers_share_rows_that_none_of_them_changes_and_immutable_rows() -> None:
    rows: list[Any] = [dict(row) for row in ROWS]
    edges = [Held(changes_rows=False), Held(changes_rows=False)]
    Fork(edges).rows(rows)
    assert all(edge.held is rows for edge in edges)
    steps, words = [Held(), Held()], ["a", "b"]
    Fork(steps).rows(words)
    assert all(step.held is words for step in steps)


GLOBAL = ListState[int]("global")


class Emitting:
    """Emits state and clears it every third time."""

    listed = ListState[int]("listed")
    mapped = MapState[int, int]("mapped")
    held = ValueState[Any]("held", default=[])

    def process(self, row: dict[str, Any], context: Any) -> None:
        """Emits the state bare, and inside of values."""
        number = row["n"]
        if number == 4:
            context.state(self.listed).clear()
            context.state(self.mapped).clear()
        context.state(self.listed).append(number)
        context.state(self.mapped)[number] = number
        context.state(self.held).value.append(number)
        context.emit(context.state(self.listed))
        context.emit({"mapped": [context.state(self.mapped)]})
        context.emit((context.state(self.held).value,))


class EmittingGlobal:
    """Yields state whose descriptor is a global."""

    def process(self, row: dict[str, Any], context: Any) -> Any:
        """Yields the list so far."""
        numbers = context.state(GLOBAL)
        numbers.append(row["n"])
        yield numbers


class EmittingInline:
    """Emits state whose descriptor is created when it is used."""

    def process(self, row: dict[str, Any], context: Any) -> None:
        """Emits the list so far."""
        numbers = context.state(ListState("inline"))
        numbers.append(row["n"])
        context.emit(numbers)


def test_process_emits_state_as_it_is_now() -> None:
    emitted = rows_of(lambda keyed: keyed.process(Emitting), ROWS)
    lists = [[1], [1, 2], [1, 2, 3], [4]]
    assert emitted[0::3] == lists
    assert emitted[1::3] == [{"mapped": [{n: n for n in numbers}]} for numbers in lists]
    assert emitted[2::3] == [([1],), ([1, 2],), ([1, 2, 3],), ([1, 2, 3, 4],)]


class Late:
    """Emits its state from a timer and changes it afterwards."""

    listed = ListState[int]("listed")

    def process(self, row: dict[str, Any], context: Any) -> None:
        """Appends the number and sets the timer."""
        context.state(self.listed).append(row["n"])
        context.set_timer(clock.time() + 60)

    def on_timer(self, timestamp: Any, context: Any) -> None:
        """Emits the list and clears it."""
        context.emit(context.state(self.listed))
        context.state(self.listed).clear()


@pytest.mark.parametrize("function", [EmittingGlobal, EmittingInline])
def test_descriptors_outside_of_the_class_are_seen(function: type) -> None:
    assert rows_of(lambda keyed: keyed.process(function), ROWS) == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]


def test_a_timer_emits_state_as_it_is_now() -> None:
    assert rows_of(lambda keyed: keyed.process(Late), ROWS)[0] == [1, 2, 3, 4]


class Counting:
    """Emits its own row, with a count that cannot change in place."""

    count = ValueState("count", default=0)

    def process(self, row: Any, context: Any) -> None:
        """Counts the rows and emits the row."""
        context.state(self.count).value += 1
        context.emit(row)


class Replacing:
    """Has state that is a number at first, then a dict, which it emits and changes."""

    total = ValueState[Any]("total", default=0)

    def process(self, row: dict[str, Any], context: Any) -> Any:
        """Yields the dict so far."""
        state = context.state(self.total)
        if state.value == 0:
            state.value = {"n": 0}
        state.value["n"] += row["n"]
        yield state.value


def test_state_that_becomes_mutable_is_emitted_as_it_is_now() -> None:
    assert [row["n"] for row in rows_of(lambda keyed: keyed.process(Replacing), ROWS)] == RUNNING


@pytest.mark.parametrize(("function", "copies"), [(Counting, False), (Emitting, True)])
def test_only_functions_with_mutable_state_emit_copies(
    function: type, copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_values: list[Any] = []

    def counted(value: Any) -> Any:
        copied_values.append(value)
        return copied(value)

    monkeypatch.setattr(process, "copied", counted)
    rows_of(lambda keyed: keyed.process(function), ROWS)
    assert bool(copied_values) is copies


@register
@dataclass(eq=False)
class Unequal:
    """A mutable record with a hash."""

    n: int


def test_state_with_a_hash_that_may_change_in_place_is_emitted_as_it_is_now() -> None:
    def add(key: Any, state: Any, row: dict[str, Any]) -> Any:
        state = state or (Unequal(0),)
        state[0].n += row["n"]
        return state, state

    assert [state[0].n for state in rows_of(lambda keyed: keyed.stateful_map(add), ROWS)] == RUNNING
