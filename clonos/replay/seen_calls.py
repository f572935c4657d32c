"""Calls that user code makes in a replay, as plain values: what it asks, and what the log has answered.

A call of a model is known by its request, so it looks the same whether ``ai.chat``, ``http`` or a library makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from clonos.core.model.errors import ReplayDiverged
from clonos.replay.model_exchange import ChatMessage, ModelAnswer, ModelRequest, answer_of, request_of
from clonos_services.awaiting import EVENT
from clonos_services.calls import CallAsked, CostOf, observed_by


class CallKind(StrEnum):
    """Kind of what is called."""

    MODEL = "model"
    EVENT = "event"
    OTHER = "call"


@dataclass
class SeenCall:
    """Call that user code makes.

    ``request``: the values that identify it, as text. ``prompt``: of a model. ``result``: what it returned, as text,
    None without a value; ``answer``: of a model, with what ``cost_of`` says. ``error``: what it raised, "" if nothing.
    ``is_answered``: the log has its outcome.
    """

    service: str
    kind: CallKind
    request: str
    prompt: ModelRequest | None = None
    is_effect: bool = False
    result: str | None = None
    answer: ModelAnswer | None = None
    error: str = ""
    is_answered: bool = False
    cost_of: CostOf | None = field(default=None, compare=False)

    @property
    def asked(self) -> tuple[Any, ...]:
        """Service and request, to compare calls."""
        return self.service, self.request, self.prompt

    @property
    def conversation(self) -> tuple[ChatMessage, ...]:
        """The conversation of a model after its reply."""
        messages = () if self.prompt is None else self.prompt.messages
        return messages if self.answer is None else (*messages, self.answer.message)

    def end(self, outcome: object) -> None:
        """Takes the outcome: the value, or the exception."""
        self.is_answered = not isinstance(outcome, BaseException) or isinstance(outcome, Exception)
        if isinstance(outcome, ReplayDiverged):
            self.is_answered = False
        if isinstance(outcome, Exception):
            self.error = f"{type(outcome).__name__}: {outcome}"
        elif self.is_answered:
            self.answer = answer_of(outcome) if self.prompt is not None else None
            if self.answer is not None and self.cost_of is not None and (cost := self.cost_of(outcome)) is not None:
                self.answer = self.answer._replace(cost=cost.amount, currency=cost.currency)
            self.result = text_of(outcome)

    def to_json(self) -> dict[str, Any]:
        """Returns the call for a program."""
        found: dict[str, Any] = {"service": self.service, "kind": self.kind.value, "effect": self.is_effect}
        if self.prompt is not None:
            found["model"], found["settings"] = (
                self.prompt.model,
                {k: text_of(v) for k, v in self.prompt.settings.items()},
            )
            found["messages"] = [each._asdict() for each in self.prompt.messages]
        else:
            found["request"] = self.request
        if self.answer is not None:
            found |= self.answer._asdict()
        else:
            found["result"] = self.result
        return found | {"error": self.error or None, "answered": self.is_answered}


@contextmanager
def seeing(take: Callable[[SeenCall], None]) -> Iterator[None]:
    """Gives ``take`` each call of user code in the ``with`` block, before it has its outcome."""

    def observe(asked: CallAsked) -> Callable[[object], None]:
        call = _seen(asked)
        take(call)
        return call.end

    with observed_by(observe):
        yield


def _seen(asked: CallAsked) -> SeenCall:
    prompt = request_of(asked.identity)
    kind = CallKind.MODEL if prompt is not None else CallKind.EVENT if asked.service == EVENT else CallKind.OTHER
    request = "" if prompt is not None else _request_text(asked.identity)
    return SeenCall(asked.service, kind, request, prompt, asked.is_effect, cost_of=asked.cost_of)


def _request_text(identity: object) -> str:
    """Returns arguments as they are written in a call."""
    match identity:
        case (tuple(args), tuple(named)) if all(type(each) is tuple and len(each) == 2 for each in named):
            return ", ".join([*map(text_of, args), *(f"{name}={text_of(value)}" for name, value in named)])
        case tuple():
            return ", ".join(map(text_of, identity))
    return text_of(identity)


def text_of(value: object) -> str:
    """Returns a value as text, whole."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  a user's __repr__ may raise anything
        return f"<its repr raised {type(error).__name__}>"
