"""State and timers of a record that raised: as they were before it, if the record goes to the error output."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.values import register
from clonos.operators.state.state_descriptors import ListState, MapState, ValueState
from clonos.operators.steps.context import Context
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run

CHANGES = ("value", "clear", "list", "map", "mutable", "output", "set", "delete", "set event", "delete event")


@register
class Order(NamedTuple):
    """Record: changes of the state of its key, then perhaps an exception."""

    key: str
    number: int
    changes: tuple[str, ...] = ()
    raises: bool = False


Contexts = Context[str, tuple[Any, ...]]


def instant(number: int) -> datetime:
    """One of few instants, so that timers of several keys have the same."""
    return datetime.fromisoformat("2023-11-15T00:00:00Z") + timedelta(hours=number % 3 + 1)


class Ledger:
    """Changes all kinds of state as its records say, and emits all of it after each record."""

    value = ValueState[int | None]("value", default=None)
    mutable = ValueState[dict[str, list[int]]]("mutable", default={})
    items = ListState[int]("items")
    places = MapState[int, list[int]]("places")

    def process(self, order: Order, context: Contexts) -> None:
        for change in order.changes:
            self.change(change, order.number, context)
        self.emit_all(context)
        if order.raises:
            raise ValueError("this record is wrong")

    def change(self, change: str, number: int, context: Contexts) -> None:
        if change == "value":
            context.state(self.value).value = number
        elif change == "clear":
            context.state(self.value).clear()
            context.state(self.items).clear()
            context.state(self.mutable).clear()
        elif change == "list":
            context.state(self.items).append(number)
        elif change == "map":
            context.state(self.places).setdefault(number % 2, []).append(number)
        elif change == "mutable":
            context.state(self.mutable).value.setdefault("all", []).append(number)
        elif change == "set":
            context.set_timer(instant(number))
        elif change == "delete":
            context.delete_timer(instant(number))
        elif change == "set event":
            context.set_event_timer(instant(number))
        elif change == "delete event":
            context.delete_event_timer(instant(number))

    def emit_all(self, context: Contexts, *more: Any) -> None:
        states: Any = (self.value, self.mutable)
        values = [context.state(state).value for state in states]
        context.emit((context.key, *more, *values, context.state(self.items), context.state(self.places)))

    def on_timer(self, timestamp: datetime, context: Contexts) -> None:
        self.emit_all(context, "timer", timestamp)

    def on_event_timer(self, timestamp: datetime, context: Contexts) -> None:
        self.emit_all(context, "event timer", timestamp)


def ledger(orders: Iterable[Order], errors: bool = True) -> JobGraph:
    graph = JobGraph("job", errors=Outbox() if errors else None)
    timed = graph.source(Given(orders)).with_timestamps(lambda order: instant(-1) - timedelta(hours=9))
    timed.key_by(lambda order: order.key).process(Ledger, name="ledger").sink(Outbox())
    return graph


ORDERS = st.lists(
    st.builds(
        Order, st.sampled_from("ab"), st.integers(0, 5), st.lists(st.sampled_from(CHANGES)).map(tuple), st.booleans()
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=40, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(orders=ORDERS, records_max=st.sampled_from((1, 3, 7)))
def test_a_routed_record_leaves_all_state_and_timers_as_they_were(orders: list[Order], records_max: int) -> None:
    without_wrong = [order for order in orders if not order.raises]
    got = run(ledger(orders), parallelism=1, records_max=records_max).written
    wanted = run(ledger(without_wrong), parallelism=1, records_max=records_max).written
    assert len(got.pop("errors", [])) == len(orders) - len(without_wrong)
    assert got == wanted


@settings(max_examples=20)
@given(orders=ORDERS, before=st.integers(0, 12), overlaid=st.booleans())
def test_a_restore_between_routed_records_gives_the_same_state(
    orders: list[Order], before: int, overlaid: bool
) -> None:
    """Also while the entries are frozen for a snapshot (``overlaid``)."""
    image = ledger(orders).compile(Options(), parallelism=1)
    first = Run(image)
    for _ in range(before):
        first.read(1)
    taken = first.barrier(1)
    pieces = [chain.whole_state() for chain in first.chains] if overlaid else []
    first.read(1)
    first.drain()
    for piece in filter(None, pieces):
        piece.release()
    second = Run(image, restored=first.barrier(2))
    del taken
    already = {name: list(rows) for name, rows in first.written.items()}
    for going_on in (first, second):
        going_on.finish()
        going_on.close()
    assert dict(first.written) == {
        name: [*already.get(name, []), *second.written.get(name, [])] for name in (*first.written,)
    }


class FiresWrong:
    """Changes state and timers in ``on_timer``, which then raises."""

    seen = ListState[str]("seen")

    def process(self, number: int, context: Context[Any, Any]) -> None:
        context.set_timer(START_NS / 10**9 + number)

    def on_timer(self, timestamp: datetime, context: Context[Any, Any]) -> None:
        seen = context.state(self.seen)
        seen.append("wrong" if not seen and context.key == 1 else "right")
        context.emit((context.key, list(seen)))
        if context.key == 1:
            context.set_timer(timestamp + timedelta(seconds=1))
            raise ValueError("this timer is wrong")


def test_a_timer_that_raises_has_fired_and_leaves_no_state_or_timer() -> None:
    graph = JobGraph("job", errors=Outbox())
    graph.source(Given([1, 2])).key_by(lambda number: number).process(FiresWrong).sink(Outbox(), name="out")
    job = Run(graph.compile(Options(), parallelism=1))
    while job.read():
        job.drain()
    for _ in range(5):
        job.pass_time(10)
    assert tables(job)["seen"] == {2: ["right"]}
    assert [error.error for error in job.written.pop("errors")] == ["ValueError: this timer is wrong"]
    job.close()


def tables(job: Run) -> dict[str, Any]:
    """Returns all state of a job by the name of its descriptor, as a snapshot has it."""
    found: dict[str, Any] = {}
    for task, (pieces, _) in enumerate(job.barrier(1)):
        mirror: Any = job.image.new_mirror(job.plan.vertex_of[task])
        for piece in pieces:
            mirror.apply(piece)
        found |= {name.split("/")[-1]: entries for name, entries in mirror.tables.items()}
    return found


def in_place(key: str, state: list[int] | None, number: int) -> tuple[list[int], list[int]]:
    state = state or []
    state.append(number)
    if number < 0:
        raise ValueError("negative")
    return state, state


def added_in_place(total: list[int], numbers: list[int]) -> list[int]:
    total += numbers
    if numbers[0] < 0:
        raise ValueError("negative")
    return total


@pytest.mark.parametrize("numbers", [[1, -2, 3], [-1, 2, 3], [1, -2], [-1, -2, 3, -4, 5]])
def test_stateful_map_and_reduce_keep_the_state_before_a_record_that_raised(numbers: list[int]) -> None:
    graph = JobGraph("job", errors=Outbox())
    given_numbers = graph.source(Given(numbers)).key_by(lambda number: "one")
    given_numbers.stateful_map(in_place).sink(Outbox(), name="changed")
    lists = graph.source(Given([[number] for number in [0, *numbers]])).key_by(lambda number: "one")
    lists.reduce(added_in_place).map(lambda pair: pair[1]).sink(Outbox(), name="added")
    written = run(graph, parallelism=1).written
    good = [number for number in numbers if number > 0]
    got = {name: rows for name, rows in written.items() if name != "errors"}
    assert sorted(map(str, got.values())) == sorted(
        map(str, ([good[: i + 1] for i in range(len(good))], [[0, *good[:i]] for i in range(len(good) + 1)]))
    )
    wrong = [number for number in numbers if number < 0]
    assert len(written["errors"]) == 2 * len(wrong)


class Deduplicated:
    """The mistake of a new user: the record is marked as seen before it is read."""

    seen = ValueState("seen", default=False)

    def process(self, row: dict[str, str], context: Context[str, int]) -> None:
        seen = context.state(self.seen)
        if not seen.value:
            seen.value = True
            context.emit(int(row["cents"]))


def test_a_corrected_record_is_no_duplicate_of_the_wrong_one() -> None:
    rows = [{"id": "1", "cents": "x"}, {"id": "1", "cents": "7"}, {"id": "1", "cents": "7"}]
    graph = JobGraph("job", errors=Outbox())
    graph.source(Given(rows)).key_by(lambda row: row["id"]).process(Deduplicated, name="out").sink(Outbox())
    written = run(graph, parallelism=1).written
    assert [error.record for error in written["errors"]] == rows[:1]
    assert written["out"] == [7]


class Rules:
    """Broadcast state, one list of which is wrong."""

    rules = MapState[str, list[int]]("rules")
    last = ValueState[int | None]("last", default=None)

    def process_first(self, row: int, context: Any) -> None:
        context.emit((dict(context.broadcast_state(self.rules)), context.broadcast_state(self.last).value))

    def process_second(self, rule: int, context: Any) -> None:
        context.broadcast_state(self.rules).setdefault("all", []).append(rule)
        context.broadcast_state(self.last).value = rule
        if rule < 0:
            raise ValueError("negative")


def test_broadcast_state_is_as_before_a_rule_that_raised() -> None:
    graph = JobGraph("job", errors=Outbox())
    rules = graph.source(Given([1, -2, 3, -4])).broadcast()
    graph.source(Given([])).connect(rules).process(Rules, name="out").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish()
    state = tables(job)
    assert state["rules"] == {None: {"all": [1, 3]}}
    assert state["last"] == {None: 3}
    assert len(job.written["errors"]) == 2
    job.close()
