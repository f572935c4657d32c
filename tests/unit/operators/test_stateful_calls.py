"""Calls of stateful_map_async: one at a time for each key, with the state that the one before has returned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from clonos import ai
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.keyed_stream import KeyedStream
from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.model.options import Options
from clonos.operators.job_image import JobImage
from clonos.operators.user_errors import RoutedError
from tests.unit.operators.dividing.rescaling import rescaled
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.operators.test_calls import Calls, completed

KEYS = 3


@dataclass
class HoldingCalls(Calls):
    """A recorder that leaves the calls open, and counts the records that wait without one."""

    held: int = 0
    asked: list[Callable[[str], Any]] = field(default_factory=list)

    requests: list[bytes] = field(default_factory=list)

    def submit(self, number: int, service: str, request: bytes, perform: Callable[..., Any], parts: Any = None) -> str:
        self.requests.append(request)
        self.asked.append(perform)
        return super().submit(number, service, request, perform, parts)

    def hold(self, count: int) -> None:
        self.held += count


def listed(key: int, state: list[int] | None, value: int) -> tuple[list[int] | None, Any]:
    """The values of a key so far. A value of -1 is refused, and one of -2 deletes the state."""
    if value == -1:
        raise ValueError("minus one")
    seen = [*(state or []), value]
    return (None if value == -2 else seen), (key, seen)


@ai.tool(effect=True)
def pay(cents: int) -> None: ...


def image_of(count: int, **options: Any) -> JobImage:
    graph = JobGraph("job")
    numbers: KeyedStream[int, int] = graph.source(Given(range(count)), parallelism=1).key_by(lambda n: n % KEYS)
    numbers.stateful_map_async(listed, name="calls", **options).sink(Outbox())
    return graph.compile(Options(), parallelism=1)


def begun(count: int, **options: Any) -> tuple[Run, HoldingCalls]:
    calls = HoldingCalls()
    going = Run(image_of(count, **options), clock=calls)
    read_all(going)
    return going, calls


def completed_with(going: Run, number: int, found: Any, calls: HoldingCalls) -> None:
    """Completes a call with another outcome than that of the function."""
    del calls.open[number]
    going.chains[1].complete(number, encode_outcome("step", found))


def read_all(going: Run) -> None:
    while going.read(10):
        going.drain()


def rows_of(going: Run) -> list[Any]:
    return [row for rows in going.written.values() for row in rows if type(row) is tuple]


def test_a_key_has_one_call_at_a_time_with_the_state_of_the_one_before() -> None:
    going, calls = begun(7)
    assert sorted(calls.open) == [0, 1, 2]
    assert calls.held == 4
    completed(going, 1, [1, 4], calls)
    assert sorted(calls.open) == [0, 2]
    completed(going, 1, [0, 3, 6, 2, 5], calls)
    going.drain()
    assert rows_of(going) == [
        *((1, [1]), (1, [1, 4])),
        *((0, [0]), (0, [0, 3]), (0, [0, 3, 6])),
        *((2, [2]), (2, [2, 5])),
    ]
    assert calls.held == 0
    going.close()


def test_records_that_wait_go_on_after_a_restore_with_the_state_of_their_key() -> None:
    going, calls = begun(9)
    completed(going, 1, [0, 1, 4], calls)
    taken = going.barrier(1)
    written = rows_of(going)
    going.close()
    again = HoldingCalls()
    after = Run(image_of(9), taken, again)
    assert sorted(again.open) == [2, 3, 7]
    assert again.held == 3
    completed(after, 1, [7, 3, 2, 6, 5, 8], again)
    after.drain()
    assert sorted(written + rows_of(after)) == [
        *((0, [0]), (0, [0, 3]), (0, [0, 3, 6])),
        *((1, [1]), (1, [1, 4]), (1, [1, 4, 7])),
        *((2, [2]), (2, [2, 5]), (2, [2, 5, 8])),
    ]
    after.close()


def test_a_call_with_another_state_is_another_request() -> None:
    """The outcome before may be lost with its process, and be another one when it is asked for again."""
    requests: list[list[bytes]] = []
    for first in (0, 3):
        going, calls = begun(4)
        completed_with(going, 0, ([first], None), calls)
        requests.append(calls.requests)
        going.close()
    assert requests[0][:3] == requests[1][:3]
    assert requests[0][3] != requests[1][3]


def test_a_call_that_raises_leaves_the_state_and_none_as_the_state_deletes_the_key() -> None:
    graph = JobGraph("job", errors=Outbox())
    numbers = graph.source(Given([1, -1, 2, -2, 3]), parallelism=1).key_by(lambda n: 0)
    numbers.stateful_map_async(listed, name="calls").sink(Outbox())
    calls = HoldingCalls()
    going = Run(graph.compile(Options(), parallelism=1), clock=calls)
    read_all(going)
    completed(going, 1, [0, 1, 2, 3, 4], calls)
    going.drain()
    assert rows_of(going) == [(0, [1]), (0, [1, 2]), (0, [1, 2, -2]), (0, [3])]
    assert [row.record for rows in going.written.values() for row in rows if isinstance(row, RoutedError)] == [-1]
    going.close()


@pytest.mark.parametrize("width", [2, 3])
def test_the_state_of_each_key_moves_once_its_calls_have_ended(width: int) -> None:
    calls = HoldingCalls()
    going = Run(image_of(12), clock=calls)
    going.read(KEYS)
    going.drain()
    completed(going, 1, sorted(calls.open), calls)
    calls.asked.clear()
    after = rescaled(going, 1, width)
    read_all(after)
    assert sorted(perform("key") for perform in calls.asked) == [
        ([key, key + KEYS], (key, [key, key + KEYS])) for key in range(KEYS)
    ]
    after.close()


def test_arguments_that_cannot_be_used_are_refused() -> None:
    numbers: KeyedStream[int, int] = JobGraph("job").source(Given(range(3)), parallelism=1).key_by(lambda n: n % KEYS)
    with pytest.raises(InvalidJob, match="has capacity=0"):
        numbers.stateful_map_async(listed, capacity=0)
    with pytest.raises(InvalidJob, match=r"has effects.*log_calls=True"):
        numbers.stateful_map_async(listed, effects=True)
    with pytest.raises(InvalidJob, match="nothing can cancel"):
        numbers.stateful_map_async(listed, timeout="1s")  # type: ignore[arg-type]
    helper = ai.agent(ai.chat("m"), handovers=[ai.agent(ai.chat("m"), name="other", tools=[pay])])
    with pytest.raises(InvalidJob, match=r"has an agent.*log_calls=True"):
        numbers.stateful_map_async(helper)
    with pytest.raises(InvalidJob, match=r"has an agent whose tools have effects.*effects=True"):
        numbers.stateful_map_async(helper, log_calls=True)
    with pytest.raises(AttributeError, match="Use stateful_map_async"):
        numbers.map_async(listed)  # type: ignore[attr-defined]
