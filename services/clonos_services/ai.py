"""Models as a causal service: a call of any OpenAI-compatible server is one entry of the log, and a replay makes none::

    model = ai.chat("gpt-x", base_url="https://api.example.com/v1", api_key=secrets.env("MODEL_KEY"))

    def answer(question: str) -> str:
        return model(question).text

- The whole reply is recorded, or the error. A call whose process dies before that is made again: it is no effect.
- Of what was asked the log has a digest.
- A status of 400 or above, and a reply that cannot be used, is an error of the call. So a step with ``retries=`` asks
  again.
- The key is looked up for each request that is sent, and is not recorded.

Outside a job a call is made each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from clonos.core.model.wrong_calls import explains_calls
from clonos_services.ai_agent import Agent, AgentInvalid, AgentReply, Conversation, agent
from clonos_services.ai_approval import Approval
from clonos_services.ai_reply import ModelReply, ReplyInvalid, ToolCall, Usage, reply_of, response_format
from clonos_services.ai_tool import Tool, ToolError, ToolInvalid, tool
from clonos_services.calls import recorded_call
from clonos_services.embedding_model import EmbeddingModel, EmbeddingReply, embeddings
from clonos_services.model_endpoint import OPENAI, ApiKey, ModelCallInvalid, ModelEndpoint, endpoint_of

__all__ = [
    "chat",
    "Chat",
    "ModelReply",
    "Usage",
    "ToolCall",
    "embeddings",
    "EmbeddingModel",
    "EmbeddingReply",
    "ReplyInvalid",
    "ModelCallInvalid",
    "agent",
    "Agent",
    "AgentReply",
    "Conversation",
    "AgentInvalid",
    "tool",
    "Tool",
    "ToolError",
    "ToolInvalid",
    "Approval",
]

PATH: Final = "/chat/completions"
SERVICE: Final = "ai.chat"

UNSUPPORTED: Final = {
    "stream": "stream= is not supported: the reply is recorded as a whole",
    "n": "n= is not supported: ask several times for several replies",
    "model": "the model is that of ai.chat(...)",
}


@dataclass(frozen=True, slots=True)
class Chat:
    """Model that answers conversations, made by ``chat``. It has no connection of its own and may be pickled."""

    model: str
    endpoint: ModelEndpoint = field(repr=False)

    def __call__(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        response: type | None = None,
        **parameters: Any,
    ) -> ModelReply:
        """Asks the model, in one recorded call, and returns its reply.

        Args:
            messages: the conversation, in the form of the protocol; a text is one message of the user.
            tools: tools that the model may ask for, in the form of the protocol.
            response: a dataclass, a TypedDict or a ``msgspec.Struct``: the model answers with its fields, and
                ``ModelReply.value`` has the object.
            parameters: more parameters of the protocol, such as ``temperature=`` and ``max_tokens=``, as plain values.

        Raises: HttpStatusError for a status of 400 or above; another HttpError when there is no reply; ReplyInvalid;
        ModelCallInvalid; SecretMissing for a key that is not in this process.
        """
        asked: dict[str, Any] = {"model": self.model, "messages": _conversation(messages), **parameters}
        if problem := next((UNSUPPORTED[name] for name in parameters if name in UNSUPPORTED), ""):
            raise ModelCallInvalid(problem)
        if tools is not None:
            asked["tools"] = list(tools)
        if response is not None:
            if "response_format" in parameters:
                raise ModelCallInvalid("it has both response= and response_format=")
            asked["response_format"] = response_format(response)
        url = self.endpoint.base_url + PATH

        def perform(key: str) -> bytes:  # the request inside derives its own key
            content = self.endpoint.answer(PATH, asked)
            self._reply(content, response)  # raises inside the recorded call, so that a step with retries= asks again
            return content

        content = cast(bytes, recorded_call(SERVICE, lambda: (url, asked), perform))
        return self._reply(content, response)

    def _reply(self, content: bytes, response: type | None) -> ModelReply:
        return reply_of(content, self.endpoint.shown_url(PATH), self.model, response)


@explains_calls
def chat(
    model: str,
    *,
    base_url: str = OPENAI,
    api_key: ApiKey = None,
    timeout: float = 60.0,
    retries: int = 3,
    headers: Mapping[str, str] | None = None,
) -> Chat:
    """Returns a model, which is called with a conversation in the function of a step.

    Args:
        model: name of the model, as the server knows it.
        base_url: address of an OpenAI-compatible server, with ``/v1`` if the server has it.
        api_key: sent as ``Authorization: Bearer``, preferably a secret, such as ``secrets.env("MODEL_KEY")``: a text is
            sent with the job, as all values of its code are.
        timeout: seconds for a call, with its retries.
        retries: attempts after the first, when the connection breaks or the server answers 429, 502, 503 or 504; each
            waits as long as the server's ``Retry-After`` asks.
        headers: further headers of each request.

    Raises: ModelCallInvalid: the address is no HTTP address, or the model has no name; SettingInvalid for a timeout or
    retries that cannot be used.
    """
    return Chat(model, endpoint_of(model, base_url, api_key, timeout, retries, headers))


def _conversation(messages: str | Sequence[Mapping[str, Any]]) -> list[Any]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
