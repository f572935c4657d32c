"""The command ``clonos replay --key --code``: where the turns of a conversation part with changed code, and what the
replay may ask then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clonos.cli import main
from clonos.io.http.http_client import HttpRequest
from clonos.replay.key_changes import KeyChanges, changes_of_key
from clonos.replay.loading import load_epoch
from clonos.replay.replay_session import changed_image
from clonos.replay.what_if import WhatIf
from clonos_services.stand_ins import StandIns
from tests.harnesses.model_server import completion, model_server, sends
from tests.harnesses.recorded_conversations import TEXTS, Text, conversations, converse, record_conversations, refund
from tests.harnesses.recorded_jobs import record_job
from tests.harnesses.recorded_prices import job as prices
from tests.harnesses.recorded_prices import total

ALONE: frozenset[str] = frozenset()


def brief(customer: str, history: list[Any] | None, text: Text) -> tuple[list[Any], Text]:
    return converse(customer, history or [{"role": "system", "content": "Be brief."}], text)


def changed(folder: Path, function: Any, key: str = "7", what_if: WhatIf | None = None, **options: Any) -> KeyChanges:
    epoch = load_epoch(folder)
    image = changed_image(epoch, conversations(function, **options))
    return changes_of_key(epoch, key, ALONE, image, what_if or WhatIf())


PARTS = """\
record 1 at replies: {'customer': '7', 'text': '7 has a cup'}
  1 ai.chat is asked for something else
        ai.chat, gpt-x
        temperature = 0
      + system: Be brief.
        user: 7 has a cup
    then -> I see: 7 has a cup
    now  -> the log has no outcome
  note: the turn ends at ai.chat: no logged answer belongs to this request. --go-on lets the replay ask

record 3 at replies: {'customer': '7', 'text': '7 has order'}
  3 calls as before
  result: {'customer': '7', 'reply': 'I see: order 7 is refunded'}, as before

1 of 2 turns differs; 0 calls made"""


def test_another_prompt_is_shown_beside_the_recorded_one_and_asks_nothing(tmp_path: Path) -> None:
    found = changed(record_conversations(tmp_path), brief)
    assert str(found).partition("\n\n")[2] == PARTS
    assert not found.is_as_recorded


def test_the_same_prompts_part_nowhere(tmp_path: Path) -> None:
    found = changed(record_conversations(tmp_path), converse, "8")
    assert found.is_as_recorded, found
    assert "0 of 4 turns differ; 0 calls made" in str(found)


def loud(customer: str, history: list[Any] | None, text: Text) -> tuple[list[Any], Text]:
    state, result = converse(customer, history, text)
    return state, {**result, "reply": result["reply"].upper()}


def test_the_same_prompts_with_another_result_show_both(tmp_path: Path) -> None:
    found = changed(record_conversations(tmp_path, rows=TEXTS[:1]), loud)
    assert "was  result: {'customer': '7', 'reply': 'I see: 7 has a cup'}" in str(found)
    assert "is   result: {'customer': '7', 'reply': 'I SEE: 7 HAS A CUP'}" in str(found)
    assert [turn.part for turn in found.turns] == [None]
    assert not found.is_as_recorded


def messages_of(request: HttpRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(request.body or b"")["messages"]
    return found


def stand_ins() -> StandIns:
    return StandIns(lambda request: completion(f"ok, {len(messages_of(request))}"))


def test_a_conversation_goes_on_with_what_stand_ins_answer(tmp_path: Path) -> None:
    what_if = WhatIf(stand_ins())
    first, second = changed(record_conversations(tmp_path), brief, what_if=what_if).turns
    assert first.now is not None
    assert second.now is not None
    assert (first.now.result, second.now.result) == (
        "{'customer': '7', 'reply': 'ok, 2'}",
        "{'customer': '7', 'reply': 'ok, 4'}",
    )
    assert second.now.before == first.now.after
    assert what_if.made == ["ai.chat", "ai.chat"]


def test_after_an_event_nothing_is_asked_a_second_time(tmp_path: Path) -> None:
    def asks(request: HttpRequest) -> dict[str, Any]:
        call = {"id": "c", "type": "function", "function": {"name": "refund", "arguments": '{"order": "8"}'}}
        history = messages_of(request)
        return completion(None, tool_calls=[call]) if history[-1]["content"] == "8 has order" else completion("ok")

    what_if = WhatIf(StandIns(asks))
    found = changed(record_conversations(tmp_path), brief, "8", what_if)
    assert [turn.now and turn.now.awaits for turn in found.turns] == ["", "approved", "", "", ""]
    assert found.turns[3].now is not None
    assert found.turns[3].now.calls_as_before == 1
    assert what_if.made == ["ai.chat"] * 4


def hasty(customer: str, history: list[Any] | None, text: Text) -> tuple[list[Any], Text]:
    return [1], {"customer": customer, "reply": refund("99")}


def test_an_effect_without_a_stand_in_is_not_made_even_with_the_network(tmp_path: Path) -> None:
    folder = record_conversations(tmp_path, rows=TEXTS[:1])
    what_if = WhatIf(StandIns(), has_network=True)
    found = changed(folder, hasty, what_if=what_if)
    assert "it has an effect, so only a stand-in answers it" in str(found)
    assert what_if.made == []
    by_stand_in = changed(folder, hasty, what_if=WhatIf(StandIns(services={"refund": lambda order: f"no {order}"})))
    assert "'reply': 'no 99'" in str(by_stand_in)


def test_without_a_stand_in_the_message_names_both_ways_to_go_on(tmp_path: Path) -> None:
    found = changed(record_conversations(tmp_path, rows=TEXTS[:1]), brief, what_if=WhatIf(StandIns()))
    assert "it has no stand-in. Give one (--stand-ins), or --allow network to ask it" in str(found)


CODE = """
from clonos import ai
from tests.harnesses.recorded_conversations import conversations

model = ai.chat("gpt-y", base_url="{url}", retries=0)

def converse(customer, history, text):
    reply = model(text["text"])
    return [reply.message], dict(customer=customer, reply=reply.text)

job = conversations(converse)
"""


def test_the_command_asks_the_model_only_if_the_network_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = str(record_conversations(tmp_path / "record", rows=TEXTS[:1])), tmp_path / "changed.py"
    command = ["replay", folder, "--key", "7", "--code", str(file)]
    with model_server() as server:
        server.script.append(sends("A new cup."))
        file.write_text(CODE.format(url=server.url))
        assert main(command) == 1
        assert main([*command, "--go-on"]) == 1
        assert server.asked == []
        assert "or --allow network to ask it" in capsys.readouterr().out
        assert main([*command, "--go-on", "--allow", "network"]) == 1
        assert len(server.asked) == 1
    text = capsys.readouterr().out
    assert "- ai.chat, gpt-x\n" in text
    assert "now  -> A new cup." in text
    assert "1 of 1 turn differs; 1 call made" in text
    assert main([*command, "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["turns"][0]["parts_at_call"], found["turns"][0]["changes"][0]) == (1, "- ai.chat, gpt-x")


def test_options_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(record_conversations(tmp_path, rows=TEXTS[:1]))
    assert main(["replay", folder, "--key", "7", "--go-on"]) == 1
    assert "give --go-on with --code" in capsys.readouterr().err
    assert main(["replay", folder, "--key", "7", "--pdb"]) == 1
    assert "--at key=... to debug it" in capsys.readouterr().err
    assert main(["replay", folder, "--key", "7", "--elsewhere"]) == 1
    assert "give one of them" in capsys.readouterr().err


def doubled(name: str, so_far: float | None, row: dict[str, Any]) -> tuple[float, tuple[str, float]]:
    return total(name, so_far, {**row, "euros": 2 * row["euros"]})


def test_a_step_without_calls_shows_its_states_with_both_codes(tmp_path: Path) -> None:
    epoch = load_epoch(record_job(prices(), tmp_path, barriers={3: 1}, epoch=1)["total/0"])
    found = changes_of_key(epoch, "ann", ALONE, changed_image(epoch, prices(add=doubled)), WhatIf())
    assert "state after was state = 132.0\n              is  state = 156.0" in str(found)
    assert len(found.turns) == 12
