"""Answers of models: tokens that they have used, and errors that say what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import msgspec

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.io.http.http_errors import shown_text
from clonos.io.system.json_decoders import decoder_of

SHOWN_CHARACTERS_MAX: Final = 200

Sent = TypeVar("Sent")
Count = Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)] | None
"""Number as a server sends it: some write 5.0 for 5, or null for what they do not count."""


class ModelCallInvalid(JobError):
    """A model cannot be asked like this."""

    problem: str

    def __str__(self) -> str:
        return f"a call of a model is wrong: {self.problem}."


class ReplyInvalid(EnvironmentFault):
    """A model's server has answered with something other than the protocol says, or the model with something other than
    what ``response=`` or a tool needs."""

    url: str
    model: str
    problem: str
    excerpt: str

    def __str__(self) -> str:
        return (
            f"the reply of the model {self.model} at {self.url} cannot be used: {self.problem}. It begins with:"
            f" {self.excerpt}"
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a call has used; 0 if the server does not say. ``cached_tokens``: the part of ``prompt_tokens`` that
    the server had in its cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0


class _Details(msgspec.Struct):
    cached_tokens: Count = None


class UsageSent(msgspec.Struct):
    """Tokens of a reply, as a server sends them."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: _Details | None = None


class _Used(msgspec.Struct):
    usage: UsageSent | None = None


class Unusable(Exception):
    """A part of a reply cannot be used: its text says why."""


def decoded(content: bytes, shape: type[Sent], name: str) -> Sent:
    """Returns the body of a reply, which should be a ``name``. Raises: Unusable."""
    try:
        return decoder_of(shape).decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"it is not a {name}: {error}") from error


@contextmanager
def explained(content: bytes, url: str, model: str) -> Iterator[None]:
    """Makes ``Unusable`` the error of a call. Raises: ReplyInvalid."""
    try:
        yield
    except Unusable as problem:
        excerpt = shown_text(content.decode("utf-8", "replace")[:SHOWN_CHARACTERS_MAX])
        raise ReplyInvalid(url, model, str(problem), excerpt) from None


def usage_of(sent: UsageSent | None) -> Usage:
    """Returns the tokens that a server has sent with a reply. Raises: Unusable: they are no whole numbers."""
    if sent is None:
        return Usage()
    prompt = _whole(sent.prompt_tokens)
    cached = _whole(sent.prompt_tokens_details.cached_tokens if sent.prompt_tokens_details else None)
    return Usage(prompt, _whole(sent.completion_tokens), _whole(sent.total_tokens), min(cached, prompt))


def _whole(count: float | None) -> int:
    if isinstance(count, float) and not count.is_integer():
        raise Unusable(f"it has used {count} tokens")
    return int(count or 0)


def usage_in(content: bytes) -> Usage:
    """Returns the tokens of a reply that may be unusable otherwise; zeros if it does not say."""
    try:
        return usage_of(decoder_of(_Used).decode(content).usage)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Unusable):
        return Usage()
