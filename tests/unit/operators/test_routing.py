"""Routing: which task of the next step gets a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values.keys import Router
from clonos.operators.job_image import JobImage
from clonos.operators.state.state_descriptors import ValueState
from clonos.operators.transforms.routed_outputs import keys_of_tasks
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.restoring import actions, check_restores
from tests.unit.operators.samples import ColumnsGiven
from tests.unit.operators.test_timestamps import stamped


def received(
    route: Callable[[Stream[Any]], Stream[Any]], senders: int, receivers: int, source: Any = None, count: int = 48
) -> list[list[Any]]:
    """Returns what each task of the next step gets."""
    graph = JobGraph("job")
    stream = graph.source(source or Given(range(count)), parallelism=senders, name="read")
    route(stream).map(lambda record: record, parallelism=receivers, name="next").sink(Outbox())
    return received_by(graph.compile(Options()), receivers)


def received_by(image: JobImage, receivers: int) -> list[list[Any]]:
    """Returns what each task of the step ``next`` gets."""
    going = Run(image)
    vertex = next(i for i, each in enumerate(going.plan.vertices) if each.name == "next")
    found: list[list[Any]] = []
    for task in range(going.plan.first_task[vertex], going.plan.first_task[vertex] + receivers):
        rows: list[Any] = []
        found.append(rows)
        _note(going.chains[task], rows)
    going.finish()
    going.close()
    return found


def _note(chain: Any, rows: list[Any]) -> None:
    """Notes the rows that a chain gets; columns as dicts."""
    process_rows, process_columns = chain.process_rows, chain.process_columns

    def on_rows(port: int, batch: list[Any], times: Any = None) -> None:
        rows.extend(batch)
        process_rows(port, batch, times)

    def on_columns(port: int, batch: Any) -> None:
        rows.extend(batch.to_pylist())
        process_columns(port, batch)

    chain.process_rows, chain.process_columns = on_rows, on_columns


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5))
def test_a_custom_function_chooses_the_task(senders: int, receivers: int) -> None:
    found = received(lambda s: s.partition_custom(lambda n, tasks: n // 3 % tasks), senders, receivers)
    for task, rows in enumerate(found):
        assert sorted(rows) == [n for n in range(48) if n // 3 % receivers == task]


def test_a_route_serves_the_width_that_the_next_step_has_when_it_opens() -> None:
    graph = JobGraph("job")
    chosen = graph.source(Given(range(48)), name="read").partition_custom(lambda n, tasks: n % tasks)
    chosen.map(lambda record: record, parallelism=2, name="next").rebalance().sink(Outbox())
    image = graph.compile(Options())
    found = received_by(replace(image, plan=image.plan.with_widths({"next": 4})), 4)
    assert [sorted(rows) for rows in found] == [[n for n in range(48) if n % 4 == task] for task in range(4)]


def test_a_custom_function_gets_the_key() -> None:
    rows = [{"n": n, "country": "FR" if n % 4 == 0 else "DE"} for n in range(20)]
    for source in (Given(rows), ColumnsGiven(rows)):
        french, other = received(
            lambda s: s.partition_custom(lambda country, tasks: 0 if country == "FR" else 1, "country"), 2, 2, source
        )
        assert {row["country"] for row in french} == {"FR"}
        assert {row["country"] for row in other} == {"DE"}
        assert len(french) + len(other) == len(rows)


def test_all_records_go_to_the_first_task() -> None:
    first, *others = received(lambda stream: stream.global_(), 3, 3)
    assert sorted(first) == list(range(48))
    assert not any(others)


def test_rescale_gives_each_sender_few_receivers_in_turn() -> None:
    # Task i of n of the source has the records i, i + n, ...
    assert [sorted(rows) for rows in received(lambda stream: stream.rescale(), 2, 4, count=8)] == [
        [0, 4],
        [2, 6],
        [1, 5],
        [3, 7],
    ]
    assert [{n % 4 for n in rows} for rows in received(lambda stream: stream.rescale(), 4, 2)] == [{0, 1}, {2, 3}]
    assert [len(rows) for rows in received(lambda stream: stream.rescale(), 1, 3)] == [16, 16, 16]


def test_shuffle_gives_every_task_some_records_and_each_record_to_one() -> None:
    found = received(lambda stream: stream.shuffle(), 2, 3, count=300)
    assert sorted(n for rows in found for n in rows) == list(range(300))
    assert all(70 < len(rows) < 130 for rows in found)
    assert [len(rows) for rows in found] != [100, 100, 100]


def test_shuffled_columns_stay_columns() -> None:
    found = received(lambda s: s.shuffle(), 1, 2, ColumnsGiven([{"n": n} for n in range(50)]))
    assert sorted(row["n"] for rows in found for row in rows) == list(range(50))
    assert all(found)


def test_routed_records_keep_their_timestamps() -> None:
    for route in (
        lambda s: s.shuffle(),
        lambda s: s.rescale(),
        lambda s: s.global_(),
        lambda s: s.partition_custom(lambda _, tasks: tasks - 1),
    ):
        found = stamped(lambda s, route=route: route(s).map(lambda row: row["n"], parallelism=3), range(20))  # type: ignore[misc]
        assert found == sorted([(n, n) for n in range(20)], key=repr)


@pytest.mark.parametrize("wrong", [2, -1, True, None, "0"])
def test_a_task_that_is_not_there_is_named(wrong: Any) -> None:
    graph = JobGraph("job")
    graph.source(Given([5])).partition_custom(lambda n, _: wrong, name="mine").map(str, parallelism=2).sink(Outbox())
    with pytest.raises(StepFailed) as failed:
        run(graph)
    assert failed.value.at.record == "5"
    assert str(failed.value.__cause__).startswith(f"the function of mine returned {wrong!r}, and the next step has")


@given(st.integers(1, 40), st.integers(0, 100))
def test_each_task_has_a_key_that_is_sent_to_it(tasks: int, more: int) -> None:
    router = Router(tasks, tasks + more)
    assert [router.target(key) for key in keys_of_tasks(tasks, tasks + more)] == list(range(tasks))


def _routed(graph: JobGraph, records: list[Any]) -> None:
    source = graph.source(Given(records))
    for number, stream in enumerate((source.shuffle(), source.rescale(), source.global_())):
        counted = stream.map(lambda n: (n, n % 3), parallelism=2, name=f"next-{number}")
        counted.process(Counting, name=f"count-{number}", parallelism=2).sink(Outbox())


class Counting:
    """Numbers the records of its task, so that a record in another task shows."""

    seen = ValueState[int]("seen", default=0)

    def process(self, value: Any, context: Any) -> None:
        context.state(self.seen).value += 1
        context.emit((value, context.state(self.seen).value))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(actions, st.integers(1, 3), st.integers(1, 5))
def test_a_restore_at_any_barrier_changes_nothing(actions: list[str], parallelism: int, records_max: int) -> None:
    check_restores(_routed, list(range(40)), actions, parallelism, records_max)


def test_the_order_note_names_the_exchange() -> None:
    graph = JobGraph("job")
    graph.source(Given([1])).shuffle().map(str).sink(Outbox())
    order = graph.compile(Options(), parallelism=2).order
    assert "shuffle" in repr(order), order
