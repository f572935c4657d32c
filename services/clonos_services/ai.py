"""Models as a causal service: a call of any OpenAI-compatible server is one entry of the log, and a replay makes none::

    model = ai.chat("gpt-x", base_url="https://api.example.com/v1", api_key=secrets.env("MODEL_KEY"))

    def answer(question: str) -> str:
        return model(question).text

- The whole reply is recorded, or the error. A call whose process dies before that is made again: it is no effect.
- Of what was asked the log has a digest.
- A status of 400 or above, and a reply that cannot be used, is an error of the call. So a step with ``retries=`` asks
  again.
- The key is looked up for each request that is sent, and is not recorded.
- What a call has used is counted where its entry arrives in the task (``model_limits``).

Outside a job a call is made each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from clonos.core.model.missing_names import attribute_missing
from clonos.core.model.wrong_calls import explains_calls
from clonos.io.http.http_errors import HttpError
from clonos.io.local.reply_cache import CacheUnusable, ReplyCache
from clonos_services.ai_agent import Agent, AgentInvalid, AgentReply, Conversation, agent
from clonos_services.ai_approval import Approval
from clonos_services.ai_habits import CHAT_HINTS, CHAT_KEYWORDS, conversation_of
from clonos_services.ai_reply import ModelReply, ToolCall, reply_of, response_format
from clonos_services.ai_shown import ToolError
from clonos_services.ai_tool import Tool, ToolInvalid, tool
from clonos_services.calls import Cost, recorded_call
from clonos_services.embedding_model import EmbeddingModel, EmbeddingReply, embeddings
from clonos_services.model_answer import ModelCallInvalid, ReplyInvalid, Usage, usage_in
from clonos_services.model_endpoint import OPENAI, Answered, ApiKey, ModelEndpoint, endpoint_of, reply_cache
from clonos_services.model_limits import BudgetExceeded, ModelLimits, Prices, limits_of
from clonos_services.model_stream import Show, Showing

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
    "BudgetExceeded",
    "reply_cache",
    "ReplyCache",
    "CacheUnusable",
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


class RecordedReply(NamedTuple):
    """Reply as the log has it, with the name of the model that has answered and what it has cost: in a job that
    replaces this one, another model may be at its place. ``currency``: "" without prices."""

    place: int
    content: bytes
    is_cached: bool
    model: str
    cost: float
    currency: str


UNSUPPORTED: Final = {
    "stream": "stream= is not supported: the reply is recorded as a whole. on_text= gets the text while it comes",
    "n": "n= is not supported: ask several times for several replies",
    "model": "the model is that of ai.chat(...)",
}


@dataclass(frozen=True, slots=True)
class Chat:
    """Model that answers conversations, made by ``chat``. It has no connection of its own and may be pickled."""

    model: str
    endpoint: ModelEndpoint = field(repr=False)
    fallbacks: tuple[Chat, ...] = ()

    def __call__(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        response: type | None = None,
        on_text: Show | None = None,
        **parameters: Any,
    ) -> ModelReply:
        """Asks the model, in one recorded call, and returns its reply.

        Args:
            messages: the conversation, in the form of the protocol; a text is one message of the user.
            tools: tools that the model may ask for, in the form of the protocol.
            response: a dataclass, a TypedDict or a ``msgspec.Struct``: the model answers with its fields, and
                ``ModelReply.value`` has the object.
            on_text: called with the text so far, whenever there is more of it, while the reply comes. It is only for
                showing: a replay does not call it, and its exceptions are warnings.
            parameters: more parameters of the protocol, such as ``temperature=`` and ``max_tokens=``, as plain values.

        Raises: HttpStatusError for a status of 400 or above; another HttpError when there is no reply; ReplyInvalid;
        BudgetExceeded; ModelCallInvalid; SecretMissing for a key that is not in this process. With fallbacks the error
        is that of the last model.
        """
        asked: dict[str, Any] = {"messages": conversation_of(messages), **parameters}
        if problem := next((UNSUPPORTED[name] for name in parameters if name in UNSUPPORTED), ""):
            raise ModelCallInvalid(problem)
        if wrong := next((name for name in parameters if name in CHAT_KEYWORDS), None):
            raise ModelCallInvalid(f"it has no {wrong}=: {CHAT_KEYWORDS[wrong]}")
        if tools is not None:
            asked["tools"] = list(tools)
        if response is not None:
            if "response_format" in parameters:
                raise ModelCallInvalid("it has both response= and response_format=")
            asked["response_format"] = response_format(response)

        def perform(key: str) -> tuple[Any, ...]:  # the requests inside derive their own keys
            return tuple(self._first_answer(asked, response, on_text))

        def identify() -> object:
            return self.endpoint.base_url + PATH, {"model": self.model, **asked}

        outcome = recorded_call(SERVICE, identify, perform, cost_of=_cost_of)
        recorded = RecordedReply(*cast(tuple[Any, ...], outcome))
        models = (self, *self.fallbacks)
        endpoint = models[min(recorded.place, len(self.fallbacks))].endpoint  # only for the text of an error
        reply = reply_of(recorded.content, endpoint, PATH, response, recorded.place, recorded.is_cached)
        return replace(reply, cost=recorded.cost, model=reply.body.get("model") or recorded.model)

    def _first_answer(self, asked: Mapping[str, Any], response: type | None, show: Show | None) -> RecordedReply:
        """Asks the model, and its fallbacks one after the other, until a reply can be used."""
        failed: list[str] = []
        showing = None if show is None else Showing(show)
        for place, model in enumerate((self, *self.fallbacks)):
            check = partial(_check, endpoint=model.endpoint, response=response, showing=showing)
            try:
                answer = model.endpoint.answer(PATH, {"model": model.model, **asked}, check, showing)
                return RecordedReply(place, *answer, model.model, *_cost_of_answer(answer, model.endpoint.limits))
            except (HttpError, ReplyInvalid, BudgetExceeded) as error:
                if failed:
                    error.add_note(f"The models before it have failed, too: {'; '.join(failed)}")
                if place == len(self.fallbacks):
                    raise
                failed.append(str(error))
        raise AssertionError("the last model answers or raises")

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, CHAT_HINTS)


def _cost_of_answer(answer: Answered, limits: ModelLimits) -> Cost:
    """Returns what an answer costs; without prices the currency is ""."""
    cost = 0.0 if answer.is_cached else limits.cost(usage_in(answer.content))
    return Cost(cost, limits.tariff.currency if limits.tariff else "")


def _cost_of(outcome: object) -> Cost | None:
    """Returns what a recorded call has cost, None without prices."""
    recorded = RecordedReply(*cast(tuple[Any, ...], outcome))
    return Cost(recorded.cost, recorded.currency) if recorded.currency else None


@explains_calls
def chat(
    model: str,
    *,
    base_url: str = OPENAI,
    api_key: ApiKey = None,
    timeout: float = 60.0,
    retries: int = 3,
    headers: Mapping[str, str] | None = None,
    fallback: Chat | Sequence[Chat] = (),
    per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    budget: str | None = None,
    prices: Prices | None = None,
    cache: ReplyCache | str | None = None,
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
        fallback: the model that is asked in the same call if this one gives no usable reply, or several in turn.
        per_minute, tokens_per_minute: the greatest numbers of requests, and of tokens, that a step sends in a minute:
            a call waits for its turn. Each task of the step has an equal part.
        budget: an amount of money, such as "20 USD", after which a step asks no more. Each task of the step has an
            equal part. Money that logged calls have cost is state. It needs ``prices``.
        prices: of a million tokens: ``{"input": 2.5, "cached_input": 1.25, "output": 10}``, and ``"currency"``, which
            is that of the budget, else "USD".
        cache: a ``reply_cache``, or the path of one: equal requests are asked for once.

    Raises: ModelCallInvalid: an argument cannot be used; SettingInvalid for a timeout or retries that cannot.
    """
    limits = limits_of(per_minute, tokens_per_minute, budget, prices, ("input", "output"))
    replies = reply_cache(cache) if isinstance(cache, str) else cache
    endpoint = endpoint_of(model, base_url, api_key, timeout, retries, headers, limits, replies)
    others: tuple[Any, ...] = (fallback,) if isinstance(fallback, Chat) else tuple(fallback)
    if wrong := next((each for each in others if not isinstance(each, Chat)), None):
        raise ModelCallInvalid(f"fallback= has {wrong!r:.80}, expected a model that ai.chat(...) has made")
    return Chat(model, endpoint, tuple(each for other in others for each in (other, *other.fallbacks)))


def _check(content: bytes, endpoint: ModelEndpoint, response: type | None, showing: Showing | None) -> None:
    """Checks that a reply can be used, and shows its text. Raises: ReplyInvalid."""
    reply = reply_of(content, endpoint, PATH, response)
    if showing is not None:
        showing.show(reply.text)
