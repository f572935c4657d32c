"""Calls inside an asynchronous call: code that runs again gets what is logged, and asks for the rest (protocol 7.3)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from itertools import count
from threading import Event, Thread, get_ident
from typing import Any, cast

import pytest

from clonos.core.log.call_outcomes import CallInDoubt, encode_outcome
from clonos.core.ports.recorder import CANCELLED, EffectUndeclared, MetricInCall
from clonos.core.task.call_parts import CallLeftBehind, CallParts, DrawnBeside, EffectSkipped
from clonos_services import clock, http, metrics, random
from clonos_services.awaiting import CallCancelled
from clonos_services.identity import uuid4
from clonos_services.service import service
from tests.harnesses.call_life import Died, Port, life

asked: list[tuple[Any, ...]] = []
numbers = count()


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    asked.clear()


@service(raises=LookupError)
def ask(word: str) -> int:
    """Answers each question with another number, and refuses to find a unicorn at first."""
    asked.append((word,))
    if word == "unicorn" and asked.count((word,)) < 3:
        raise LookupError(word)
    return next(numbers)


@service(effect=True)
def pay(amount: int, idempotency_key: str = "") -> str:
    asked.append((amount, idempotency_key))
    return f"receipt {next(numbers)}"


lost = Event()
"""Whether the system that knows the payments cannot be reached."""


def find(key: str, amount: int) -> str:
    asked.append(("found", key))
    if lost.is_set():
        raise TimeoutError
    return "found"


@service(effect=True, reconcile=find)
def pay_once(amount: int, idempotency_key: str = "") -> str:
    return pay.function(amount, idempotency_key)


def conversation() -> tuple[Any, ...]:
    first = ask("a")
    then = ask("b"), ask("a")  # the same question again is another one
    return first, then, clock.time_ns(), random.random(), uuid4(), pay(3), clock.time_ns(exact=True)


def run(inside: CallParts, code: Callable[[], object], attempt: int = 0) -> object:
    with inside.attempt(attempt, get_ident) as begin:
        begin()
        return code()


def test_code_that_runs_again_gets_what_is_logged_and_asks_only_the_rest() -> None:
    reported: dict[bytes, bytes] = {}
    whole = run(life(reported), conversation)
    parts, made = len(reported), len(asked)
    for dies_after in range(parts):
        asked.clear()
        left: dict[bytes, bytes] = {}
        with pytest.raises(Died):
            run(life(left, dies_after), conversation)
        assert len(left) == dies_after
        before = list(asked)
        try:
            run(life(left), conversation)
        except CallInDoubt:
            assert len(before) == made  # the effect took place, or was about to
            continue
        assert len(asked) <= made + 1, "no more than the call under way is made again"
        assert run(life(left), conversation) == run(life(left), conversation)
    assert run(life(reported), conversation) == whole


def test_an_effect_is_announced_to_the_keepers_before_it_takes_place() -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(life(reported, 0), lambda: pay(3))
    assert not asked
    with pytest.raises(Died):
        run(life(reported, 1), lambda: pay(3))
    assert len(asked) == len(reported) == 1
    again = life(reported)
    with pytest.raises(CallInDoubt, match=asked[0][1]):
        run(again, lambda: pay(3))
    assert len(asked) == 1
    assert again.close() is None, "the code knows of it"


def test_an_effect_in_doubt_is_looked_up_by_its_key() -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(life(reported, 1), lambda: pay_once(3))
    assert run(life(reported), lambda: pay_once(3)) == "found"
    assert run(life(reported), lambda: pay_once(3)) == "found"
    assert asked == [(3, asked[0][1]), ("found", asked[0][1])]


def test_an_announced_effect_that_the_code_does_not_ask_for_again_is_an_error() -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(life(reported, 1), lambda: pay(3))
    other = life(reported)
    run(other, lambda: pay(4))
    assert isinstance(other.close(), EffectSkipped)
    settled = life({})
    run(settled, lambda: pay(4))
    assert settled.close() is None


def test_a_later_attempt_asks_again_for_what_failed_and_gets_what_succeeded() -> None:
    def code() -> tuple[int, int]:
        return ask("a"), ask("unicorn")

    reported: dict[bytes, bytes] = {}
    first = life(reported)
    for attempt in range(2):
        with pytest.raises(LookupError):
            run(first, code, attempt)
    found = run(first, code, 2)
    assert asked == [("a",), *[("unicorn",)] * 3]
    again = life(reported)
    for attempt in range(2):
        with pytest.raises(LookupError):
            run(again, code, attempt)
    assert run(again, code, 2) == found
    assert len(asked) == 4


GONE = encode_outcome("step", CallCancelled("gone"))


def cleaned_up() -> tuple[object, ...]:
    first = ask("a"), clock.time_ns()
    try:
        return *first, ask("b"), ask("c")
    except CallCancelled:
        return *first, "cancelled", pay(3)


def test_the_next_new_call_of_a_cancelled_one_raises_once_and_again_in_each_life() -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(life(reported, 2), cleaned_up)
    assert asked == [("a",), ("b",)]
    reported[CANCELLED] = GONE
    found = run(life(reported), cleaned_up)
    assert asked[:2] == [("a",), ("b",)]
    assert len(asked) == 3, "the second question is not asked again, and the payment is made"
    assert run(life(reported), cleaned_up) == found
    assert found[2] == "cancelled"  # type: ignore[index]
    assert len(asked) == 3


def test_a_running_call_is_cancelled_where_it_is_and_in_each_attempt() -> None:
    inside = life({})

    def code() -> None:
        ask("a")
        inside.cancel(GONE)
        ask("b")

    for attempt in range(2):
        with pytest.raises(CallCancelled, match="gone"):
            run(inside, code, attempt)
    assert asked == [("a",)]


def test_an_announced_effect_of_a_cancelled_call_is_resolved_and_not_cancelled() -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(life(reported, 1), lambda: pay_once(3))
    reported[CANCELLED] = GONE
    assert run(life(reported), lambda: pay_once(3)) == "found"


def test_several_threads_may_ask_at_once_and_each_question_has_its_answers() -> None:
    reported: dict[bytes, bytes] = {}

    def code() -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}

        def some(thread: int) -> None:
            found[thread] = [ask(f"{thread} {n % 3}") for n in range(30)]

        threads = [Thread(target=copy_context().run, args=(some, n)) for n in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return found

    first = life(reported)
    found = run(first, code)
    again = life(reported)
    assert run(again, code) == found
    assert len(asked) == 120


def test_the_clock_stands_still_until_the_next_call() -> None:
    def code() -> list[int]:
        seen = [clock.time_ns(), clock.time_ns()]
        ask("a")
        return [*seen, clock.time_ns()]

    reported: dict[bytes, bytes] = {}
    first, second, third = cast(list[int], run(life(reported), code))
    assert first == second < third
    assert run(life(reported), code) == [first, second, third]


def test_undeclared_effects_and_metrics_and_calls_after_the_end_are_refused() -> None:
    with pytest.raises(EffectUndeclared, match="effects=True"):
        run(life({}, has_effects=False), lambda: pay(3))
    with pytest.raises(MetricInCall):
        run(life({}), metrics.Counter("calls", "Calls.").inc)
    over = life({})
    contexts: list[Context] = []
    run(over, lambda: contexts.append(copy_context()))
    over.close()
    with pytest.raises(CallLeftBehind, match="ask was called after"):
        contexts[0].run(ask, "a")
    assert not asked


def test_requests_of_http_are_parts() -> None:
    reported: dict[bytes, bytes] = {}

    def code() -> object:
        try:
            return http.get("http://127.0.0.1:9/", retries=0).status_code
        except http.HttpConnectionFailed as error:
            return str(error)

    assert run(life(reported), code) == run(life(reported), code)
    assert len(reported) == 1


def test_an_effect_in_doubt_stays_in_doubt_for_later_attempts() -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(life(reported, 1), lambda: pay(3))
    again = life(reported)
    for attempt in range(3):
        with pytest.raises(CallInDoubt):
            run(again, lambda: pay(3), attempt)
    assert len(asked) == 1
    assert again.close() is None
    repeated = life(reported)
    for attempt in range(3):
        with pytest.raises(CallInDoubt):
            run(repeated, lambda: pay(3), attempt)
    assert repeated.close() is None


def test_an_effect_of_a_later_attempt_is_in_doubt_for_an_earlier_one() -> None:
    reported: dict[bytes, bytes] = {}
    first = life(reported, 1)

    def stopped_before() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        run(first, stopped_before)
    with pytest.raises(Died):
        run(first, lambda: pay_once(3), 1)
    assert run(life(reported), lambda: pay_once(3)) == "found"
    assert [what for what, _ in asked] == [3, "found"]


def test_a_failure_to_look_up_an_effect_settles_nothing() -> None:
    reported: dict[bytes, bytes] = {}
    lost.set()
    try:
        with pytest.raises(Died):
            run(life(reported, 1), lambda: pay_once(3))
        again = life(reported)
        with pytest.raises(TimeoutError):
            run(again, lambda: pay_once(3))
    finally:
        lost.clear()
    assert run(again, lambda: pay_once(3), 1) == "found"
    assert [what for what, _ in asked] == [3, "found", "found"]


def test_code_that_an_attempt_has_left_behind_makes_no_second_effect() -> None:
    contexts: list[Context] = []

    def left_behind() -> None:
        contexts.append(copy_context())
        raise TimeoutError

    calls = life({})
    with pytest.raises(TimeoutError):
        run(calls, left_behind)
    run(calls, lambda: pay(3), 1)
    with pytest.raises(CallLeftBehind):
        contexts[0].run(pay, 3)
    assert len(asked) == 1


def test_an_effect_that_runs_while_the_next_attempt_asks_for_it_is_made_once() -> None:
    reported: dict[bytes, bytes] = {}
    goes_on, has_begun = Event(), Event()

    @service(effect=True)
    def slow(amount: int) -> int:
        asked.append((amount,))
        has_begun.set()
        goes_on.wait(30)
        return amount

    threads: list[Thread] = []

    def attempt_0() -> None:
        threads.append(Thread(target=copy_context().run, args=(slow, 3)))
        threads[0].start()
        has_begun.wait(30)
        raise TimeoutError

    calls = life(reported)
    with pytest.raises(TimeoutError):
        run(calls, attempt_0)
    with pytest.raises(CallInDoubt):
        run(calls, lambda: slow(3), 1)
    goes_on.set()
    threads[0].join()
    assert run(calls, lambda: slow(3), 2) == 3
    assert asked == [(3,)]


def test_the_first_of_two_answers_is_given_to_both_attempts() -> None:
    reported: dict[bytes, bytes] = {}
    goes_on, has_begun = Event(), Event()

    @service
    def slow() -> int:
        if not has_begun.is_set():
            has_begun.set()
            goes_on.wait(30)
        return next(numbers)

    found: list[int] = []
    threads: list[Thread] = []

    def attempt_0() -> None:
        context = copy_context()
        threads.append(Thread(target=lambda: found.append(context.run(slow))))
        threads[0].start()
        has_begun.wait(30)
        raise TimeoutError

    calls = life(reported)
    with pytest.raises(TimeoutError):
        run(calls, attempt_0)
    first = run(calls, slow, 1)
    goes_on.set()
    threads[0].join()
    assert found == [first]
    assert run(life(reported), slow) == first


def test_only_the_code_that_began_draws_and_reads_the_clock() -> None:
    def code() -> list[str]:
        draws: tuple[Callable[[], object], ...] = random.random, uuid4, clock.time
        refused: list[str] = []

        def beside() -> None:
            for draw in draws:
                with pytest.raises(DrawnBeside) as found:
                    draw()
                refused.append(str(found.value))

        for draw in draws:
            draw()
        thread = Thread(target=copy_context().run, args=(beside,))
        thread.start()
        thread.join()
        return refused

    assert len(cast(list[str], run(life({}), code))) == 3


def test_an_effect_with_an_outcome_that_is_not_asked_for_again_is_an_error() -> None:
    reported: dict[bytes, bytes] = {}
    run(life(reported), lambda: pay(3))
    other = life(reported)
    run(other, lambda: pay(4))
    assert isinstance(other.close(), EffectSkipped)


def test_an_effect_of_an_earlier_attempt_that_the_last_one_does_not_ask_for_is_an_error() -> None:
    calls = life({})
    run(calls, lambda: pay(3))
    run(calls, lambda: pay(4), 1)
    assert isinstance(calls.close(), EffectSkipped)
    same = life({})
    run(same, lambda: pay(3))
    run(same, lambda: pay(3), 1)
    assert same.close() is None


def test_an_effect_in_doubt_is_known_to_the_keepers_before_it_is_looked_up() -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(life(reported, 1), lambda: pay_once(3))
    again = life(reported)
    run(again, lambda: pay_once(3))
    assert cast(Port, again.port).waited == 1
