"""Habits of other libraries in calls of models and agents: the errors say what to write instead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from clonos_services.model_answer import ModelCallInvalid

RUN_AGENT: Final = (
    "An agent is the function of a step: stream.key_by(...).stateful_map_async(agent, log_calls=True, effects=True)."
)
ASK_MODEL: Final = "Call the model: model(messages)."

CHAT_HINTS: Final = {
    **dict.fromkeys(("invoke", "run", "predict", "generate", "complete", "create", "ask", "call"), ASK_MODEL),
    **dict.fromkeys(("chat", "completions", "responses", "messages"), ASK_MODEL),
    **dict.fromkeys(
        ("ainvoke", "arun", "acompletion"), "In a coroutine write await asyncio.to_thread(model, messages)."
    ),
    **dict.fromkeys(("stream", "astream"), "Give on_text= of model(messages), which gets the text while it comes."),
    **dict.fromkeys(("batch", "abatch"), "Call the model for each record: stream.map_async(function, capacity=64)."),
    **dict.fromkeys(("bind_tools", "bind"), "Give tools= of model(messages), or use ai.agent(model, tools=[...])."),
    "with_structured_output": "Give response= of model(messages), a class; value of the reply is the object.",
}
"""What a model of another library has, and what to write instead."""

REPLY_HINTS: Final = {
    **dict.fromkeys(
        ("choices", "content", "output", "output_text", "response"),
        "Use text, or message for the whole message; body is all that the server has sent.",
    ),
    **dict.fromkeys(("parsed", "output_parsed", "data"), "Use value, the object of the class response=."),
    **dict.fromkeys(("usage_metadata", "tokens"), "Use usage."),
}

AGENT_HINTS: Final = {
    **dict.fromkeys(("run", "run_sync", "invoke", "ainvoke", "arun", "kickoff", "chat", "execute"), RUN_AGENT),
    **dict.fromkeys(("stream", "astream", "compile", "call"), RUN_AGENT),
}

AGENT_REPLY_HINTS: Final = {
    **dict.fromkeys(("content", "output", "final_output", "choices", "result", "message"), "Use text."),
    **dict.fromkeys(("messages", "history", "all_messages"), "They are in the state of the key, an ai.Conversation."),
    **dict.fromkeys(("usage", "tokens"), "Use prompt_tokens and completion_tokens."),
    **dict.fromkeys(("data", "parsed", "structured_response"), "Use value, the object of the class response=."),
}

AGENT_KEYWORDS: Final = {
    **dict.fromkeys(("system_prompt", "system", "prompt", "system_message", "state_modifier"), "use instructions="),
    **dict.fromkeys(("max_turns", "max_iterations", "max_steps", "recursion_limit"), "use turns_max="),
    **dict.fromkeys(("output_type", "response_model", "response_format", "result_type"), "use response=, a class"),
    **dict.fromkeys(("handoffs", "agents"), "use handovers="),
    **dict.fromkeys(("memory", "checkpointer", "session"), "the conversation is the state of the key"),
    **dict.fromkeys(("max_history", "memory_size"), "use history_max="),
    **dict.fromkeys(("interrupt_before", "interrupt_on"), "use @ai.tool(approve=True)"),
}
"""Keywords of agents of other libraries, and what to write instead."""

CHAT_KEYWORDS: Final = {
    **dict.fromkeys(
        ("system", "system_prompt", "instructions"), 'write it as a message, {"role": "system", "content": "..."}'
    ),
    **dict.fromkeys(("output_type", "response_model", "text_format"), "use response=, a class"),
}
"""Keywords of models of other libraries, which servers refuse or ignore, and what to write instead."""

ALIKE: Final = 0.75
"""Similarity of two keywords that are likely the same. Parameters of servers are less similar to those of agents."""

EXPECTED: Final = 'expected a text, or a list of dicts such as {"role": "user", "content": "Hello."}'


def keyword_problem(given: Collection[str], function: Callable[..., Any]) -> str:
    """Returns what is wrong with keywords that an agent would send to the server, "" if nothing is."""
    own = [each.name for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    for name in given:
        if advice := AGENT_KEYWORDS.get(name):
            return f"it has no {name}=: {advice}"
        if found := difflib.get_close_matches(name, own, n=1, cutoff=ALIKE):
            return f"it has no {name}=. Did you mean {found[0]}=?"
    return ""


def conversation_of(messages: str | Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns a conversation in the form of the protocol. Raises: ModelCallInvalid: it has none."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        raise ModelCallInvalid(f"its messages are {messages!r:.80}, {EXPECTED}")
    found = list(messages)
    if not found:
        raise ModelCallInvalid(f"it has no message, {EXPECTED}")
    for message in found:
        if not isinstance(message, Mapping):
            raise ModelCallInvalid(f"its message {message!r:.80} is not a dict, {EXPECTED}")
        if not isinstance(message.get("role"), str):
            raise ModelCallInvalid(f'its message {message!r:.80} has no "role", {EXPECTED}')
        if len(message) == 1:
            raise ModelCallInvalid(f'its message {message!r:.80} has no "content", {EXPECTED}')
    return found


def approve_problem(approve: object, fields: Mapping[str, tuple[Any, bool]]) -> str:
    """Returns why ``approve=`` of a tool cannot be called with its arguments, "" if it can. ``fields``: of each
    argument its type, and whether a model may leave it out."""
    if not callable(approve):
        return ""
    for given in (fields, [name for name, (_, has_default) in fields.items() if not has_default]):
        try:
            inspect.signature(approve).bind(**dict.fromkeys(given))
        except ValueError:  # a builtin without a signature
            return ""
        except TypeError as error:
            arguments = ", ".join(given) or "no argument"
            return f"approve= is called with the arguments of the tool ({arguments}), and cannot be: {error}"
    return ""


def notify_problem(notify: object) -> str:
    """Returns why ``notify=`` of a tool cannot be called with one ``Approval``, "" if it can."""
    if not callable(notify):
        return f"notify= is {notify!r:.80}, expected a function of one ai.Approval"
    try:
        inspect.signature(notify).bind(None)
    except ValueError:  # a builtin without a signature
        return ""
    except TypeError as error:
        return f"notify= is called with one ai.Approval, and cannot be: {error}"
    return ""
