"""Requests and replies of models in the protocols of OpenAI and Anthropic, as the course of a key shows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clonos.replay.model_exchange import answer_of, messages_of, request_of

CHAT: dict[str, Any] = {
    "model": "gpt-x",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "look", "arguments": '{"at": "it"}'}}],
        },
        {"role": "tool", "content": "a cup"},
    ],
    "tools": [{"type": "function", "function": {"name": "look"}}],
}
MESSAGES: dict[str, Any] = {
    "model": "claude-x",
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "look", "input": {"at": "it"}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "a cup"}]},
    ],
    "tools": [{"name": "look"}],
}
RESPONSES: dict[str, Any] = {
    "model": "gpt-y",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}]},
        {"type": "function_call", "name": "look", "arguments": '{"at": "it"}'},
        {"type": "function_call_output", "output": "a cup"},
    ],
}
URL = "https://models.example.com/v1"


@pytest.mark.parametrize(
    ("path", "body", "messages"),
    [
        (
            "/chat/completions",
            CHAT,
            [
                ("system", "Be brief."),
                ("user", "What is it?\n[image_url]"),
                ("assistant", "-> look(at='it')"),
                ("tool", "a cup"),
            ],
        ),
        (
            "/messages",
            MESSAGES,
            [("system", "Be brief."), ("user", "What is it?"), ("assistant", "-> look(at='it')"), ("user", "a cup")],
        ),
        (
            "/responses",
            RESPONSES,
            [
                ("system", "Be brief."),
                ("user", "What is it?"),
                ("function_call", "-> look(at='it')"),
                ("function_call_output", "a cup"),
            ],
        ),
    ],
)
def test_a_request_is_a_conversation_in_each_protocol(
    path: str, body: dict[str, Any], messages: list[tuple[str, str]]
) -> None:
    found = request_of(("POST", URL + path, json.dumps(body).encode()))
    assert found is not None
    assert list(found.messages) == messages
    assert found.model == body["model"]
    assert found.settings == ({"tools": ["look"]} if "tools" in body else {})


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (
            {
                "choices": [{"message": {"content": "A cup.", **CHAT["messages"][2] | {"content": "A cup."}}}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 5},
            },
            (7, 5),
        ),
        (
            {
                "content": [{"type": "text", "text": "A cup."}, *MESSAGES["messages"][1]["content"]],
                "usage": {"input_tokens": 7, "output_tokens": 5},
            },
            (7, 5),
        ),
        (
            {
                "output": [
                    {"type": "message", "content": [{"type": "output_text", "text": "A cup."}]},
                    RESPONSES["input"][1],
                ],
            },
            (0, 0),
        ),
    ],
)
def test_a_reply_has_its_text_its_calls_of_tools_and_its_tokens(body: dict[str, Any], tokens: tuple[int, int]) -> None:
    content = json.dumps(body).encode()
    for outcome in (content, (0, content, False), ((200, "OK", "", (), content), None)):
        found = answer_of(outcome)
        assert found is not None
        assert (found.text, found.tool_calls) == ("A cup.", ("look(at='it')",))
        assert (found.prompt_tokens, found.completion_tokens) == tokens


@pytest.mark.parametrize(
    "identity",
    [
        ("GET", "https://shop.example.com/carts", b""),
        ("POST", "https://shop.example.com/messages", b"not json"),
        ("POST", "https://shop.example.com/messages", b"[1]"),
        ("order", 7),
        ("note", {"model": "cup", "input": "blue"}),
        ("https://shop.example.com", {"input": "blue"}),
        None,
    ],
)
def test_the_request_of_another_service_is_not_shown_as_that_of_a_model(identity: object) -> None:
    assert request_of(identity) is None


@pytest.mark.parametrize("state", [[], [1], [{"role": 5}], {"role": "user"}, 7])
def test_state_without_roles_is_not_shown_as_a_conversation(state: object) -> None:
    assert messages_of(state) == ()
