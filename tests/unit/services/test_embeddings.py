"""Embeddings: one entry for each request, and the numbers as the server has sent them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from struct import pack, unpack
from typing import Any

import pytest

from clonos import Stream, ai, http
from clonos.core.ports.recorder import running
from clonos.testing import Harness
from tests.harnesses.fake_recorder import FakeRecorder
from tests.harnesses.model_server import Answer, ModelServer, embedding, model_server, vectors

TEXTS = ["a blue cup", "a red cup", "paid twice"]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running_server:
        yield running_server
    http.close()


def sent(embeddings: list[Any], **more: Any) -> Answer:
    """Answer with vectors, or with whatever stands for one."""
    data = [{"index": index, "embedding": each} for index, each in enumerate(embeddings)]
    return Answer(body=json.dumps({"data": data, **more}).encode())


def test_texts_get_their_vectors_in_one_call_and_a_single_text_gets_one(server: ModelServer) -> None:
    embed = ai.embeddings("e", base_url=server.url, api_key="sk-0123456789-abcdefghi")
    reply = embed(TEXTS, user="u-1")
    assert reply.vectors == tuple(map(embedding, TEXTS))
    assert (reply.precision, reply.model, reply.usage) == ("float64", "e-2026", ai.Usage(8, 0, 8, 0))
    assert embed(TEXTS[0]).vector == embedding(TEXTS[0])
    asked = [each.body for each in server.asked]
    assert asked == [{"model": "e", "input": TEXTS, "user": "u-1"}, {"model": "e", "input": TEXTS[:1]}]
    assert server.asked[0].path == "/v1/embeddings"
    assert server.asked[0].headers["authorization"] == "Bearer sk-0123456789-abcdefghi"


def test_numbers_of_json_keep_all_their_digits(server: ModelServer) -> None:
    numbers = [0.1, -1 / 3, 5e-324, 1.7976931348623157e308, 2**53 - 1, -0.0]
    server.script.append(sent([numbers]))
    reply = ai.embeddings("e", base_url=server.url)("?")
    assert list(map(repr, reply.vector)) == list(map(repr, map(float, numbers)))


def test_numbers_of_base64_are_those_of_float32(server: ModelServer) -> None:
    reply = ai.embeddings("e", base_url=server.url, encoding_format="base64", dimensions=5)(TEXTS)
    assert reply.precision == "float32"
    assert reply.vectors == tuple(list(unpack("<5f", pack("<5f", *embedding(text, 5)))) for text in TEXTS)
    assert server.asked[0].body == {"model": "e", "input": TEXTS, "dimensions": 5, "encoding_format": "base64"}


def test_more_texts_than_a_request_may_have_are_several_entries_of_the_log(server: ModelServer) -> None:
    embed = ai.embeddings("e", base_url=server.url, batch=2)
    recorder = FakeRecorder()
    with running(recorder):
        first = embed(TEXTS)
    with running(recorder.successor()):
        assert embed(TEXTS) == first
    assert first.vectors == tuple(map(embedding, TEXTS))
    assert first.usage.total_tokens == 8
    assert len(server.asked) == len(recorder.log) == 2


def test_no_texts_are_no_call(server: ModelServer) -> None:
    assert ai.embeddings("e", base_url=server.url)([]).vectors == ()
    assert server.asked == []


def test_the_log_has_the_numbers_and_not_the_texts(server: ModelServer) -> None:
    recorder, text = FakeRecorder(), "a long text " * 50
    with running(recorder):
        ai.embeddings("e", base_url=server.url, dimensions=100)(text)
    ((_, outcome),) = recorder.log
    assert isinstance(outcome, bytes)
    assert 800 <= len(outcome) < 900
    assert b"long text" not in outcome


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (sent([[1.0]]), "it has 1 vectors for 2 texts"),
        (sent([[1.0], [2.0], [3.0]]), "it has 3 vectors for 2 texts"),
        (
            Answer(
                body=json.dumps({"data": [{"index": 1, "embedding": [1]}, {"index": 0, "embedding": [1]}]}).encode()
            ),
            "their indexes are 1, 0",
        ),
        (sent([[1.0], [1.0, 2.0]]), "its vectors have 1 and 2 dimensions"),
        (sent([[], []]), "vector 0 is empty"),
        (sent([[1, 2**53 + 1], [1, 2]]), "vector 0 has an integer that no float64 holds exactly"),
        (sent([[1, 10**400], [1, 2]]), "vector 0 has an integer that no float64 holds"),
        (sent([[1.0], b64encode(pack("<f", 1)).decode()]), "some of its vectors are JSON, and others base64"),
        (sent([b64encode(pack("<f", float("nan"))).decode()] * 2), "has a number that is not finite"),
        (sent([b64encode(b"abc").decode()] * 2), "vector 0 has 3 bytes, which are no float32"),
        (sent(["?"] * 2), "vector 0 is not base64"),
        (sent([["1"], ["2"]]), "it is not a list of embeddings: Expected `int | float`, got `str`"),
        (Answer(body=b"<html>"), "it is not a list of embeddings: JSON is malformed"),
    ],
)
def test_a_reply_without_one_vector_for_each_text_is_an_error(
    server: ModelServer, answer: Answer, problem: str
) -> None:
    server.script.append(answer)
    with pytest.raises(ai.ReplyInvalid) as raised:
        ai.embeddings("e", base_url=server.url)(TEXTS[:2])
    assert problem in str(raised.value)
    assert f"the reply of the model e at {server.url}/embeddings cannot be used" in str(raised.value)


def test_a_vector_of_another_length_than_asked_for_is_an_error(server: ModelServer) -> None:
    server.script.append(sent([[1.0, 2.0]]))
    with pytest.raises(ai.ReplyInvalid, match="its vectors have 2 and 3 dimensions"):
        ai.embeddings("e", base_url=server.url, dimensions=3)("?")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ai.embeddings(""), "the model has no name"),
        (lambda: ai.embeddings("e", base_url="h/v1"), "expected http:// or https://"),
        (lambda: ai.embeddings("e", batch=0), "batch= is 0, expected 1 to 4,096 texts"),
        (lambda: ai.embeddings("e", dimensions=0), "dimensions= is 0, expected a number from 1 on"),
        (lambda: ai.embeddings("e", encoding_format="int8"), 'expected "float" or "base64"'),  # type: ignore[arg-type]
        (lambda: ai.embeddings("e")(["a", 7]), "it asks for the vector of 7, which is not a text"),  # type: ignore[list-item]
        (lambda: ai.embeddings("e")("a", encoding_format="base64"), "is an argument of ai.embeddings(...)"),
    ],
)
def test_a_wrong_call_is_refused_before_a_request_leaves(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ai.ModelCallInvalid) as raised:
        call()
    assert message in str(raised.value)


def test_a_refused_text_is_an_error_alone_and_others_have_their_vectors(server: ModelServer) -> None:
    texts = [*TEXTS, "x" * 2_000, "the last"]
    found = ai.embeddings("e", base_url=server.url).by_text(texts)
    assert list(found) == texts
    assert {text: found[text] for text in texts if len(text) < 100} == {
        text: embedding(text) for text in [*TEXTS, "the last"]
    }
    assert "400 Bad Request: a text is too long" in str(found["x" * 2_000])
    assert len(server.asked) == 7


def test_a_key_that_is_refused_is_not_asked_for_in_halves(server: ModelServer) -> None:
    server.script.append(Answer(401, b"wrong key"))
    with pytest.raises(http.HttpStatusError, match="401 Unauthorized"):
        ai.embeddings("e", base_url=server.url).by_text(TEXTS)
    assert len(server.asked) == 1


def test_a_stream_asks_for_many_texts_at_once_and_a_task_that_died_gets_the_logged_vectors() -> None:
    embed, asked = ai.embeddings("e", base_url="http://models/v1"), []

    def answer(request: Any) -> dict[str, Any]:
        asked.append(json.loads(request.body))
        return vectors(asked[-1])

    def embedded(texts: Stream[Any]) -> Stream[Any]:
        return texts.enrich_batch(embed.by_text, on="text", into="vector", keys=4, within="10s")

    with Harness(steps=embedded, http=answer) as harness:
        found = harness.push([{"text": text} for text in [*TEXTS * 2, "last"]])
        harness.crash()
        harness.restore()
        assert harness.replay() == found
    assert found == [{"text": text, "vector": embedding(text)} for text in [*TEXTS * 2, "last"]]
    assert [each["input"] for each in asked] == [[*TEXTS, "last"]]
