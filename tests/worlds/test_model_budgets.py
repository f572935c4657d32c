"""Budgets of models in simulated worlds: money that was spent is neither forgotten nor charged twice, whatever dies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clonos import Job, ai, collect, values
from clonos.testing import Outputs, crash_test
from tests.harnesses.model_server import completion

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

QUESTIONS = 40
PAID_MAX = 25
CAPACITY = 3
COST = 0.012
"""Of the 12 tokens of a reply."""

PRICES = {"input": 1_000, "output": 1_000}
model = ai.chat("m", base_url="http://model/v1", retries=0, prices=PRICES, budget=f"{PAID_MAX * COST - COST / 2} USD")


def ask(question: int) -> tuple[int, str]:
    try:
        return question, model(f"question {question}").text
    except ai.BudgetExceeded:
        return question, ""


@pytest.mark.parametrize("logs_calls", [True, False])
def test_a_budget_allows_as_many_replies_as_it_pays_for_whatever_dies(logs_calls: bool) -> None:
    sent: Counter[str] = Counter()

    def answer(request: Any) -> dict[str, Any]:
        sent[dict(request.headers)["idempotency-key"]] += 1
        return completion(f"reply {sent.total()}")

    def make_job() -> Job:
        job = Job("budget", checkpoint_every="1s")
        questions = job.source(values(range(QUESTIONS)), name="questions")
        asked = questions.map_async(ask, capacity=CAPACITY, log_calls=logs_calls, parallelism=1, name="asked")
        asked.sink(collect(), name="replies")
        return job

    def check(outputs: Outputs) -> None:
        replies = [text for _, text in outputs["replies"]]
        assert len(replies) == QUESTIONS
        answered = [text for text in replies if text]
        assert PAID_MAX <= len(answered) < PAID_MAX + CAPACITY
        assert len(set(answered)) == len(answered), "a reply went to two questions"

    report = crash_test(make_job, seeds=range(8), check=check, http=answer, compare=False)
    assert report.injected
