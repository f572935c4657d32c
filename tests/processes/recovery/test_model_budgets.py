"""Models on slots that are killed: what they have used counts once, and a budget holds."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, ai
from clonos.connectors import files, values
from tests.harnesses.model_server import embedding, model_server
from tests.processes.harness.running_server import wait_for
from tests.speed import scaled

pytestmark = pytest.mark.processes

QUESTIONS = 60
PAID_MAX = 40
CAPACITY = 3
KILLS = 2
COST = 0.012
"""Of one of the 12 tokens of a reply: 0.001 USD each."""


class Asked:
    """Asks a model with a budget; a question that is not asked gets no reply."""

    def __init__(self, url: str) -> None:
        prices = {"input": 1_000, "output": 1_000}
        self.model = ai.chat("m", base_url=url, retries=0, prices=prices, budget=f"{PAID_MAX * COST:.3f} USD")

    def __call__(self, question: int) -> dict[str, Any]:
        try:
            return {"text": self.model(f"question {question}").text}
        except ai.BudgetExceeded:
            return {"text": "budget"}


def test_a_budget_and_the_metrics_of_models_survive_kills(tmp_path: Path) -> None:
    with model_server() as server:
        embed = ai.embeddings("e", base_url=server.url, retries=0)
        job = Job("models", checkpoint_every="300ms", standbys=0, spare_slots=KILLS + 1, store=tmp_path / "store")
        questions = job.source(values(range(QUESTIONS), batch=1), name="questions").rebalance()
        asked = questions.map_async(Asked(server.url), capacity=CAPACITY, log_calls=True, parallelism=1, name="asked")
        embedded = asked.enrich_batch(
            embed.by_text, on="text", into="vector", keys=8, within="50ms", parallelism=1, name="embedded"
        )
        embedded.sink(files.jsonl(tmp_path / "output"))
        with job.start(slots="process") as handle:
            for kill in range(1, KILLS + 1):
                wanted = kill * PAID_MAX // (KILLS + 1)
                wait_for(lambda wanted=wanted: len(server.asked) >= wanted, f"{wanted} requests")  # type: ignore[misc]
                task = next(task for task in handle.status().tasks if task.name.startswith("asked"))
                os.kill(task.pid, signal.SIGKILL)
                wait_for(lambda kill=kill: len(handle.status().recoveries) >= kill, "a recovery")  # type: ignore[misc]
            handle.wait(scaled(120))
            numbers = {(each.name, each.labels["model"]): each.value for each in handle.metrics()}
    rows: list[Any] = list(files.read_committed(tmp_path / "output"))
    answered = [row["text"] for row in rows if row["text"] != "budget"]
    assert len(rows) == QUESTIONS
    assert len(set(answered)) == len(answered), "one reply went to two questions"
    assert PAID_MAX <= len(answered) <= PAID_MAX + CAPACITY
    assert numbers["clonos_model_requests", "m"] == len(answered)
    assert numbers["clonos_model_cost", "m"] == pytest.approx(COST * len(answered))
    paid = [each for each in server.asked if each.path.endswith("completions")]
    assert len(answered) <= len(paid) <= len(answered) + KILLS * CAPACITY * 2
    assert all(row["vector"] == embedding(row["text"]) for row in rows)
