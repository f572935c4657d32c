"""External calls of jobs in ``crash_test``: stand-ins answer them, and an effect happens once."""

from __future__ import annotations

import random as standard
from typing import Any

import pytest

from clonos import (
    CallInDoubt,
    CallNeverHappened,
    Job,
    collect,
    http,
    values,
)
from clonos.testing import CrashTestFailed, Outputs, crash_test
from tests.worlds import tested_jobs as jobs

pytestmark = pytest.mark.controls

SEEDS = range(10)


def test_a_request_without_a_stand_in_fails_the_test() -> None:
    with pytest.raises(CrashTestFailed, match=r"GET http://answers/0: a test does not use the network\. Pass http="):
        crash_test(jobs.spread(jobs.asking))


def test_a_failed_assertion_in_a_stand_in_fails_the_test() -> None:
    def answer(request: Any) -> Any:
        assert request.url != "http://answers/7", "seven is forbidden"
        return {"answer": 1}

    with pytest.raises(CrashTestFailed, match="seven is forbidden"):
        crash_test(jobs.spread(jobs.asking), http=answer)


def test_a_stand_in_may_answer_with_statuses_bodies_or_errors() -> None:
    answers = {"/0": 404, "/1": (500, "broken"), "/2": b"bytes", "/3": {"a": 1}}

    def answer(request: Any) -> Any:
        path = request.url.removeprefix("http://answers")
        if path not in answers:
            raise http.HttpTimeout("GET", request.url, "connect", 1.0)
        return answers[path]

    def ask(number: int) -> tuple[int, Any]:
        try:
            reply = http.get(f"http://answers/{number}")
        except http.HttpTimeout:
            return number, "timeout"
        return number, (reply.status_code, reply.text)

    def check(outputs: Outputs) -> None:
        expected = [(404, ""), (500, "broken"), (200, "bytes"), (200, '{"a": 1}'), "timeout"]
        assert sorted(outputs.rows) == list(enumerate(expected))

    crash_test(jobs.spread(ask), range(5), seeds=range(5), check=check, http=answer)


def test_a_call_with_an_effect_is_made_once_or_reconciled_by_its_key() -> None:
    orders: dict[str, int] = {}

    def place(number: int, idempotency_key: str) -> str:
        assert idempotency_key not in orders, "ordered twice under one key"
        orders[idempotency_key] = number
        return idempotency_key

    def ordering(number: int) -> tuple[int, str]:
        try:
            return number, jobs.order(number)  # type: ignore[call-arg]
        except CallInDoubt as doubt:
            return number, doubt.key

    def job() -> Job:
        orders.clear()
        made = Job("ordering")
        made.source(values(range(20))).rebalance().map(ordering, effects=True).rebalance().map(tuple).sink(collect())
        return made

    doubts = 0

    def check(outputs: Outputs) -> None:
        nonlocal doubts
        doubts += len(outputs.rows) - len(orders)
        if not (outputs.rollbacks or outputs.exposed):
            assert {key: number for number, key in outputs.rows if key in orders} == orders

    crash_test(job, seeds=SEEDS, check=check, services={"order": place}, compare=lambda row: row[0])


def test_a_reconciled_call_in_doubt_is_made_once() -> None:
    class Shop:
        def __init__(self) -> None:
            self.orders: dict[str, int] = {}
            self.asked: list[bool] = []  # whether it was there

        def __call__(self, number: int, idempotency_key: str) -> str:
            assert idempotency_key not in self.orders, "ordered twice under one key"
            self.orders[idempotency_key] = number
            return idempotency_key

        def reconcile(self, key: str, number: int) -> str:
            self.asked.append(key in self.orders)
            if key not in self.orders:
                raise CallNeverHappened
            return key

    shop = Shop()

    def job() -> Job:
        shop.orders.clear()
        made = Job("ordering")
        rows = made.source(values(range(20))).rebalance()
        rows.map(lambda number: (number, jobs.order_once(number)), effects=True).rebalance().map(tuple).sink(collect())
        return made

    def check(outputs: Outputs) -> None:
        if not (outputs.rollbacks or outputs.exposed):
            assert {key: number for number, key in outputs.rows} == shop.orders

    crash_test(job, seeds=(0, 1, 3, 18, 23), check=check, services={jobs.order_once: shop}, compare=lambda row: row[0])
    assert set(shop.asked) == {True, False}, "the worlds must have both: calls that were made, and calls that were not"


def test_concurrent_calls_have_stand_ins_and_are_counted() -> None:
    def price(number: int, idempotency_key: str) -> tuple[int, int, int]:
        return number, http.get(f"http://prices/{number}").json(), jobs.rate(number)

    def check(outputs: Outputs) -> None:
        assert sorted(outputs.rows) == [(number, len(f"http://prices/{number}"), -number) for number in range(15)]
        assert len({call.key for call in outputs.calls}) == 15

    job = Job("beside")
    job.source(values(range(15))).rebalance().map_async(price, capacity=4).rebalance().map(tuple).sink(collect())
    answers: dict[str, Any] = {
        "http": lambda request: len(request.url),
        "services": {jobs.rate: lambda number: -number},
    }
    crash_test(job, seeds=SEEDS, check=check, **answers)
    with pytest.raises(CrashTestFailed, match="NobodyAnswers: GET http://prices/"):
        crash_test(job)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(
            lambda number: (
                http.get(f"http://answers/{number}/{standard.getrandbits(64)}").status_code
            ),  # clonos: ok found
            id="arguments",
        ),
        pytest.param(
            lambda number: (
                getattr(http, standard.choice(["get", "head"]))(f"http://answers/{number}").status_code
            ),  # clonos: ok found
            id="services",
        ),
    ],
)
def test_a_successor_that_asks_for_something_else_is_named(ask: Any) -> None:
    with pytest.raises(CrashTestFailed, match=r"its replay asks for a call of http\.(get|head)"):
        crash_test(jobs.spread(ask), seeds=range(40), http=lambda request: 200, compare=False)
