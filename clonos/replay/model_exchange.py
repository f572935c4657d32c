"""Requests and replies of models as a conversation, in the protocols of OpenAI and Anthropic: roles and texts, calls of
tools, tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from clonos_services.http_session import MODEL_PATHS


class ChatMessage(NamedTuple):
    """Message of a conversation. ``text``: what it says, with the calls of tools that it asks for."""

    role: str
    text: str


class ModelRequest(NamedTuple):
    """Request of a model. ``settings``: the other parameters, such as ``temperature``, and the names of tools."""

    model: str
    messages: tuple[ChatMessage, ...]
    settings: dict[str, Any]


class ModelAnswer(NamedTuple):
    """Reply of a model. Tokens are 0 if the server does not say, and the cost without prices."""

    text: str
    tool_calls: tuple[str, ...]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    currency: str = ""

    @property
    def message(self) -> ChatMessage:
        """The message that a conversation has of it."""
        return ChatMessage(
            "assistant", "\n".join(filter(None, (self.text, *(f"-> {each}" for each in self.tool_calls))))
        )


def request_of(identity: object) -> ModelRequest | None:
    """Returns the request of a model that identifies a call, None if the call is another one."""
    match identity:
        case (str(url), {"model": str(), **rest} as asked) if rest and url.startswith("http"):
            body: Any = asked
        case (str(), str(url), bytes(content)) if urlsplit(url).path.endswith(MODEL_PATHS):
            body = _json(content)
        case _:
            return None
    if not isinstance(body, dict):
        return None
    prompt = next((body[name] for name in ("messages", "input", "contents", "prompt") if name in body), None)
    if prompt is None:
        return None
    return ModelRequest(str(body.get("model", "")), tuple(_messages(body, prompt)), dict(_settings(body)))


def answer_of(outcome: object) -> ModelAnswer | None:
    """Returns the reply that the outcome of a call has, None if it has none."""
    body = next((found for each in _contents(outcome) if isinstance(found := _json(each), dict)), None)
    if body is None:
        return None
    texts, calls = list[str](), list[str]()
    for message in _replies(body):
        texts += filter(None, [_text(message.get("content", message.get("text")))])
        calls += _tool_calls(message)
    used = body.get("usage")
    used = used if isinstance(used, dict) else {}
    tokens = (used.get(f"{kind}_tokens") for kind in ("prompt", "input", "completion", "output"))
    counts = [each if isinstance(each, int) else 0 for each in tokens]
    return ModelAnswer("\n".join(texts), tuple(calls), counts[0] or counts[1], counts[2] or counts[3])


def messages_of(value: object) -> tuple[ChatMessage, ...]:
    """Returns a value as messages if it is a list of them, or has one, as the state of an agent does; else ()."""
    value = getattr(value, "messages", value)
    if not isinstance(value, list) or not value:
        return ()
    if not all(isinstance(each, dict) and isinstance(each.get("role"), str) for each in value):
        return ()
    return tuple(map(_message_of, value))


def _messages(body: dict[str, Any], prompt: Any) -> Iterator[ChatMessage]:
    for name in ("system", "instructions"):
        if body.get(name):
            yield ChatMessage("system", _text(body[name]))
    for each in prompt if isinstance(prompt, list) else [prompt]:
        yield _message_of(each)


def _message_of(message: Any) -> ChatMessage:
    if not isinstance(message, dict):
        return ChatMessage("user", str(message))
    role = str(message.get("role") or message.get("type") or "user")
    texts = [_text(message.get("content", message.get("output"))), *(f"-> {each}" for each in _tool_calls(message))]
    return ChatMessage(role, "\n".join(filter(None, texts)))


def _settings(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if name == "tools" and isinstance(value, list):
            yield name, [_tool_name(each) for each in value]
        elif name not in ("model", "messages", "input", "contents", "prompt", "system", "instructions"):
            yield name, value


def _tool_name(tool: Any) -> str:
    found = tool.get("function", tool) if isinstance(tool, dict) else tool
    return str(found.get("name", "")) if isinstance(found, dict) else str(found)


def _replies(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match body:
        case {"choices": list(choices)}:
            found: list[Any] = [each.get("message", each) for each in choices[:1] if isinstance(each, dict)]
        case {"output": list(output)}:
            found = output
        case {"content": list()}:
            found = [body]
        case _:
            found = []
    yield from (each for each in found if isinstance(each, dict))


def _tool_calls(message: dict[str, Any]) -> Iterator[str]:
    """Yields the calls of tools that a message asks for, such as ``refund(order='7')``."""
    content = message.get("content")
    parts = [message, *(content if isinstance(content, list) else ()), *(message.get("tool_calls") or ())]
    for part in parts:
        match part:
            case {"function": {"name": str(name), **rest}}:
                yield f"{name}({_arguments(rest.get('arguments'))})"
            case {"type": "tool_use" | "function_call", "name": str(name)}:
                yield f"{name}({_arguments(part.get('input', part.get('arguments')))})"


def _arguments(given: Any) -> str:
    found = _json(given) if isinstance(given, str) else given
    if isinstance(found, dict):
        return ", ".join(f"{name}={value!r}" for name, value in found.items())
    return "" if given is None else str(given)


def _text(content: Any) -> str:
    """Returns the text of the content of a message, which may be in parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, ensure_ascii=False, default=repr)
    return "\n".join(filter(None, map(_part_text, content)))


def _part_text(part: Any) -> str:
    match part:
        case str():
            return part
        case {"text": str(text)} | {"content": str(text)}:
            return text
        case {"type": "tool_use" | "function_call"}:
            return ""
        case {"type": str(kind)}:
            return f"[{kind}]"
    return str(part)


def _contents(outcome: object) -> Iterator[bytes]:
    """Yields the bytes in the outcome of a call: the body of a reply is among them."""
    if isinstance(outcome, bytes):
        yield outcome
    elif isinstance(outcome, tuple | list):
        for each in outcome:
            yield from _contents(each)


def _json(content: bytes | str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
