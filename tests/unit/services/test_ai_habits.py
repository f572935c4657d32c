"""Habits of other libraries in calls of models, agents and tools: refused at once, with what to write instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from clonos import ai

MODEL = ai.chat("m", base_url="http://localhost:1/v1")
REPLY = ai.ModelReply("Hi.", {}, (), None, ai.Usage(), 0.0, "stop", "m", 0, {})


class Pydantic:
    """Looks like a class of pydantic."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {}


def agent(**options: Any) -> ai.Agent:
    return ai.agent(MODEL, **options)


def mail(approval: ai.Approval, more: str) -> None:
    raise AssertionError(approval, more)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agent(system_prompt="x"), "no system_prompt=: use instructions="),
        (lambda: agent(max_turns=3), "no max_turns=: use turns_max="),
        (lambda: agent(response_format={}), "no response_format=: use response="),
        (lambda: agent(handoffs=[]), "no handoffs=: use handovers="),
        (lambda: agent(memory=[]), "the conversation is the state of the key"),
        (lambda: agent(instruction="x"), "no instruction=. Did you mean instructions="),
        (lambda: agent(turn_max=3), "Did you mean turns_max="),
        (lambda: agent(response=Pydantic), "pydantic model Pydantic"),
        (lambda: ai.agent("gpt-4o"), "its model is 'gpt-4o'. Make it by ai.chat(...)"),  # type: ignore[arg-type]
    ],
)
def test_an_agent_refuses_keywords_of_other_libraries(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ai.AgentInvalid) as refused:
        call()
    assert message in str(refused.value)


def test_an_agent_sends_parameters_of_servers() -> None:
    names = "temperature top_p top_k min_p max_tokens max_completion_tokens stop seed user n logprobs metadata store"
    names += " tool_choice parallel_tool_calls reasoning_effort service_tier verbosity extra_body frequency_penalty"
    names += " presence_penalty logit_bias modalities prediction prompt_cache_key stream_options timeout"
    parameters = dict.fromkeys(names.split(), 1)
    assert agent(**parameters).parameters == parameters


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "it has no message, expected a text, or a list of dicts"),
        ([("user", "hi")], "its message ('user', 'hi') is not a dict"),
        ([{"content": "hi"}], 'has no "role"'),
        ([{"role": "user"}], 'has no "content"'),
        ({"role": "user", "content": "hi"}, "or a list of dicts"),
    ],
)
def test_a_conversation_in_another_form_is_refused(messages: Any, message: str) -> None:
    with pytest.raises(ai.ModelCallInvalid) as refused:
        MODEL(messages)
    assert message in str(refused.value)


def test_a_class_of_pydantic_is_refused_as_the_form_of_a_reply() -> None:
    with pytest.raises(
        ai.ModelCallInvalid, match=r"pydantic model Pydantic\. Use a dataclass, a TypedDict or a msgspec"
    ):
        MODEL("hi", response=Pydantic)


@pytest.mark.parametrize(
    ("owner", "attribute", "message"),
    [
        (MODEL, "invoke", "a Chat has no invoke. Call the model: model(messages)."),
        (MODEL, "chat", "Call the model: model(messages)."),
        (REPLY, "choices", "a ModelReply has no choices. Use text"),
        (REPLY, "finish_reasn", "Did you mean finish_reason?"),
        (agent(), "run", "an Agent has no run. An agent is the function of a step"),
        (ai.AgentReply("k", "Hi.", None, "a", "reply", 1, 1, 1), "final_output", "Use text."),
    ],
)
def test_an_attribute_of_another_library_is_explained(owner: Any, attribute: str, message: str) -> None:
    with pytest.raises(AttributeError) as missing:
        getattr(owner, attribute)
    assert message in str(missing.value)
    assert copy.copy(owner) is not None
    assert repr(pickle.loads(pickle.dumps(owner))) == repr(owner)  # noqa: S301


def test_a_tool_refuses_a_function_that_cannot_be_notified() -> None:
    def pay(cents: int) -> None: ...

    for notify in (mail, lambda: None, "mail"):
        with pytest.raises(ai.ToolInvalid, match=r"notify= is .*one ai\.Approval"):
            ai.tool(approve=True, notify=notify)(pay)  # type: ignore[arg-type]
    asked: list[ai.Approval] = []
    for fitting in (print, asked.append, lambda approval, at=1: None):
        ai.tool(approve=True, notify=fitting)(pay)


def test_a_tool_refuses_an_approval_by_other_arguments_than_its_own() -> None:
    def pay(cents: int, why: str = "") -> None: ...

    for wrong in (lambda amount: "pay", lambda cents: "pay", lambda cents, why: "pay"):
        with pytest.raises(ai.ToolInvalid, match="approve= is called with the arguments of the tool"):
            ai.tool(approve=wrong)(pay)
    for fitting in (lambda cents, why="": "pay", lambda **_: None, True):
        ai.tool(approve=fitting)(pay)


@pytest.mark.parametrize(("keyword", "advice"), [("system", "as a message"), ("response_model", "use response=")])
def test_a_model_refuses_keywords_of_other_libraries(keyword: str, advice: str) -> None:
    given: dict[str, Any] = {keyword: "x"}
    with pytest.raises(ai.ModelCallInvalid, match=f"no {keyword}=: .*{advice}"):
        MODEL("hi", **given)


def test_a_function_that_is_no_service_is_refused_as_a_tool() -> None:
    async def pay(cents: int) -> None: ...

    with pytest.raises(ai.ToolInvalid, match="pay cannot be a tool: it is asynchronous"):
        ai.tool(pay)
    with pytest.raises(ai.ToolInvalid, match="cannot be a tool: idempotent= and reconcile="):
        ai.tool(idempotent=True)(lambda: None)
