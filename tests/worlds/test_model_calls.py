"""Conversations with a model in simulated worlds: a reply that is logged is not paid for again."""

from __future__ import annotations

import json
import re
import sys
import types
from collections import Counter
from typing import Any

import pytest

from clonos import CallNeverHappened, Job, ai, collect, metrics, values
from clonos.testing import Outputs, crash_test
from tests.harnesses.model_server import completion
from tests.tidy.source import ROOT

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

CUSTOMERS = 4
QUESTIONS = 24
TURNS = 5
CAPACITY = 2
TOKENS = 12
HISTORY_MAX = 3
PAYMENTS = 6
DEADLY = ("kill", "kill_linked", "kill_domain", "false_suspicion")
model = ai.chat("m", base_url="http://model/v1", retries=0)
tokens = metrics.Counter("model_tokens", "Tokens of the replies.")


def converse(customer: int, messages: list[Any] | None, question: int) -> tuple[list[Any], tuple[int, list[str], int]]:
    messages = list(messages or [])
    replies, used = [], 0
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"{question}/{turn}"})
        reply = model(messages)
        messages.append(reply.message)
        replies.append(reply.text)
        used += reply.usage.total_tokens
    return messages, (question, replies, used)


def count(replied: tuple[int, list[str], int]) -> tuple[int, list[str], float]:
    question, replies, used = replied
    tokens.inc(used)
    return question, replies, tokens.value


def test_conversations_go_on_after_their_last_logged_reply_whatever_dies() -> None:
    paid: Counter[str] = Counter()
    repeated = 0

    def answer(request: Any) -> dict[str, Any]:
        paid[dict(request.headers)["idempotency-key"]] += 1
        messages = json.loads(request.body)["messages"]
        return completion(f"{len(messages)} {messages[-1]['content']} {paid.total()}")

    def make_job() -> Job:
        nonlocal repeated
        repeated += paid.total() - len(paid)
        paid.clear()
        job = Job("chat", checkpoint_every="1s")
        asked = job.source(values(range(QUESTIONS)), name="asked").key_by(lambda question: question % CUSTOMERS)
        replied = asked.stateful_map_async(converse, capacity=CAPACITY, log_calls=True, parallelism=1, name="chat")
        replied.map(count, parallelism=1).sink(collect(), name="replies")
        return job

    def check(outputs: Outputs) -> None:
        replies = {question: texts for question, texts, _ in outputs["replies"]}
        assert max(used for *_, used in outputs["replies"]) == TOKENS * TURNS * QUESTIONS, "a reply counts once"
        assert sorted(replies) == list(range(QUESTIONS))
        for question, texts in replies.items():
            messages_before = 2 * TURNS * (question // CUSTOMERS)
            expected = [f"{messages_before + 2 * turn + 1} {question}/{turn}" for turn in range(TURNS)]
            assert [text.rpartition(" ")[0] for text in texts] == expected, "a conversation lacks what was said"
        assert len(paid) >= QUESTIONS * TURNS

    report = crash_test(make_job, seeds=range(12), check=check, http=answer, compare=False)
    make_job()
    deaths = sum(count for kind, count in report.injected.items() if kind in DEADLY)
    assert 0 < repeated <= 2 * CAPACITY * deaths, "of each open record, the call under way and the one before"


@ai.tool(effect=True, reconcile=lambda key, question, part: "")
def pay(question: str, part: int, idempotency_key: str = "") -> str:
    raise AssertionError("a stand-in pays")


def asks_for(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A reply that asks for a call of a tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return completion(None, finish_reason="tool_calls", tool_calls=[{"id": "t", "function": function}])


def test_agents_go_on_with_their_next_call_and_make_no_effect_twice_whatever_dies() -> None:
    asked: Counter[str] = Counter()
    paid: dict[str, str] = {}
    found, twice = list[str](), list[str]()
    repeated = 0

    def pay_once(question: str, part: int, idempotency_key: str) -> str:
        bill = f"{question}/{part}"
        if bill in paid.values():
            twice.append(bill)
        paid[idempotency_key] = bill
        return f"paid {bill}"

    def find_payment(key: str, question: str, part: int) -> str:
        if key not in paid:
            raise CallNeverHappened
        found.append(key)
        return f"paid {paid[key]}"

    pay_once.reconcile = find_payment  # type: ignore[attr-defined]

    def answer(request: Any) -> dict[str, Any]:
        asked[dict(request.headers)["idempotency-key"]] += 1
        messages = json.loads(request.body)["messages"]
        begins = [place for place, message in enumerate(messages) if message["role"] == "user"]
        question, shown = messages[begins[-1]]["content"], len(messages) - begins[-1] - 1
        if shown == 2 * PAYMENTS:
            return completion(f"{len(begins)} {messages[-1]['content']}")
        return asks_for("pay", {"question": question, "part": shown // 2})

    def make_job() -> Job:
        nonlocal repeated
        repeated += asked.total() - len(asked)
        asked.clear()
        paid.clear()
        helper = ai.agent(model, tools=[pay], history_max=HISTORY_MAX, text=str)
        job = Job("agents", checkpoint_every="1s")
        questions = job.source(values(range(QUESTIONS)), name="asked").key_by(lambda question: question % CUSTOMERS)
        replied = questions.stateful_map_async(
            helper, capacity=CAPACITY, log_calls=True, effects=True, parallelism=1, name="agents"
        )
        replied.sink(collect(), name="replies")
        return job

    def check(outputs: Outputs) -> None:
        replies = sorted(reply.text for reply in outputs["replies"])
        seen = [min(question // CUSTOMERS, HISTORY_MAX) + 1 for question in range(QUESTIONS)]
        assert replies == sorted(f"{count} paid {question}/{PAYMENTS - 1}" for question, count in enumerate(seen))
        assert {reply.turns for reply in outputs["replies"]} == {PAYMENTS + 1}
        if not outputs.exposed and not outputs.rollbacks:
            assert not twice
        twice.clear()

    report = crash_test(make_job, seeds=range(12), check=check, http=answer, services={"pay": pay_once}, compare=False)
    make_job()
    deaths = sum(report.injected[kind] for kind in DEADLY)
    assert found, "no payment was ever made by a process that died before its outcome was known"
    assert 0 < repeated <= 2 * CAPACITY * deaths, "of each open record, the question under way and the one before"


def example_of_the_page(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    text = (ROOT / "docs" / "ai.md").read_text("utf-8")
    found = re.search(rf"^```python {name}.py\n(.*?)^```", text, re.M | re.S)
    assert found is not None
    page = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, page)
    exec(found[1], vars(page))  # noqa: S102
    return page


def test_the_example_of_the_page_gives_each_ticket_to_its_team_whatever_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", "sk-0123456789-abcdefghi")
    page = example_of_the_page("triage", monkeypatch)

    def answer(request: Any) -> dict[str, Any]:
        assert request.url == "https://models.example.com/v1/chat/completions"
        assert dict(request.headers)["authorization"] == "Bearer sk-0123456789-abcdefghi"
        team = "billing" if "paid" in json.loads(request.body)["messages"][0]["content"] else "shipping"
        return completion(json.dumps({"team": team, "is_urgent": True}))

    def check(outputs: Outputs) -> None:
        triaged = sorted((row["id"], row["team"], row["urgent"]) for row in outputs.rows)
        assert triaged == [(1, "shipping", True), (2, "billing", True)]

    crash_test(page.job, seeds=range(3), check=check, http=answer)


def test_the_agent_of_the_page_refunds_what_was_approved_whatever_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    page = example_of_the_page("agents", monkeypatch)
    script: list[tuple[str, dict[str, Any]]] = [
        ("find_order", {"order": "a-7"}),
        ("refund", {"order": "a-7", "cents": 900}),
    ]

    def answer(request: Any) -> dict[str, Any]:
        shown = [each["content"] for each in json.loads(request.body)["messages"] if each["role"] == "tool"]
        if len(shown) == len(script):
            return completion(shown[-1])
        return asks_for(*script[len(shown)])

    def check(outputs: Outputs) -> None:
        assert [(row["reply"], row["tokens"]) for row in outputs.rows] == [("900 cents are refunded", 3 * TOKENS)]

    report = crash_test(page.job, seeds=range(4), check=check, http=answer)
    assert report.injected
