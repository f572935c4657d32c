"""The command ``clonos replay --key``: records, calls and state of one key, of conversations and of other steps."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos import (
    Cancel,
    Context,
    Event,
    Job,
    ProcessFunction,
    ValueState,
    ai,
    await_event,
    clock,
    collect,
    http,
    values,
)
from clonos.cli import main
from clonos.core.log.determinants import LogReader
from clonos.core.model.ids import CheckpointId
from clonos.replay.key_epochs import course_over
from clonos.replay.key_steps import StepEvent
from clonos.replay.key_timeline import KeyNotFound, KeyTimeline, timeline_of
from clonos.replay.loading import load_epoch
from clonos.testing import replay
from clonos_services.stand_ins import StandIns
from tests.harnesses.recorded_conversations import TEXTS, converse, model, record_a_wait, record_conversations
from tests.harnesses.recorded_jobs import record_job
from tests.harnesses.recorded_prices import job as prices

ALONE: frozenset[str] = frozenset()


def followed(folder: Path, key: str) -> KeyTimeline:
    return timeline_of(load_epoch(folder), key, ALONE)


CONVERSATION = """\
replies/0, epoch 0 of chat, key '7': 2 records, 4 calls, 21 + 15 tokens

record 1 at replies: {'customer': '7', 'text': '7 has a cup'}
  state before: none
  1 ai.chat, gpt-x: 1 message, 7 + 5 tokens
      user: 7 has a cup
    -> I see: 7 has a cup
  result: {'customer': '7', 'reply': 'I see: 7 has a cup'}
  state after: state = 2 messages

record 3 at replies: {'customer': '7', 'text': '7 has order'}
  state before: state = 2 messages
  1 ai.chat, gpt-x: 3 messages, 2 as before, 7 + 5 tokens
      user: 7 has order
    -> refund(order='7')
  2 refund('7'), an effect
    -> 'order 7 is refunded'
  3 ai.chat, gpt-x: 5 messages, 4 as before, 7 + 5 tokens
      tool: order 7 is refunded
    -> I see: order 7 is refunded
  result: {'customer': '7', 'reply': 'I see: order 7 is refunded'}
  state after: state = 6 messages

then the record ends"""


def test_a_conversation_is_shown_turn_by_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record_conversations(tmp_path)
    assert str(followed(folder, "7")) == CONVERSATION
    assert main(["replay", str(folder), "--key", "7"]) == 0
    assert capsys.readouterr().out.rstrip() == CONVERSATION


def test_a_conversation_that_awaits_an_event_goes_on_where_it_was(tmp_path: Path) -> None:
    _, asks, event, goes_on, last = followed(record_conversations(tmp_path), "8").steps
    assert [call.service for call in asks.calls] == ["ai.chat"]
    assert (asks.awaits, asks.result, event.event) == ("approved", None, StepEvent.EVENT)
    assert (goes_on.calls_as_before, [call.service for call in goes_on.calls]) == (1, ["event", "refund", "ai.chat"])
    assert goes_on.records == asks.records
    assert [each.number for step in (asks, event, last) for each in step.records] == [4, 6, 5]


WAIT = """\
replies/0, epoch 1 of chat, key '8': 1 record, 1 call, 7 + 5 tokens

a record at replies: {'customer': '8', 'text': '8 has order'}
  state before: none
  1 ai.chat, gpt-x: 1 message, 7 + 5 tokens
      user: 8 has order
    -> refund(order='8')
  awaits the event 'approved'
  state after: none
  note: it has awaited the event since before this epoch"""


def test_a_conversation_that_waits_since_an_earlier_epoch_is_shown_with_its_calls(tmp_path: Path) -> None:
    epoch = load_epoch(record_a_wait(tmp_path))
    found = timeline_of(epoch._replace(log=b""), "8", ALONE)
    assert str(found).startswith(WAIT)
    (step,) = found.to_json()["steps"]
    assert (step["awaits"], step["calls"][0]["messages"]) == ("approved", [{"role": "user", "text": "8 has order"}])
    with pytest.raises(KeyNotFound, match="It has '8'"):
        timeline_of(epoch._replace(log=b""), "9", ALONE)


def test_records_and_events_that_wait_for_a_call_are_shown(tmp_path: Path) -> None:
    later = {"customer": "8", "text": "8 has a cup"}
    epoch = load_epoch(record_a_wait(tmp_path / "record", rows=[TEXTS[3], later, Event("checked", True)]))
    found = timeline_of(epoch._replace(log=b""), "8", ALONE)
    assert found.steps[0].notes[-1] == f"records of the key that wait for it: {later}"
    assert found.states["replies"] == {"events": [("checked", True)], "records after suspended calls": [later]}
    early = load_epoch(record_a_wait(tmp_path / "event", rows=[Event("approved", True)]))
    text = str(timeline_of(early._replace(log=b""), "8", ALONE))
    assert "no record at replies, whose state is events = [('approved', True)]" in text


def test_a_wait_for_a_limited_time_shows_its_end(tmp_path: Path) -> None:
    epoch = load_epoch(record_a_wait(tmp_path, patient))
    (step,) = timeline_of(epoch._replace(log=b""), "8", ALONE).steps
    assert (step.awaits, step.calls) == ("approved", [])
    assert step.notes[-1].startswith("its time is up at 2023-11-14T23:13:20.")


def test_a_task_without_any_key_yet_names_its_steps(tmp_path: Path) -> None:
    epoch = load_epoch(record_conversations(tmp_path, rows=TEXTS[:1]))
    with pytest.raises(KeyNotFound, match=r"It has no key at replies\.$"):
        timeline_of(epoch._replace(log=b""), "7", ALONE)


def test_each_cut_of_the_log_shows_what_was_known_then_and_asks_nothing(tmp_path: Path) -> None:
    epoch = load_epoch(record_conversations(tmp_path))
    reader, texts, counts = LogReader(epoch.log, 0), set[str](), list[int]()
    while not reader.at_end:
        reader.next()
        cut = epoch._replace(log=epoch.log[: reader.offset_bytes])
        found = timeline_of(cut, "8", ALONE) if reader.offset_bytes > 3 else None
        if found is None:
            continue
        assert found.is_as_recorded, found
        texts |= {note for step in found.steps for note in step.notes}
        counts.append(sum(call.is_answered for call in found.calls))
    assert texts == {
        "it waits for the call before it",
        "the log has no outcome of its call of ai.chat, so the function ends there",
        "the log has no outcome of its call of refund, so the function ends there",
    }
    assert counts == sorted(counts)
    assert counts[-1] == 6


def briefly(customer: str, history: list[Any] | None, text: dict[str, str]) -> tuple[list[Any], str]:
    reply = model(text["text"])
    return [*(history or []), reply.message], reply.text


def test_a_turn_without_logged_calls_has_its_result_alone(tmp_path: Path) -> None:
    found = followed(record_conversations(tmp_path, briefly, TEXTS[:1], log_calls=False, effects=False), "7")
    assert found.steps[0].result == "'I see: 7 has a cup'"
    assert found.steps[0].calls == []
    assert "log_calls=True logs each of them" in str(found)


def restless(customer: str, history: list[Any] | None, text: dict[str, str]) -> tuple[list[Any], dict[str, str]]:
    mood = os.environ.get("MOOD", "")  # clonos: ok CLN302 it is what the test is about
    return converse(customer, history, {**text, "text": f"{mood}{text['text']}"})


def test_a_function_that_asks_for_something_else_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = record_conversations(tmp_path, restless, TEXTS[:1])
    assert followed(folder, "7").steps[0].notes == []
    monkeypatch.setenv("MOOD", "Alas, ")
    asked = followed(folder, "7").steps[0]
    assert asked.notes == ["the log has no outcome of its call of ai.chat, so the function ends there"]
    assert asked.calls[0].prompt is not None
    assert asked.calls[0].prompt.messages[0].text == "Alas, 7 has a cup"


def answering(customer: str, history: list[Any] | None, text: dict[str, str]) -> tuple[list[Any], str]:
    return [1], os.environ.get("MOOD", "glad")  # clonos: ok CLN302 it is what the test is about


def test_a_function_that_returns_something_else_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = record_conversations(tmp_path, answering, TEXTS[:1])
    monkeypatch.setenv("MOOD", "sad")
    assert followed(folder, "7").steps[0].notes == ["the function does not repeat itself: now it returns ([1], 'sad')"]


def test_json_has_all_that_the_text_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record_conversations(tmp_path)
    assert main(["replay", str(folder), "--key", "7", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["calls"], found["prompt_tokens"], found["completion_tokens"]) == (4, 21, 15)
    asked = found["steps"][1]["calls"][0]
    assert (asked["kind"], asked["model"], asked["tool_calls"]) == ("model", "gpt-x", ["refund(order='7')"])
    assert asked["messages"][-1] == {"role": "user", "text": "7 has order"}


def test_an_unknown_key_is_refused_with_keys_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record_conversations(tmp_path)
    with pytest.raises(KeyNotFound, match="It has '7', '8'"):
        followed(folder, "9")
    assert main(["replay", str(folder), "--key", "9"]) == 1
    assert "has nothing of the key 9, neither a record nor state. It has '7', '8'.\n" in capsys.readouterr().err


def test_a_key_of_another_task_is_refused_with_the_name_of_that_task(tmp_path: Path) -> None:
    job = Job("words", parallelism=2)
    words = job.source(values(list("abcdefgh")), name="words").key_by(str)
    words.count(name="count", parallelism=2).sink(collect(), name="out")
    records = record_job(job, tmp_path)
    refused = [[_refusal(records[f"count/{task}"], key) for task in (0, 1)] for key in "abcdefgh"]
    texts = [[text.partition(". ")[2].partition("Replay ")[2] for text in each] for each in refused]
    here, there = ["", "the record of count/0: the key is there."], ["the record of count/1: the key is there.", ""]
    assert all(each in (here, there) for each in texts), texts
    assert here in texts
    assert there in texts


def _refusal(folder: Path, key: str) -> str:
    try:
        followed(folder, key)
    except KeyNotFound as refused:
        return str(refused)
    return ""


# ------------------------------------------------------------------ other steps


def test_a_step_with_a_function_is_shown_record_by_record(tmp_path: Path) -> None:
    found = followed(record_job(prices(), tmp_path, barriers={3: 1}, epoch=1)["total/0"], "ann")
    assert found.is_as_recorded
    assert [each.number for step in found.steps for each in step.records] == list(range(1, 37, 3))
    states = [(step.before["state"], step.after["state"]) for step in found.steps]
    assert states[0] == (108.0, 132.0)
    assert all(before == states[place][1] for place, (before, _) in enumerate(states[1:]))


def test_a_count_is_shown_batch_by_batch(tmp_path: Path) -> None:
    job = Job("words")
    words = job.source(values(["a", "b", "a", "c"] * 5), name="words").rebalance().key_by(str)
    words.count(name="count").sink(collect(), name="out")
    found = followed(record_job(job, tmp_path)["count/0"], "a")
    assert found.is_as_recorded
    assert sum(len(step.records) for step in found.steps) == 10
    assert [step.after.get("state") for step in found.steps][-1] == 10
    assert [step.before.get("state") for step in found.steps][1:] == [step.after["state"] for step in found.steps][:-1]


class Reminded(ProcessFunction[str, Any]):
    """Counts the records of a key, and forgets them after a second."""

    seen = ValueState("seen", default=0)

    def process(self, row: Any, context: Context[str, Any]) -> None:
        state = context.state(self.seen)
        state.value += 1
        if state.value == 1:
            context.set_timer(clock.time() + 1)
        context.emit((row, http.get(f"http://words/{row}").text))

    def on_timer(self, timestamp: datetime, context: Context[str, Any]) -> None:
        context.state(self.seen).value = 0


def test_a_process_function_is_shown_with_its_calls_and_its_timers(tmp_path: Path) -> None:
    job = Job("words")
    words = job.source(values(["a", "b", "a"]), name="words").key_by(str)
    words.process(Reminded, name="reminded").sink(collect(), name="out")
    with StandIns(http=lambda request: request.url[-1]).answering():
        folder = record_job(job, tmp_path)["reminded/0"]
    found = followed(folder, "a")
    assert found.is_as_recorded
    first, second, timer = found.steps
    assert (first.before, first.after, second.after) == ({}, {"seen": 1}, {"seen": 2})
    assert [call.service for call in first.calls] == ["http.get"]
    assert first.calls[0].request.startswith("'GET', 'http://words/a'")
    assert (timer.event, timer.after.get("seen", 0)) == (StepEvent.TIMER, 0)


def test_a_redacted_conversation_names_what_is_left_out(tmp_path: Path) -> None:
    epoch = load_epoch(record_conversations(tmp_path, rows=TEXTS[:1]))
    hidden = epoch._replace(head=msgspec.structs.replace(epoch.head, redacted=("1 record was redacted",)))
    found = timeline_of(hidden, "7", ALONE)
    assert found.steps[0].notes == ["the calls of the function are not shown: a redacted record does not have them"]
    assert "note: 1 record was redacted" in str(found)


async def asking(customer: str, history: list[Any] | None, text: dict[str, str]) -> tuple[list[Any], str]:
    return briefly(customer, history, text)  # clonos: ok CLN505 the stand-in answers at once


def test_a_coroutine_is_run_with_its_logged_calls_too(tmp_path: Path) -> None:
    found = followed(record_conversations(tmp_path, asking, TEXTS[:1]), "7")
    assert [call.answer and call.answer.text for call in found.calls] == ["I see: 7 has a cup"]
    assert found.steps[0].notes == []


def test_a_request_of_a_model_by_http_is_shown_as_one(tmp_path: Path) -> None:
    def by_http(customer: str, history: Any, text: dict[str, str]) -> tuple[Any, str]:
        body = {"model": "m", "messages": [{"role": "user", "content": text["text"]}]}
        found = http.post("http://models/v1/chat/completions", json=body)
        return [1], str(found.json()["choices"][0]["message"]["content"])

    found = followed(record_conversations(tmp_path, by_http, TEXTS[:1]), "7")
    assert found.calls[0].prompt is not None
    assert found.calls[0].prompt.messages == (("user", "7 has a cup"),)
    assert found.tokens == (7, 5)


helper = ai.agent(model, instructions="You help customers.", text=lambda row: row["text"])


def test_the_state_of_an_agent_is_shown_as_a_conversation(tmp_path: Path) -> None:
    found = followed(record_conversations(tmp_path, helper, TEXTS[:1]), "7")
    assert "  state after: state = 2 messages" in str(found).splitlines()
    (step,) = found.to_json()["states"]
    assert step["state"][0]["messages"] == [
        {"role": "user", "text": "7 has a cup"},
        {"role": "assistant", "text": "I see: 7 has a cup"},
    ]


def test_a_cancelled_call_is_shown_with_the_error_that_it_got(tmp_path: Path) -> None:
    found = followed(record_conversations(tmp_path, rows=[*TEXTS[3:], Cancel("enough")]), "8")
    cancel, cancelled = found.steps
    assert "a cancellation at replies: 'enough'" in str(found).splitlines()
    assert cancel.event is StepEvent.EVENT
    assert cancelled.error == "CallCancelled: the call was cancelled: 'enough'"
    assert [call.error for call in cancelled.calls] == [cancelled.error]
    assert cancelled.notes == []


def patient(customer: str, history: list[Any] | None, text: dict[str, str]) -> tuple[list[Any], str]:
    return [1], str(await_event("approved", timeout="1h"))


def test_an_event_with_a_timeout_is_shown_with_its_time(tmp_path: Path) -> None:
    found = followed(record_conversations(tmp_path, patient, TEXTS[:1]), "7")
    assert found.steps[0].awaits == "approved"
    assert found.steps[0].notes[0].startswith("its time is up at 2023-11-14T23:13:20.")


def test_a_plain_replay_names_the_option_that_runs_the_function(tmp_path: Path) -> None:
    report = replay(record_conversations(tmp_path, rows=TEXTS[:1]))
    assert "the function of replies does not run: " in str(report)
    assert str(report).endswith("so no change of it shows, but with --key")


def test_a_key_with_state_alone_is_shown_with_it(tmp_path: Path) -> None:
    epoch = load_epoch(record_job(prices(), tmp_path, barriers={3: 1}, epoch=1)["total/0"])
    found = timeline_of(epoch._replace(log=b""), "ann", ALONE)
    assert found.steps == []
    assert str(found).splitlines()[0] == "total/0, epoch 1 of prices, key ann: 0 records, 0 calls"
    assert "no record at total, whose state is state = 108.0" in str(found)


priced = ai.chat("gpt-x", base_url="http://localhost:8000/v1", prices={"input": 1000, "output": 2000})


def paying(customer: str, history: list[Any] | None, text: dict[str, str]) -> tuple[list[Any], str]:
    return [1], priced(text["text"]).text


def test_a_model_with_prices_shows_what_each_call_has_cost(tmp_path: Path) -> None:
    found = followed(record_conversations(tmp_path, paying, [TEXTS[0], TEXTS[2]]), "7")
    assert "1 ai.chat, gpt-x: 1 message, 7 + 5 tokens, 0.017 USD" in str(found)
    assert str(found).splitlines()[0].endswith("2 calls, 14 + 10 tokens, 0.034 USD")
    assert found.to_json()["costs"] == {"USD": pytest.approx(0.034)}


def test_the_records_of_a_task_are_shown_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "total-0"
    task.mkdir()
    for epoch in (0, 1, 10):
        made = record_job(prices(), tmp_path / f"run-{epoch}", barriers={3: 1, 5: 10}, epoch=epoch)["total/0"]
        made.rename(task / str(epoch))
    assert main(["replay", str(task), "--key", "ann"]) == 0
    text = capsys.readouterr().out
    titles = [line for line in text.splitlines() if line.startswith("total/0, epoch")]
    assert [line.partition(" of ")[0] for line in titles] == [f"total/0, epoch {epoch}" for epoch in (0, 1, 10)]
    assert text.splitlines()[-1] == "then the record ends"
    assert main(["replay", str(task), "--key", "ann", "--format", "json"]) == 0
    begins = [course["steps"][0]["before"] for course in json.loads(capsys.readouterr().out)]
    assert begins[0] == []
    assert 108.0 == float(begins[1][0]["text"]) < float(begins[2][0]["text"])
    assert main(["replay", str(task), "--key", "ann", "--code", "prices.py"]) == 1
    assert "name one of them, such as " in capsys.readouterr().err
    assert main(["replay", str(task), "--key", "joe"]) == 1
    assert "has nothing of the key joe" in capsys.readouterr().err


def test_epochs_without_a_record_of_the_key_are_named_together(tmp_path: Path) -> None:
    epoch = load_epoch(record_job(prices(), tmp_path, barriers={3: 1}, epoch=1)["total/0"])
    head = msgspec.structs.replace(epoch.head, epoch=CheckpointId(2))
    epochs = {"1": epoch, "2": epoch._replace(log=b"", head=head)}
    text = str(course_over(list(epochs), epochs.__getitem__, "ann", ALONE))
    assert text.count("total/0, epoch ") == 1
    assert text.splitlines()[-1] == "no record of the key in the epoch 2"
