"""Contract of a codec: two functions between what lies outside, such as bytes, and the value in the job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Generic, TypeVar

from clonos.connectors.value_depth import TOO_DEEP, is_too_deep
from clonos.core.model.errors import JobError
from clonos.operators.row_errors import RecordError

Outer = TypeVar("Outer")
Inner = TypeVar("Inner")
Further = TypeVar("Further")

SHOWN_MAX = 200


class UndecodableBytes(RecordError):
    """A codec cannot read what came from outside. The record goes to the error output if there is one."""

    codec: str
    reason: str

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        return f"{self.codec} cannot decode this record: {self.reason}."


class UnencodableValue(RecordError):
    """A codec cannot express a value."""

    codec: str
    value: str
    reason: str

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        return f"{self.codec} cannot encode {self.value}: {self.reason}."


class InvalidCodec(JobError):
    """The arguments of a codec cannot work."""

    codec: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.codec}: {self.problem}. {self.advice}"


class Codec(ABC, Generic[Outer, Inner]):
    """Translation in both directions, as ``decode=`` and ``encode=`` of sources and sinks take it.

    ``a | b`` decodes by ``a`` and then by ``b``, and encodes in the reverse order. A codec travels to the tasks by
    value, without what its cached properties hold. Its results depend on its arguments alone, because a replay calls
    it again.
    """

    name: str = "codec"

    @abstractmethod
    def decode(self, data: Outer) -> Inner:
        """Returns the value of ``data``.

        Raises: UndecodableBytes: there is none.
        """

    @abstractmethod
    def encode(self, value: Inner) -> Outer:
        """Returns the outer form of a value.

        Raises: UnencodableValue: there is none.
        """

    def undecodable(self, reason: object) -> UndecodableBytes:
        """Creates the error of ``decode``."""
        return UndecodableBytes(self.name, _sentence(reason))

    def shallow(self, value: Inner, size_bytes: int) -> Inner:
        """Returns a value that was decoded from this number of bytes.

        Raises: UndecodableBytes: its dicts and lists are deeper in each other than a value may be.
        """
        if is_too_deep(value, size_bytes):
            raise self.undecodable(TOO_DEEP)
        return value

    def trial(self, value: Any) -> Any:
        """Encodes a value to see whether it can be, without what only another system knows.

        Raises: UnencodableValue: it cannot.
        """
        return self.encode(value)

    def unencodable(self, value: Any, reason: object) -> UnencodableValue:
        """Creates the error of ``encode``."""
        return UnencodableValue(self.name, shown(value), _sentence(reason))

    def __or__(self, other: Codec[Inner, Further]) -> Codec[Outer, Further]:
        return ChainedCodec(self, other)

    def __repr__(self) -> str:
        return self.name

    def __getstate__(self) -> dict[str, Any]:
        cls = type(self)
        return {k: v for k, v in vars(self).items() if not isinstance(getattr(cls, k, None), cached_property)}


class ChainedCodec(Codec[Outer, Further]):
    """Two codecs, the outer one first."""

    def __init__(self, outer: Codec[Outer, Any], inner: Codec[Any, Further]) -> None:
        if not isinstance(inner, Codec):
            raise InvalidCodec(
                f"{outer} | ...", f"{shown(inner)} is no codec", "Give an object of a class derived from codecs.Codec."
            )
        self.outer = outer
        self.inner = inner
        self.name = f"{outer.name} | {inner.name}"

    def decode(self, data: Outer) -> Further:
        """See ``Codec``."""
        return self.inner.decode(self.outer.decode(data))

    def encode(self, value: Further) -> Outer:
        """See ``Codec``."""
        return self.outer.encode(self.inner.encode(value))

    def trial(self, value: Further) -> Any:
        """See ``Codec``."""
        return self.outer.trial(self.inner.trial(value))


def shown(value: Any) -> str:
    """Returns a value as an error shows it, with at most 200 characters."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  the __repr__ of a user's class
        text = f"a {type(value).__name__} whose __repr__ raises {type(error).__name__}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _sentence(reason: object) -> str:
    return str(reason).strip().rstrip(".") or type(reason).__name__
