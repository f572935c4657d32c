"""Runs of conversations: the oracle, the server that it asks, and what makes a slice bad."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clonos_chaos.project.conversing import talk_runs
from clonos_chaos.project.conversing.talk_runs import Conversations, line_of, run_conversations
from clonos_chaos.project.conversing.talk_server import Paid, TalkServer
from clonos_chaos.project.conversing.talk_slice import KILLS, TalkRecord, kills_of
from clonos_chaos.project.conversing.talking_job import APPROVED_EVERY, judge, turns_of
from clonos_chaos.scenario.scenario_oracle import Findings, Row

EXPECTED = [("c0", 0), ("c0", 1)]


def talked() -> tuple[TalkServer, list[Row]]:
    """A server, and the rows of one conversation of two turns with it."""
    server = TalkServer("http://model", Random(1))
    messages: list[Any] = []
    rows = []
    for turn in range(2):
        asking, answering = 2 * turn + 1, 2 * turn + 2
        server.paid |= {asking: Paid("c0", turn, 0), answering: Paid("c0", turn, 1)}
        receipt = server.refund(f"c0-{turn}", f"key {turn}")
        messages = [*messages, {"role": "user", "content": f"c0 {turn}"}]
        messages += [{"role": "system", "content": "approved"}] if turn % APPROVED_EVERY == 0 else []
        messages += [
            {"role": "assistant", "tool_calls": [{"id": f"call {asking}"}]},
            {"role": "tool", "content": f"receipt {receipt}"},
            {"role": "assistant", "content": f"answer {answering}"},
        ]
        rows.append(
            {"customer": "c0", "turn": turn, "messages": json.dumps(messages), "receipt": receipt, "drawn": turn}
        )
    return server, rows


def judged(server: TalkServer, files: list[Row], table: list[Row]) -> tuple[int, int, int, int]:
    found: Findings = judge(server, {"files": files, "table": table}, EXPECTED)
    return found.lost, found.duplicated, found.contradicted, found.calls_repeated


def test_a_conversation_that_is_whole_has_each_reply_that_was_paid() -> None:
    server, rows = talked()
    assert judged(server, rows, rows) == (0, 0, 0, 0)
    assert judge(server, {"files": rows}, EXPECTED).calls == 4


def test_a_reply_that_no_output_has_was_repeated() -> None:
    server, rows = talked()
    server.paid[9] = Paid("c0", 1, 1)
    assert judged(server, rows, rows) == (0, 0, 0, 1)


def test_a_row_that_differs_between_the_outputs_is_contradicted() -> None:
    server, rows = talked()
    assert judged(server, rows, [rows[0], {**rows[1], "drawn": 7}])[2] == 1


def test_a_reply_to_another_turn_is_contradicted() -> None:
    server, rows = talked()
    server.paid[3] = Paid("c0", 0, 0)
    assert judged(server, rows, rows)[2] == 1


def test_a_turn_that_forgets_the_conversation_before_it_is_contradicted() -> None:
    server, rows = talked()
    rows[1]["messages"] = json.dumps(json.loads(rows[1]["messages"])[5:])
    assert judged(server, rows, rows)[2] > 0


def test_a_lost_turn_and_a_refund_that_came_twice_are_noticed() -> None:
    server, rows = talked()
    server.refund("c0-1", "another key")
    lost, duplicated, *_ = judged(server, rows[:1], rows)
    assert (lost, duplicated) == (1, 1)


def test_a_round_has_each_kill_and_turns_await_approvals() -> None:
    assert sorted(map(str, kills_of(3, len(KILLS)))) == sorted(map(str, KILLS))
    assert kills_of(3, len(KILLS)) != kills_of(4, len(KILLS))
    given = turns_of(20, APPROVED_EVERY + 1)
    of_one = [(turn, is_approval) for number, turn, is_approval in given if number == 1]
    assert of_one == [(0, False), (0, True), (1, False), (2, False), (3, False), (3, True)]
    assert len(given) == len(set(given)) == 20 * (APPROVED_EVERY + 3)


@pytest.mark.parametrize(
    ("wrong", "is_good"),
    [({}, True), ({"repeated": 5}, False), ({"refunded_again": 1}, False), ({"failure": "it stands"}, False)],
)
def test_a_slice_is_bad_if_an_effect_came_twice_or_no_kill_explains_a_repetition(
    wrong: dict[str, Any], is_good: bool
) -> None:
    assert TalkRecord(1, **{"kills": {"talk, with calls under way": 2}, "repeated": 4, **wrong}).is_good is is_good


class FakeTalk:
    """A slice that does nothing but count its kills."""

    def __init__(self, number: int, folder: Path, kills: list[object], client: str, *, capacity: int) -> None:
        self.record = TalkRecord(number, client=client, capacity=capacity, kills={"talk": len(kills)})

    def run(self, on_kill: object) -> TalkRecord:
        return self.record


def test_slices_ask_in_turn_by_both_clients_until_there_are_enough_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(talk_runs, "TalkSlice", FakeTalk)
    assert run_conversations(Conversations(tmp_path, wanted=100, capacity=3))
    assert "100 kills, 0 missed;" in capsys.readouterr().out
    assert "3 slices, 0 bad" in line_of([TalkRecord(number) for number in range(3)])
    lines = [json.loads(line) for line in (tmp_path / "slices.jsonl").read_text("utf-8").splitlines()]
    assert [line["client"] for line in lines] == ["httpx", "ai.chat", "httpx"]
    assert {line["capacity"] for line in lines} == {3}
