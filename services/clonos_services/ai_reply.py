"""ModelReply of a model: what a chat completion says, as plain data, and the value that it has for ``response=``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from clonos.core.model.missing_names import attribute_missing
from clonos.io.http.http_errors import shown_text
from clonos.io.system.json_decoders import decoder_of
from clonos_services.ai_habits import REPLY_HINTS
from clonos_services.model_answer import ModelCallInvalid, Unusable, Usage, UsageSent, decoded, explained, usage_of
from clonos_services.model_endpoint import ModelEndpoint

REFERENCE: Final = "#/$defs/"
CUT_SHORT: Final = "length"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call of a tool that the model asks for. ``arguments``: the decoded JSON object."""

    id: str
    name: str
    arguments: dict[str, Any]

    def result(self, content: str) -> dict[str, str]:
        """Returns the message that tells the model what the tool has returned."""
        return {"role": "tool", "tool_call_id": self.id, "content": content}


@dataclass(frozen=True, slots=True)
class ModelReply:
    """ModelReply of a model, of its first choice.

    Attributes:
        text: what the model says; "" if it only calls tools.
        message: the message to append to the conversation: role, content, and the calls of tools.
        tool_calls: calls of tools that the model asks for; your code makes them.
        value: the object of the class ``response=``; None without it, and if the model calls tools.
        usage: tokens; 0 for a reply of the cache.
        cost: what they cost by ``prices=``; 0 without prices.
        finish_reason: why the model has ended, such as "stop", "length" or "tool_calls"; "" if the server does not say.
        model: name of the model that has answered, as its server says.
        is_cached: whether it is a reply of ``cache=``.
        fallback: 0 if the model itself has answered, 1 for its first fallback, and so on.
        body: the whole reply of the server.
    """

    text: str
    message: dict[str, Any]
    tool_calls: tuple[ToolCall, ...]
    value: Any
    usage: Usage
    cost: float
    finish_reason: str
    model: str
    fallback: int
    body: dict[str, Any]
    is_cached: bool = False

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, REPLY_HINTS)


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _ToolCall(msgspec.Struct):
    id: str
    function: _Function


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    model: str | None = None
    usage: UsageSent | None = None


def reply_of(
    content: bytes,
    endpoint: ModelEndpoint,
    path: str,
    response: type | None,
    place: int = 0,
    is_cached: bool = False,
) -> ModelReply:
    """Returns the reply that the body of a chat completion has. ``place``: that of the model among those that may
    answer. Raises: ReplyInvalid."""
    with explained(content, endpoint.shown_url(path), endpoint.model):
        found = decoded(content, _Completion, "chat completion")
        reply = _reply(found, msgspec.json.decode(content), endpoint, response, place)
    return replace(reply, usage=Usage(), cost=0.0, is_cached=True) if is_cached else reply


def _reply(
    found: _Completion, body: dict[str, Any], endpoint: ModelEndpoint, response: type | None, place: int
) -> ModelReply:
    choice, usage = found.choices[0], usage_of(found.usage)
    answer, calls = choice.message, tuple(map(_tool_call, choice.message.tool_calls or ()))
    message: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if calls:
        message["tool_calls"] = body["choices"][0]["message"]["tool_calls"]
    if answer.refusal is not None:
        message["refusal"] = answer.refusal
    return ModelReply(
        text=answer.content or "",
        message=message,
        tool_calls=calls,
        value=None if response is None or calls else _value(choice, response),
        usage=usage,
        cost=endpoint.limits.cost(usage),
        finish_reason=choice.finish_reason or "",
        model=found.model or endpoint.model,
        fallback=place,
        body=body,
    )


def _tool_call(call: _ToolCall) -> ToolCall:
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unusable(f"the arguments of the tool {call.function.name} are no JSON object: {error}") from error
    return ToolCall(call.id, call.function.name, arguments)


def _value(choice: _Choice, response: type) -> Any:
    answer = choice.message
    if answer.refusal is not None:
        raise Unusable(f"the model refuses: {shown_text(answer.refusal)}")
    if choice.finish_reason == CUT_SHORT:
        raise Unusable("it was cut because it has too many tokens. Raise max_tokens=")
    try:
        return decoder_of(response).decode(answer.content or "")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unusable(f"its text does not fit {response.__qualname__}: {error}") from error


def response_format(response: type) -> dict[str, Any]:
    """Returns the parameter ``response_format`` by which the model answers with the fields of a class.

    Raises: ModelCallInvalid: the class has no fields, or a field that has no JSON schema.
    """
    if hasattr(response, "model_json_schema"):
        raise ModelCallInvalid(
            f"response= is the pydantic model {response.__qualname__}. Use a dataclass, a TypedDict or a msgspec.Struct"
        )
    try:
        (root,), parts = msgspec.json.schema_components((response,), ref_template=REFERENCE + "{name}")
    except (TypeError, RecursionError) as error:
        raise ModelCallInvalid(f"response= cannot be described as JSON: {error}") from error
    name = root.get("$ref", "").removeprefix(REFERENCE)
    if parts.get(name, {}).get("type") != "object":
        raise ModelCallInvalid(f"response= is {response!r:.200}, expected a dataclass, a TypedDict or a msgspec.Struct")
    schema: dict[str, Any] = {**parts[name], "$defs": parts}
    if json.dumps(parts).count(f'"{REFERENCE}{name}"') == 0:
        schema["$defs"] = {other: part for other, part in parts.items() if other != name}
    is_strict = _closed(schema) == 0
    return {"type": "json_schema", "json_schema": {"name": name, "strict": is_strict, "schema": schema}}


def _closed(schema: Any) -> int:
    """Changes the objects of a schema so that they have all their fields and no others, which servers ask for.

    Returns the number of objects that may have any names, so that a server cannot enforce the schema.
    """
    if isinstance(schema, list):
        return sum(_closed(part) for part in schema)
    if not isinstance(schema, dict):
        return 0
    fields: dict[str, Any] | None = schema.get("properties")
    rest = sum(_closed(part) for key, part in schema.items() if key not in ("properties", "required"))
    if fields is None:
        return rest + (schema.get("type") == "object")
    for described in fields.values():
        described.pop("default", None)
    schema |= {"required": list(fields), "additionalProperties": False}
    return rest + sum(_closed(part) for part in fields.values())
