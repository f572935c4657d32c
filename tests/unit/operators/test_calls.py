"""Calls of map_async and of steps with par: order, async functions, timeouts, retries, limits per key."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.stream import Stream
from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import NothingToRead
from clonos.operators.job_image import JobImage
from clonos.operators.steps.call_attempts import Caller, CallPolicy
from tests.unit.operators.driver import Clock, Given, Outbox, Run

FOREVER_S = 30


@dataclass
class Calls(Clock):
    """A recorder that leaves the calls open; ``answer`` completes one of them."""

    open: dict[int, Callable[[str], object]] = field(default_factory=dict)

    def limit_calls(self, capacity: int, held_max: int = 0) -> None:
        pass

    def submit(
        self, number: int, service: str, request: bytes, perform: Callable[..., object], parts: object = None
    ) -> str:
        self.open[number] = perform
        return "key"


def completed(going: Run, task: int, numbers: list[int], calls: Calls) -> None:
    """Completes calls in this order."""
    for number in numbers:
        perform = calls.open.pop(number)
        try:
            outcome = encode_outcome("step", perform("key"))
        except Exception as error:  # noqa: BLE001  the outcome
            outcome = encode_outcome("step", error)
        going.chains[task].complete(number, outcome)


def test_calls_of_a_step_with_par_are_made_again_after_a_restore() -> None:
    graph = JobGraph("job")
    graph.source(Given(range(6)), parallelism=1).map(lambda n: -n, par=4).sink(Outbox())
    calls = Calls()
    image = graph.compile(Options(), parallelism=1)
    before = Run(image, clock=calls)
    before.read(3)
    completed(before, 0, [1], calls)
    taken = before.barrier(1)
    before.close()
    again = Calls()
    after = Run(image, taken, again)
    assert sorted(again.open) == [0, 2]
    while after.read(3):
        pass
    completed(after, 0, sorted(again.open, reverse=True), again)
    assert [row for rows in after.written.values() for row in rows] == [0, -1, -2, -3, -4, -5]
    after.close()


@pytest.mark.parametrize("ordered", [False, True])
def test_a_resumed_job_may_keep_the_order_of_calls_or_not(ordered: bool) -> None:
    def image_of(ordered: bool) -> JobImage:
        graph = JobGraph("job")
        numbers = graph.source(Given(range(6)), parallelism=1)
        numbers.map_async(lambda n: -n, ordered=ordered, name="calls").sink(Outbox())
        return graph.compile(Options(), parallelism=1)

    calls = Calls()
    before = Run(image_of(not ordered), clock=calls)
    before.read(6)
    before.read(6)
    completed(before, 0, [1, 4], calls)
    taken, written = before.barrier(1), [row for rows in before.written.values() for row in rows]
    before.close()
    again = Calls()
    after = Run(image_of(ordered), taken, again)
    completed(after, 0, [3, 0, 5, 2], again)
    assert after.chains[0].poll(6) is NothingToRead.ALL_READ
    after.chains[0].end_of_input()
    written += [row for rows in after.written.values() for row in rows]
    assert sorted(written) == [-5, -4, -3, -2, -1, 0]
    after.close()


def test_async_functions_run_in_one_loop_at_once() -> None:
    met: list[asyncio.Event] = []
    loops = set()

    async def meet(number: int) -> int:
        met.append(asyncio.Event())
        loops.add(asyncio.get_running_loop())
        if len(met) == 4:
            for each in met:
                each.set()
        await met[len(met) - 1].wait()
        return number * 2

    caller = Caller("step", meet, CallPolicy())
    assert sorted(in_threads([partial(caller.call, (number,), "key") for number in range(4)])) == [0, 2, 4, 6]
    assert len(loops) == 1
    caller.close()


def in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Returns the results of calls that run side by side."""
    results: list[Any] = []
    threads = [threading.Thread(target=lambda call=call: results.append(call()), name="call") for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(FOREVER_S)
        assert not thread.is_alive()
    return results


def test_an_async_function_is_cancelled_at_its_timeout() -> None:
    cancelled = []

    async def hang(number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    caller = Caller("step", hang, CallPolicy(timeout_ns=10_000_000))
    with pytest.raises(TimeoutError, match=r"longer than 0\.01 s"):
        caller.call((7,), "key")
    assert cancelled == [7]
    caller.close()


def test_the_end_of_a_step_cancels_its_async_calls() -> None:
    begun = threading.Event()

    async def hang(_: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    caller = Caller("step", hang, CallPolicy())
    errors: list[BaseException] = []

    def call() -> None:
        try:
            caller.call((1,), "key")
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=call, name="call")
    thread.start()
    assert begun.wait(FOREVER_S)
    caller.close()
    thread.join(FOREVER_S)
    assert "cancelled" in str(errors)
    with pytest.raises(RuntimeError, match="the calls of step have ended"):
        caller.call((2,), "key")


@pytest.mark.parametrize("failures", [0, 2, 3])
def test_a_call_is_repeated_with_the_same_idempotency_key(failures: int) -> None:
    keys = []

    def call(number: int, idempotency_key: str) -> int:
        keys.append(idempotency_key)
        if len(keys) <= failures:
            raise OSError("busy")
        return number

    caller = Caller("step", call, CallPolicy(retries=2, retry_after_ns=1))
    if failures > 2:
        with pytest.raises(OSError, match="busy"):
            caller.call((5,), "key")
    else:
        assert caller.call((5,), "key") == 5
    assert keys == ["key"] * min(failures + 1, 3)


def test_calls_of_one_key_wait_for_each_other_and_those_of_others_do_not() -> None:
    lock = threading.Lock()
    running: dict[int, int] = {}
    highest: dict[int, int] = {}
    others = threading.Barrier(3)  # one call of each key

    def call(record: tuple[int, bool]) -> None:
        key, is_first = record
        with lock:
            running[key] = running.get(key, 0) + 1
            highest[key] = max(highest.get(key, 0), running[key])
        if is_first:
            others.wait(FOREVER_S)
        with lock:
            running[key] -= 1

    caller = Caller("step", call, CallPolicy(key=lambda record: record[0], per_key=1))
    firsts = [partial(caller.call, ((key, True),), "key") for key in range(3)]
    rest = [partial(caller.call, ((key, False),), "key") for key in range(3) for _ in range(5)]
    in_threads(firsts + rest)
    assert highest == {0: 1, 1: 1, 2: 1}


def test_wrong_arguments_get_one_sentence() -> None:
    stream = JobGraph("job").source(Given([1]))
    with pytest.raises(InvalidJob, match="which nothing can cancel"):
        stream.map_async(str, timeout="1s")  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="capacity=0"):
        stream.map_async(str, capacity=0)
    with pytest.raises(InvalidJob, match="retries=-1"):
        stream.map_async(str, retries=-1)
    with pytest.raises(InvalidJob, match="par=0"):
        stream.map(str, par=0)
    with pytest.raises(InvalidJob, match="has effects and par="):
        stream.filter(str, par=2, effects=True)


def odd_only(number: int) -> int:
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


async def odd_only_async(number: int) -> int:
    return odd_only(number)


@pytest.mark.parametrize("step", ["map", "map_async", "map_async of async def"])
def test_the_row_of_a_call_that_raises_has_the_frames_of_user_code(step: str) -> None:
    graph = JobGraph("job", errors=Outbox())
    numbers = graph.source(Given([1, 2]), parallelism=1)
    function = odd_only_async if step.endswith("def") else odd_only
    (numbers.map(odd_only, name="ask") if step == "map" else numbers.map_async(function, name="ask")).sink(Outbox())
    calls = Calls()
    going = Run(graph.compile(Options(), parallelism=1), clock=calls)
    while going.read(5):
        pass
    completed(going, 0, [*calls.open], calls)
    going.drain()
    going.close()
    (routed,) = going.written["errors"]
    functions = [place.rpartition(" in ")[2] for place in routed.traceback.splitlines()]
    functions = [function for function in functions if function != "completed"]  # which stands for the task
    assert functions == (["odd_only_async", "odd_only"] if step.endswith("def") else ["odd_only"])


def counted(record: dict[str, int]) -> dict[str, int]:
    record["n"] += 1
    return record


STEPS_WITH_PAR: dict[str, tuple[Callable[[Stream[Any]], Stream[Any]], int]] = {
    "map": (lambda stream: stream.map(counted, par=2), 1),
    "filter": (lambda stream: stream.filter(counted, par=2), 0),  # the record, not what the predicate made of it
}


@pytest.mark.parametrize("step", STEPS_WITH_PAR)
def test_a_call_that_changes_its_record_changes_a_copy(step: str) -> None:
    """The record is state until the call is complete: a restored task makes the call with the record as it came."""
    graph = JobGraph("job")
    add, result = STEPS_WITH_PAR[step]
    add(graph.source(Given([{"n": 0}]), parallelism=1)).sink(Outbox())
    image = graph.compile(Options(), parallelism=1)
    calls = Calls()
    before = Run(image, clock=calls)
    before.read(1)
    calls.open[0]("key")  # its process dies before the outcome is recorded
    taken = before.barrier(1)
    before.close()
    again = Calls()
    after = Run(image, taken, again)
    completed(after, 0, [0], again)
    assert [row for rows in after.written.values() for row in rows] == [{"n": result}]
    after.close()


def test_each_attempt_gets_the_record_as_it_came() -> None:
    seen = []

    def call(record: dict[str, int]) -> None:
        seen.append(counted(record)["n"])
        raise OSError("busy")

    caller = Caller("step", call, CallPolicy(retries=2, retry_after_ns=1))
    with pytest.raises(OSError, match="busy"):
        caller.call(({"n": 0},), "key")
    assert seen == [1, 1, 1]


@pytest.mark.parametrize("shape", ["map", "filter", "flat_map"])
def test_a_record_whose_call_raises_goes_to_the_error_output_as_it_came(shape: str) -> None:
    def call(record: dict[str, int]) -> list[int]:
        if counted(record)["n"] % 2 == 0:
            raise ValueError("even")
        return [record["n"]]

    graph = JobGraph("job", errors=Outbox())
    stream = graph.source(Given([{"n": n} for n in range(6)]), parallelism=1)
    step: Any = getattr(stream, shape)(call, par=3, name="ask")
    step.sink(Outbox(), name="out")
    calls = Calls()
    going = Run(graph.compile(Options(), parallelism=1), clock=calls)
    while going.read(4):
        pass
    completed(going, 0, sorted(calls.open, reverse=True), calls)
    going.drain()
    going.close()
    routed = going.written.pop("errors")
    assert [(row.step, row.record) for row in routed] == [("ask", {"n": n}) for n in (1, 3, 5)]
    expected = {"map": [[1], [3], [5]], "filter": [{"n": 0}, {"n": 2}, {"n": 4}], "flat_map": [1, 3, 5]}
    assert [row for rows in going.written.values() for row in rows] == expected[shape]


def test_a_built_in_class_that_shows_no_parameters_is_called() -> None:
    caller = Caller("step", int, CallPolicy())
    assert caller.call(("7",), "key") == 7


def test_effects_need_calls_that_are_logged() -> None:
    graph = JobGraph("job")
    numbers = graph.source(Given(range(6)), parallelism=1)
    with pytest.raises(InvalidJob, match="Add log_calls=True"):
        numbers.map_async(lambda n: -n, effects=True)
    numbers.map_async(lambda n: -n, effects=True, log_calls=True).sink(Outbox())
    plan = graph.compile(Options(), parallelism=1).plan
    assert plan.sends_outcomes == {0}
    assert not plan.with_answers, "an effect has keepers already"
