"""Embeddings of any OpenAI-compatible server: a request for many texts is one entry of the log.

The entry has the numbers as the server sent them, packed: those of its JSON as float64, those of base64 as float32.
Both become Python floats of the same value.
"""

from __future__ import annotations

import binascii
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

import msgspec

from clonos.core.model.errors import ClonosError
from clonos.core.model.wrong_calls import explains_calls
from clonos.io.http.http_errors import HttpStatusError
from clonos_services.calls import recorded_call
from clonos_services.model_answer import (
    ModelCallInvalid,
    Unusable,
    Usage,
    UsageSent,
    decoded,
    explained,
    usage_of,
)
from clonos_services.model_endpoint import OPENAI, ApiKey, ModelEndpoint, endpoint_of
from clonos_services.model_limits import Prices, limits_of

PATH: Final = "/embeddings"
SERVICE: Final = "ai.embeddings"
BATCH_MAX: Final = 4_096
TEXT_REFUSED: Final = frozenset({400, 413, 422})
"""Statuses by which a server refuses a request for what is in it, such as a text that is too long."""

Precision = Literal["float32", "float64"]
NUMBER: Final[Mapping[Precision, str]] = {"float32": "f", "float64": "d"}
UNSUPPORTED: Final = {
    "model": "the model is that of ai.embeddings(...)",
    "input": "the texts are the first argument",
    "encoding_format": "encoding_format= is an argument of ai.embeddings(...)",
    "dimensions": "dimensions= is an argument of ai.embeddings(...)",
}


@dataclass(frozen=True, slots=True)
class EmbeddingReply:
    """Vectors of texts.

    Attributes:
        vectors: one for each text, in the order of the texts.
        precision: of the numbers as the server sent them: "float32" for base64, "float64" for JSON.
        usage: tokens of all requests. ``cost``: what they cost by ``prices=``; 0 without prices.
        model: name of the model that has answered.
    """

    vectors: tuple[list[float], ...]
    precision: Precision
    usage: Usage
    cost: float
    model: str

    @property
    def vector(self) -> list[float]:
        """The first vector, which is the only one of a single text. Raises: IndexError: there were no texts."""
        return self.vectors[0]


class PackedVectors(NamedTuple):
    """Reply for one request, as the log has it. ``numbers``: of all vectors, little-endian, one vector after the other.
    ``tokens``: of the prompt, and in total."""

    precision: Precision
    dimensions: int
    numbers: bytes
    tokens: tuple[int, int]
    model: str


class _Vector(msgspec.Struct):
    index: int
    embedding: list[int | float] | str


class _Vectors(msgspec.Struct):
    data: Annotated[list[_Vector], msgspec.Meta(min_length=1)]
    model: str | None = None
    usage: UsageSent | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """Model that gives vectors for texts, made by ``embeddings``. It has no connection of its own and may be
    pickled."""

    model: str
    endpoint: ModelEndpoint = field(repr=False)
    dimensions: int | None
    batch: int
    encoding_format: Literal["float", "base64"]

    def __call__(self, texts: str | Sequence[str], **parameters: Any) -> EmbeddingReply:
        """Asks for the vectors of texts, in one recorded call for each ``batch`` of them.

        Args:
            texts: the texts, or a single text.
            parameters: more parameters of the protocol, such as ``user=``, as plain values.

        Raises: HttpStatusError for a status of 400 or above; another HttpError when there is no reply; ReplyInvalid:
        the reply does not have exactly one vector for each text, in their order, of the same length;
        BudgetExceeded; ModelCallInvalid; SecretMissing for a key that is not in this process.
        """
        if problem := next((UNSUPPORTED[name] for name in parameters if name in UNSUPPORTED), ""):
            raise ModelCallInvalid(problem)
        asked = [texts] if isinstance(texts, str) else list(texts)
        for text in asked:
            _check_text(text)
        replies = [
            self._packed(asked[first : first + self.batch], parameters) for first in range(0, len(asked), self.batch)
        ]
        return self._united(replies)

    def by_text(self, texts: Sequence[str]) -> dict[str, Any]:
        """Returns the vector of each text by the text, for ``enrich_batch``::

            chunks.enrich_batch(embed.by_text, on="text", into="vector", keys=256, within="50ms", cache="1d")

        A text that the server refuses, for example because it is too long, has its error in place of the vector, and
        the other texts have their vectors: a refused request is repeated in halves.

        Raises: those of a call, but for a status of 400, 413 or 422.
        """
        answers: dict[str, Any] = {}
        usable = []
        for text in dict.fromkeys(texts):
            try:
                _check_text(text)
                usable.append(text)
            except ModelCallInvalid as error:
                answers[text] = error
        for first in range(0, len(usable), self.batch):
            answers |= self._in_halves(usable[first : first + self.batch])
        return answers

    def _in_halves(self, texts: list[str]) -> dict[str, list[float] | ClonosError]:
        try:
            return dict(zip(texts, self(texts).vectors, strict=True))
        except HttpStatusError as error:
            if error.status_code not in TEXT_REFUSED:
                raise
            if len(texts) == 1:
                return {texts[0]: error}
        middle = len(texts) // 2
        return self._in_halves(texts[:middle]) | self._in_halves(texts[middle:])

    def _united(self, replies: list[PackedVectors]) -> EmbeddingReply:
        """Returns the reply for all requests."""
        vectors: list[list[float]] = []
        for reply in replies:
            layout = _layout(reply.precision, reply.dimensions)
            vectors += map(list, layout.iter_unpack(reply.numbers))
        kinds = {reply.precision for reply in replies}
        prompt, total = (sum(reply.tokens[place] for reply in replies) for place in (0, 1))
        usage = Usage(prompt, 0, total)
        return EmbeddingReply(
            tuple(vectors),
            "float32" if kinds == {"float32"} else "float64",
            usage,
            self.endpoint.limits.cost(usage),
            replies[0].model if replies else self.model,
        )

    def _packed(self, texts: list[str], parameters: Mapping[str, Any]) -> PackedVectors:
        """Makes one recorded call."""
        asked: dict[str, Any] = {"model": self.model, "input": texts, **parameters}
        if self.dimensions is not None:
            asked["dimensions"] = self.dimensions
        if self.encoding_format != "float":  # which is that of all servers, and not all know the parameter
            asked["encoding_format"] = self.encoding_format

        def perform(key: str) -> tuple[Any, ...]:
            content = self.endpoint.answer(PATH, asked, lambda content: None).content
            with explained(content, self.endpoint.shown_url(PATH), self.model):
                return tuple(_packed_of(content, len(texts), self.dimensions, self.model))

        url = self.endpoint.base_url + PATH
        return PackedVectors(*cast(tuple[Any, ...], recorded_call(SERVICE, lambda: (url, asked), perform)))


@explains_calls
def embeddings(
    model: str,
    *,
    base_url: str = OPENAI,
    api_key: ApiKey = None,
    dimensions: int | None = None,
    batch: int = 256,
    encoding_format: Literal["float", "base64"] = "float",
    timeout: float = 60.0,
    retries: int = 3,
    headers: Mapping[str, str] | None = None,
    per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    budget: str | None = None,
    prices: Prices | None = None,
) -> EmbeddingModel:
    """Returns a model that gives vectors for texts, which is called in the function of a step::

        embed = ai.embeddings("text-embedding-x", api_key=secrets.env("MODEL_KEY"))
        embed("one text").vector
        embed(["one text", "another"]).vectors

    Args:
        model: name of the model, as the server knows it.
        base_url, api_key, timeout, retries, headers, per_minute, tokens_per_minute, budget: as for ``chat``.
        prices: of a million tokens: ``{"input": 0.02}``, and ``"currency"``.
        dimensions: length of the vectors, for models that can shorten them; None: that of the model. A vector of
            another length is an error.
        batch: the most texts of a request, 1 to 4,096. The limit of the server, and that of an entry of the log, which
            is 16 MiB, must hold: 256 vectors of 3,072 numbers have up to 6 MiB.
        encoding_format: "base64" asks for float32, a third of the bytes. What a server sends counts: a server that does
            not know base64 sends JSON.

    Raises: ModelCallInvalid: an argument cannot be used; SettingInvalid for a timeout or retries that cannot.
    """
    limits = limits_of(per_minute, tokens_per_minute, budget, prices, ("input",))
    endpoint = endpoint_of(model, base_url, api_key, timeout, retries, headers, limits)
    if type(batch) is not int or not 1 <= batch <= BATCH_MAX:
        raise ModelCallInvalid(f"batch= is {batch!r:.80}, expected 1 to {BATCH_MAX:,} texts")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise ModelCallInvalid(f"dimensions= is {dimensions!r:.80}, expected a number from 1 on")
    if encoding_format not in ("float", "base64"):
        raise ModelCallInvalid(f'encoding_format= is {encoding_format!r:.80}, expected "float" or "base64"')
    return EmbeddingModel(model, endpoint, dimensions, batch, encoding_format)


def _check_text(text: object) -> None:
    if type(text) is not str:
        raise ModelCallInvalid(f"it asks for the vector of {text!r:.80}, which is not a text")


def _packed_of(content: bytes, count: int, dimensions: int | None, model: str) -> PackedVectors:
    """Returns the vectors of a reply that has one for each of ``count`` texts. Raises: Unusable."""
    found = decoded(content, _Vectors, "list of embeddings")
    if [each.index for each in found.data] != list(range(count)):
        places = ", ".join(str(each.index) for each in found.data[:10])
        raise Unusable(f"it has {len(found.data)} vectors for {count} texts, and their indexes are {places}")
    precision: Precision = "float64" if isinstance(found.data[0].embedding, list) else "float32"
    parts = [_numbers(each, precision) for each in found.data]
    item = Struct(NUMBER[precision]).size
    lengths = sorted({len(part) // item for part in parts} | ({dimensions} if dimensions else set()))
    if len(lengths) > 1:
        raise Unusable(f"its vectors have {' and '.join(map(str, lengths))} dimensions")
    usage = usage_of(found.usage)
    tokens = usage.prompt_tokens, usage.total_tokens
    return PackedVectors(precision, lengths[0], b"".join(parts), tokens, found.model or model)


def _numbers(each: _Vector, precision: Precision) -> bytes:
    """Returns the numbers of a vector, packed. Raises: Unusable: it has none, or not all are finite."""
    sent = each.embedding
    if isinstance(sent, str) != (precision == "float32"):
        raise Unusable("some of its vectors are JSON, and others base64")
    if isinstance(sent, str):
        try:
            packed = binascii.a2b_base64(sent, strict_mode=True)
        except ValueError as error:
            raise Unusable(f"vector {each.index} is not base64: {error}") from error
        if len(packed) % 4:
            raise Unusable(f"vector {each.index} has {len(packed)} bytes, which are no float32")
    else:
        try:
            packed = _layout(precision, len(sent)).pack(*sent)
        except struct.error as error:
            raise Unusable(f"vector {each.index} has an integer that no float64 holds") from error
    numbers = _layout(precision, len(packed) // Struct(NUMBER[precision]).size).unpack(packed)
    if not numbers or not all(map(math.isfinite, numbers)):
        raise Unusable(f"vector {each.index} is empty, or has a number that is not finite")
    if isinstance(sent, list) and list(numbers) != sent:  # of int and float, Python compares the exact values
        raise Unusable(f"vector {each.index} has an integer that no float64 holds exactly")
    return packed


def _layout(precision: Precision, count: int) -> Struct:
    return Struct(f"<{count}{NUMBER[precision]}")
