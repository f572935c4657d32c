"""Models: one entry for each call, a reply as plain data, and a key that is nowhere."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from clonos import ai, http, secrets
from clonos.connectors.secrets import SecretMissing
from clonos.core.ports.recorder import running
from clonos.operators.steps.call_attempts import Caller, CallPolicy
from tests.harnesses.call_life import Died, life
from tests.harnesses.fake_recorder import FakeRecorder
from tests.harnesses.model_server import Answer, ModelServer, completion, model_server, sends

KEY = "sk-0123456789-abcdefghi"
QUESTION = [{"role": "user", "content": "Where is my cup?"}]


@dataclass
class Part:
    name: str
    amount: int = 1


@dataclass
class Order:
    customer: str
    parts: list[Part] = field(default_factory=list)


@dataclass
class Folder:
    name: str
    inside: list[Folder]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running_server:
        yield running_server
    http.close()


def refused(server: ModelServer, answer: Answer, **asked: Any) -> str:
    server.script.append(answer)
    with pytest.raises(ai.ReplyInvalid) as raised:
        ai.chat("m", base_url=server.url, retries=0)("?", **asked)
    return str(raised.value)


def test_a_call_sends_the_conversation_and_returns_the_reply_as_data(server: ModelServer) -> None:
    server.script.append(sends("On the table."))
    model = ai.chat("m", base_url=server.url + "/", api_key=KEY, headers={"x-team": "cups"})
    reply = model(QUESTION, temperature=0.5, max_tokens=20)
    assert (reply.text, reply.finish_reason, reply.model, reply.value) == ("On the table.", "stop", "m-2026", None)
    assert reply.message == {"role": "assistant", "content": "On the table."}
    assert reply.usage == ai.Usage(7, 5, 12, 0)
    assert reply.body == completion("On the table.")
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.body == {"model": "m", "messages": QUESTION, "temperature": 0.5, "max_tokens": 20}
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["x-team"] == "cups"


def test_a_text_is_one_message_of_the_user(server: ModelServer) -> None:
    ai.chat("m", base_url=server.url)("Hello.")
    assert server.asked[0].body["messages"] == [{"role": "user", "content": "Hello."}]
    assert "authorization" not in server.asked[0].headers


def test_the_next_incarnation_gets_the_logged_reply_without_a_request_and_without_the_key(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", KEY)
    model = ai.chat("m", base_url=server.url, api_key=secrets.env("MODEL_KEY"))
    recorder = FakeRecorder()
    with running(recorder):
        first = [model(QUESTION) for _ in range(2)]
    monkeypatch.delenv("MODEL_KEY")
    with running(recorder.successor()):
        assert [model(QUESTION) for _ in range(2)] == first
    assert [reply.text for reply in first] == ["number 1", "number 2"]
    assert len(server.asked) == len(recorder.log) == 2
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 2
    assert KEY not in repr(recorder.log) + repr(recorder.calls_made) + repr(model) + repr(pickle.dumps(model))
    with pytest.raises(SecretMissing, match="MODEL_KEY is not set"):
        model(QUESTION)


def test_the_log_has_the_reply_and_of_a_long_conversation_a_digest(server: ModelServer) -> None:
    long = [{"role": "user", "content": f"question {number} " * 1_000} for number in range(20)]
    reported: dict[bytes, bytes] = {}
    run(lambda record: ai.chat("m", base_url=server.url)(long).text, reported)
    (outcome,) = reported.values()
    assert len(server.asked[0].body["messages"]) == 20
    assert b"number 1" in outcome
    assert b"question" not in outcome
    assert len(outcome) < 300


def test_a_key_that_the_server_repeats_is_in_no_error_and_in_no_entry_of_the_log(server: ModelServer) -> None:
    server.script += [Answer(401, f"wrong key: {KEY}".encode()), sends(f"You are {KEY}."), Answer(200, KEY.encode())]
    recorder, model = FakeRecorder(), ai.chat("m", base_url=server.url, api_key=KEY)
    with running(recorder):
        with pytest.raises(http.HttpStatusError, match=r"401 Unauthorized: wrong key: \*\*\*"):
            model(QUESTION)
        assert model(QUESTION).text == "You are ***."
        with pytest.raises(ai.ReplyInvalid, match=r"It begins with: \*\*\*"):
            model(QUESTION)
    assert KEY not in repr(recorder.log) + repr(model)


@pytest.mark.parametrize("slash", ["\\/", "\\\\/", "\\u002f", "\\u002F"])
def test_a_key_that_the_server_escapes_is_in_no_error_and_in_no_reply(server: ModelServer, slash: str) -> None:
    key = "sk/0123456789+abcdefghi"
    refusal = sends(f"It is {key}.").body.replace(b"/", slash.encode())
    server.script += [Answer(401, refusal), Answer(body=refusal)]
    model = ai.chat("m", base_url=server.url, api_key=key, retries=0)
    with pytest.raises(http.HttpStatusError, match=r"It is \*\*\*\.") as raised:
        model("?")
    assert "0123456789" not in str(raised.value)
    assert model("?").text == "It is ***."


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 7.0, "completion_tokens": 5, "total_tokens": None}, ai.Usage(7, 5, 0)),
        (
            {"prompt_tokens": 7, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1.0}},
            ai.Usage(7, 0, 7, 1),
        ),
    ],
)
def test_numbers_of_tokens_may_be_null_or_whole_floats(
    server: ModelServer, usage: dict[str, Any], counted: ai.Usage
) -> None:
    server.script.append(Answer(body=json.dumps({**completion("On it."), "usage": usage}).encode()))
    assert ai.chat("m", base_url=server.url, retries=0)("?").usage == counted


def test_a_key_that_is_no_header_is_refused_without_being_shown() -> None:
    with pytest.raises(http.HttpRequestInvalid) as raised:
        ai.chat("m", base_url="http://127.0.0.1:1", api_key=f"{KEY}\n{KEY}")("?")
    assert KEY not in str(raised.value)


def test_a_short_key_stays_a_word_of_the_reply(server: ModelServer) -> None:
    server.script.append(sends("none of them"))
    assert ai.chat("m", base_url=server.url, api_key="none")("Which?").text == "none of them"


@pytest.mark.parametrize(
    "answer", [Answer(429, headers=(("Retry-After", "0"),)), Answer(503), Answer(breaks=True)], ids=str
)
def test_a_call_that_the_server_did_not_answer_is_repeated_with_the_same_key(
    server: ModelServer, answer: Answer
) -> None:
    server.script += [answer] * 3
    recorder = FakeRecorder()
    with running(recorder):
        assert ai.chat("m", base_url=server.url, retries=3)(QUESTION).text == "number 4"
    assert len(recorder.log) == 1
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1


def test_a_server_that_asks_for_a_longer_pause_than_the_time_is_not_asked_again(server: ModelServer) -> None:
    server.script.append(Answer(429, b"slow down", (("Retry-After", "60"),)))
    with pytest.raises(http.HttpStatusError, match="429 Too Many Requests: slow down"):
        ai.chat("m", base_url=server.url, timeout=20)(QUESTION)
    assert len(server.asked) == 1


def test_a_reply_without_end_ends_with_the_timeout(server: ModelServer) -> None:
    server.script.append(Answer(drips=True))
    with pytest.raises(http.HttpTimeout, match=r"no reply within 0\.2 s"):
        ai.chat("m", base_url=server.url, timeout=0.2)(QUESTION)


def test_a_dataclass_is_asked_for_by_its_schema_and_the_reply_is_an_object_of_it(server: ModelServer) -> None:
    server.script.append(sends('{"customer": "ann", "parts": [{"name": "cup", "amount": 2}]}'))
    reply = ai.chat("m", base_url=server.url)("A cup, twice, for ann.", response=Order)
    assert reply.value == Order("ann", [Part("cup", 2)])
    part = {
        "title": "Part",
        "type": "object",
        "properties": {"name": {"type": "string"}, "amount": {"type": "integer"}},
        "required": ["name", "amount"],
        "additionalProperties": False,
    }
    assert server.asked[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "Order",
            "strict": True,
            "schema": {
                "title": "Order",
                "type": "object",
                "properties": {
                    "customer": {"type": "string"},
                    "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
                },
                "required": ["customer", "parts"],
                "additionalProperties": False,
                "$defs": {"Part": part},
            },
        },
    }


def test_a_class_that_refers_to_itself_is_described_once(server: ModelServer) -> None:
    server.script.append(sends('{"name": "a", "inside": [{"name": "b", "inside": []}]}'))
    assert ai.chat("m", base_url=server.url)("?", response=Folder).value == Folder("a", [Folder("b", [])])
    schema = server.asked[0].body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["inside"]["items"] == {"$ref": "#/$defs/Folder"}
    assert set(schema["$defs"]) == {"Folder"}


def test_a_class_with_a_field_of_any_names_is_not_strict(server: ModelServer) -> None:
    @dataclass
    class Counts:
        by_word: dict[str, int]

    server.script.append(sends('{"by_word": {"a": 1}}'))
    assert ai.chat("m", base_url=server.url)("?", response=Counts).value == Counts({"a": 1})
    assert server.asked[0].body["response_format"]["json_schema"]["strict"] is False


def test_calls_of_tools_are_data_and_their_results_continue_the_conversation(server: ModelServer) -> None:
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    call = {"id": "t-1", "type": "function", "function": {"name": "find", "arguments": '{"order": 7}'}}
    server.script.append(sends(None, finish_reason="tool_calls", tool_calls=[call]))
    model = ai.chat("m", base_url=server.url)
    reply = model(QUESTION, tools=tools, response=Order)
    assert (reply.text, reply.value) == ("", None)
    assert reply.tool_calls == (ai.ToolCall("t-1", "find", {"order": 7}),)
    more = [*QUESTION, reply.message, reply.tool_calls[0].result("on its way")]
    assert model(more).text == "number 2"
    assert server.asked[0].body["tools"] == tools
    assert server.asked[1].body["messages"] == [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t-1", "content": "on its way"},
    ]


def test_a_reply_that_cannot_be_used_names_what_is_wrong_and_where(server: ModelServer) -> None:
    wrong = sends('{"customer": "ann", "parts": [{"name": 7}]}')
    message = refused(server, wrong, response=Order)
    assert (
        f"the reply of the model m at {server.url}/chat/completions cannot be used: its text does not fit Order:"
        in message
    )
    assert "Expected `str`, got `int` - at `$.parts[0].name`" in message
    assert '"content": "{\\"customer\\": \\"ann\\"' in message
    assert "Raise max_tokens=" in refused(server, sends("{", finish_reason="length"), response=Order)
    assert "the model refuses: no" in refused(server, sends(None, refusal="no"), response=Order)
    assert "it is not a chat completion: JSON is malformed" in refused(server, Answer(body=b"<html>"))
    assert "length >= 1 - at `$.choices`" in refused(server, Answer(body=b'{"choices": []}'))
    call = {"id": "t", "function": {"name": "find", "arguments": "[1]"}}
    assert "the arguments of the tool find are no JSON object: " in refused(server, sends(None, tool_calls=[call]))
    deep = {"name": "find", "arguments": '{"a":' * 100_000}
    assert "recursion" in refused(server, sends(None, tool_calls=[{**call, "function": deep}]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ai.chat("m", base_url="localhost:1/v1"), "expected http:// or https://"),
        (lambda: ai.chat("m", base_url="http://h/v1?a=b"), "without a query"),
        (lambda: ai.chat(""), "the model has no name"),
        (lambda: ai.chat("m")("?", stream=True), "stream= is not supported"),
        (lambda: ai.chat("m")("?", response=int), "expected a dataclass"),
        (lambda: ai.chat("m")("?", response={}), "response= cannot be described as JSON"),  # type: ignore[arg-type]
        (lambda: ai.chat("m")("?", response=dict[str, int]), "a TypedDict or a msgspec.Struct"),
        (lambda: ai.chat("m")("?", response=Order, response_format={}), "both response= and response_format="),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_sent(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ai.ModelCallInvalid) as raised:
        call()
    assert message in str(raised.value)


def agent(server: ModelServer) -> Callable[[Any], str]:
    model = ai.chat("m", base_url=server.url, retries=0)

    def answered(record: Any) -> str:
        messages: list[Any] = list(QUESTION)
        for _ in range(4):
            messages = [*messages, model(messages).message, *QUESTION]
        return json.dumps(messages)

    return answered


def run(code: Callable[[Any], Any], reported: dict[bytes, bytes], dies_after: int = 1_000, retries: int = 0) -> Any:
    caller = Caller("step", code, CallPolicy(retries=retries))
    try:
        return caller.call((None,), "key", life(reported, dies_after, has_effects=False))
    finally:
        caller.close()


def test_an_agent_of_a_process_that_died_asks_only_what_is_not_logged(server: ModelServer) -> None:
    reported: dict[bytes, bytes] = {}
    with pytest.raises(Died):
        run(agent(server), reported, dies_after=2)
    assert (len(server.asked), len(reported)) == (3, 2), "the third reply was not logged"
    found = run(agent(server), reported)
    assert len(server.asked) == 5
    assert run(agent(server), reported) == found
    assert len(server.asked) == 5


@pytest.mark.parametrize("failure", [Answer(500), sends("no JSON")], ids=["status", "reply"])
def test_a_step_with_retries_asks_again_for_a_failed_call_alone(server: ModelServer, failure: Answer) -> None:
    server.script += [sends('{"name": "a"}'), failure, sends('{"name": "b"}')]
    model = ai.chat("m", base_url=server.url, retries=0)

    def named(record: Any) -> list[str]:
        return [model(question, response=Part).value.name for question in ("first?", "second?")]

    assert run(named, {}, retries=1) == ["a", "b"]
    assert [asked.body["messages"][0]["content"] for asked in server.asked] == ["first?", "second?", "second?"]
