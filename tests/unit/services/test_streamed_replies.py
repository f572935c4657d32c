"""Replies that come in pieces: the text is shown while it comes, and the log has the whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from clonos import ai, http
from clonos.core.log.call_usage import MODEL_COST
from clonos.core.ports.recorder import running
from clonos.testing import Harness
from tests.harnesses.fake_recorder import FakeRecorder
from tests.harnesses.model_server import Answer, ModelServer, completion, model_server, sends, streams

KEY = "sk-0123456789-abcdefghi"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running_server:
        yield running_server
    http.close()


def test_the_text_is_shown_while_it_comes_and_a_replay_shows_nothing(server: ModelServer) -> None:
    shown, texts = list[str](), SimpleQueue[str]()
    has_new_text = iter([True, False, True, False, False, False])

    def wait() -> None:
        if next(has_new_text):
            shown.append(texts.get(timeout=10))

    words = streams({"role": "assistant", "content": ""}, {"content": "On the "}, {"content": "täble."})
    cut = words[2].index("ä".encode()) + 1
    pieces = (words[0] + words[1], words[2][:cut], words[2][cut:], *words[3:])
    server.script.append(Answer(pieces=pieces, after_piece=wait))
    model, recorder = ai.chat("m", base_url=server.url), FakeRecorder()
    with running(recorder):
        reply = model("?", on_text=texts.put)
    assert shown == ["On the ", "On the täble."]
    assert (reply.text, reply.finish_reason, reply.model) == ("On the täble.", "stop", "m-2026")
    assert reply.usage == ai.Usage(7, 5, 12)
    assert server.asked[0].body["stream"] is True
    assert server.asked[0].body["stream_options"] == {"include_usage": True}
    with running(recorder.successor()):
        assert model("?", on_text=texts.put) == reply
    assert texts.empty()


def test_a_reply_in_pieces_is_that_which_comes_at_once(server: ModelServer) -> None:
    call = {"id": "t-1", "type": "function", "function": {"name": "find", "arguments": '{"order": 7}'}}
    parts: list[dict[str, Any]] = [
        {"tool_calls": [{"index": 0, "id": "t-1", "function": {"name": "find", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"ord'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'er": 7}'}}]},
    ]
    server.script += [
        Answer(pieces=streams(*parts, finish_reason="tool_calls")),
        sends(None, finish_reason="tool_calls", tool_calls=[call]),
    ]
    model, shown = ai.chat("m", base_url=server.url), list[str]()
    replies = [model("?", on_text=shown.append), model("?")]
    assert replies[0] == replies[1]
    assert shown == []


def test_a_server_that_does_not_stream_shows_the_whole_text(server: ModelServer) -> None:
    shown: list[str] = []
    reply = ai.chat("m", base_url=server.url)("?", on_text=shown.append)
    assert [reply.text] == shown == ["number 1"]


def test_stand_ins_of_tests_show_the_whole_text(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    model = ai.chat("m", base_url="http://model/v1")

    def ask(question: str) -> str:
        return model(question, on_text=shown.write_text).text  # clonos: ok CLN306 it only shows

    with Harness(ask, http=lambda request: completion("On the table.")) as harness:
        assert harness.push(["?"]) == ["On the table."]
    assert shown.read_text() == "On the table."


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        (streams({"content": "On"})[:1], "it ends in its middle"),
        ((b"data: {\n",), "a piece of it is malformed"),
        ((b'data: {"error": {"message": "overloaded"}}\n\n',), "a piece of it is an error"),
    ],
)
def test_a_reply_without_its_end_is_an_error(server: ModelServer, pieces: tuple[bytes, ...], problem: str) -> None:
    server.script.append(Answer(pieces=pieces))
    with pytest.raises(ai.ReplyInvalid, match=problem):
        ai.chat("m", base_url=server.url, retries=0)("?", on_text=lambda text: None)


@pytest.mark.parametrize(
    "deltas",
    [
        ({"content": f"It is {KEY}"},),
        ({"content": f"It is {KEY[:9]}"}, {"content": KEY[9:]}),
        ({"content": f"It is {KEY[:-1]}"},),
        ({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": f'{{"key": "{KEY}'}}]},),
    ],
)
def test_a_reply_that_breaks_off_is_counted_and_its_error_has_no_part_of_the_key(
    server: ModelServer, deltas: tuple[dict[str, Any], ...]
) -> None:
    words = streams(*deltas)
    server.script.append(Answer(pieces=(*words[: len(deltas)], b"data: {\n\n", words[-2])))
    recorder, prices = FakeRecorder(), {"input": 1_000, "output": 0}
    with running(recorder), pytest.raises(ai.ReplyInvalid, match="malformed") as raised:
        ai.chat("m", base_url=server.url, api_key=KEY, retries=0, prices=prices)("?", on_text=lambda text: None)
    assert KEY[:9] not in str(raised.value) + repr(recorder.log)
    assert recorder.metric_table.value(MODEL_COST, ("m", "USD")) == 0.007


@pytest.mark.parametrize("line", [b": PROCESSING\n\n", b"event: message\n", b"\r\n"])
def test_a_reply_in_pieces_may_begin_with_any_line(server: ModelServer, line: bytes) -> None:
    server.script.append(Answer(pieces=(line, *streams({"content": "On the table."}))))
    assert ai.chat("m", base_url=server.url, retries=0)("?", on_text=lambda text: None).text == "On the table."


@pytest.mark.parametrize("places", [{}, {"index": 0}])
def test_each_call_of_a_tool_is_one_also_if_the_server_does_not_number_them(
    server: ModelServer, places: dict[str, int]
) -> None:
    parts: list[dict[str, Any]] = [
        {**places, "id": "a", "function": {"name": "find", "arguments": '{"order"'}},
        {**places, "id": "a", "function": {"name": "find", "arguments": ": 7"}},
        {**places, "function": {"arguments": "}"}},
        {**places, "id": "b", "function": {"name": "pay", "arguments": "{}"}},
    ]
    deltas = [{"tool_calls": parts[:1]}, {"tool_calls": parts[1:]}]
    server.script.append(Answer(pieces=streams(*deltas, finish_reason="tool_calls")))
    reply = ai.chat("m", base_url=server.url, retries=0)("?", on_text=lambda text: None)
    assert reply.tool_calls == (ai.ToolCall("a", "find", {"order": 7}), ai.ToolCall("b", "pay", {}))


def test_a_call_of_a_tool_with_neither_index_nor_id_is_an_error(server: ModelServer) -> None:
    server.script.append(Answer(pieces=streams({"tool_calls": [{"function": {"name": "find", "arguments": "{}"}}]})))
    with pytest.raises(ai.ReplyInvalid, match="a call of a tool has neither an index nor an id"):
        ai.chat("m", base_url=server.url, retries=0)("?", on_text=lambda text: None)


def test_a_function_that_publishes_by_http_gets_the_text_of_the_model_alone(server: ModelServer) -> None:
    shown: list[str] = []

    def publish(text: str) -> None:
        shown.append(text)
        http.post(f"{server.url}/screen", json={"text": text}, intent=False)

    server.script += [Answer(pieces=streams({"content": "On it."})), Answer(pieces=streams({"content": "Published."}))]
    assert ai.chat("m", base_url=server.url, retries=0)("?", on_text=publish).text == "On it."
    assert shown == ["On it."]


def test_a_function_that_cannot_show_does_not_cost_the_reply(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    texts = SimpleQueue[str]()
    has_new_text = iter([True, *[False] * 4])

    def show(text: str) -> None:
        texts.put(text)
        raise ValueError("the screen is off")

    def wait() -> None:
        assert not next(has_new_text) or texts.get(timeout=10) == "On "

    server.script.append(Answer(pieces=streams({"content": "On "}, {"content": "it."}), after_piece=wait))
    assert ai.chat("m", base_url=server.url, retries=0)("?", on_text=show).text == "On it."
    assert texts.empty()
    assert "on_text= has raised an exception" in caplog.text


def test_a_key_in_several_pieces_is_neither_logged_nor_shown_in_part(server: ModelServer) -> None:
    texts, recorder, shown = SimpleQueue[str](), FakeRecorder(), list[str]()
    has_new_text = iter([True, *[False] * 4])

    def wait() -> None:
        if next(has_new_text):
            shown.append(texts.get(timeout=10))

    words = streams({"content": f"It is {KEY[:9]}"}, {"content": KEY[9:]})
    server.script.append(Answer(pieces=words, after_piece=wait))
    with running(recorder):
        reply = ai.chat("m", base_url=server.url, api_key=KEY)("?", on_text=texts.put)
    assert reply.text == "It is ***"
    assert [*shown, texts.get_nowait()] == ["It is ", "It is ***"]
    assert texts.empty()
    assert KEY not in repr(recorder.log)


def test_a_later_attempt_begins_the_text_again(server: ModelServer) -> None:
    shown: list[str] = []
    fallback = ai.chat("second", base_url=server.url)
    server.script += [Answer(pieces=streams({"content": "On"})[:1]), Answer(pieces=streams({"content": "At home."}))]
    ai.chat("first", base_url=server.url, fallback=fallback)("?", on_text=shown.append)
    assert shown == ["On", "", "At home."]
