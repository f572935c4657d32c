"""The judge of the demo of agents detects every way in which refunds and replies can be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.demo.agents import AgentsVerdict, judge_agents
from clonos.demo.agents_server import completion

LOG: list[dict[str, Any]] = [
    {"kind": "question", "key": "q1"},
    {"kind": "question", "key": "q2"},
    {"kind": "refund", "key": "r1", "order": 1, "cents": 10},
    {"kind": "refund", "key": "r2", "order": 2, "cents": 20},
]
ROWS = [{"order": 1, "reply": "10 cents for order 1"}, {"order": 2, "reply": "20 cents for order 2"}]
CLEAN = AgentsVerdict(2, 2, 0, 2, 0, 0, 0, 0)


def test_refunds_that_agree_with_the_replies_are_clean_though_questions_were_repeated() -> None:
    assert judge_agents(LOG, ROWS) == CLEAN
    assert CLEAN.is_clean
    verdict = judge_agents([*LOG, LOG[0]], ROWS)
    assert (verdict.questions, verdict.questions_repeated, verdict.is_clean) == (2, 1, True)


@pytest.mark.parametrize(
    ("log", "rows", "fault"),
    [
        ([*LOG, {**LOG[2], "key": "r3"}], ROWS, "refunded_twice"),
        ([*LOG, LOG[3]], ROWS, "refunded_twice"),
        (LOG, ROWS[:1], "lost"),
        (LOG, [*ROWS, ROWS[0]], "duplicated"),
        (LOG, [ROWS[0], {"order": 2, "reply": "21 cents for order 2"}], "contradicted"),
        (LOG, [ROWS[0], {"order": 2, "reply": ""}], "contradicted"),
    ],
)
def test_each_fault_is_counted(log: list[dict[str, Any]], rows: list[dict[str, Any]], fault: str) -> None:
    verdict = judge_agents(log, rows)
    assert getattr(verdict, fault) == 1
    assert not verdict.is_clean


def test_the_model_asks_for_a_refund_of_another_amount_each_time_and_then_repeats_the_result() -> None:
    asked = [{"role": "user", "content": "7"}]
    calls = {completion(asked)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] for _ in range(20)}
    assert len(calls) > 1
    shown = [*asked, {"role": "assistant"}, {"role": "tool", "content": "5 cents for order 7"}]
    assert completion(shown)["choices"][0]["message"]["content"] == "5 cents for order 7"
