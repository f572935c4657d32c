"""Choice of a codec: from ``decode=`` and ``encode=``, and by type from a registry that users may extend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, NamedTuple, is_typeddict

import msgspec

from clonos.connectors.codecs.codec import Codec, InvalidCodec, UndecodableBytes, shown
from clonos.connectors.codecs.plain import RawCodec
from clonos.operators.row_errors import RecordError

CONVERSIONS_MAX: Final = 4
"""Codecs in a chain that is chosen by type."""


class Conversion(NamedTuple):
    """Ability of a codec: ``make(inner)`` creates it. ``inner``: a type, or a function that accepts types."""

    outer: type
    inner: type | Callable[[Any], bool]
    make: Callable[[Any], Codec[Any, Any]]

    def gives(self, wanted: Any) -> bool:
        """Whether its values are of a type."""
        return self.inner is wanted if isinstance(self.inner, type) else bool(self.inner(wanted))


class CodecRegistry:
    """Conversions between types, and the search for the shortest chain of them."""

    def __init__(self) -> None:
        self._conversions: list[Conversion] = []

    def register(
        self, outer: type, inner: type | Callable[[Any], bool], make: Callable[[Any], Codec[Any, Any]]
    ) -> None:
        """Adds a conversion, see ``Conversion``."""
        self._conversions.append(Conversion(outer, inner, make))

    def chain(self, outer: type, inner: Any) -> Codec[Any, Any]:
        """Returns the only shortest chain of codecs between two types; for equal types the codec that changes nothing.

        Raises: InvalidCodec: there is none, or there are several; the error lists them.
        """
        if inner is outer:
            return RawCodec()
        begun: list[tuple[type, tuple[Conversion, ...]]] = [(outer, ())]
        for _ in range(CONVERSIONS_MAX):
            longer = [(at, (*path, each)) for at, path in begun for each in self._conversions if each.outer is at]
            found = [path for _, path in longer if path[-1].gives(inner)]
            if found:
                return self._only(inner, [_joined(path, inner) for path in found])
            begun = [(path[-1].inner, path) for _, path in longer if isinstance(path[-1].inner, type)]
            begun = [(at, path) for at, path in begun if at not in (outer, *(each.outer for each in path))]
        known = sorted({each.inner.__name__ for each in self._conversions if isinstance(each.inner, type)})
        raise InvalidCodec(
            f"a codec for {type_name(inner)}",
            "there is none",
            f"Types with a codec: {', '.join(known)}, and classes with fields. Name a codec of clonos.codecs,"
            " or add one with codecs.register().",
        )

    @staticmethod
    def _only(inner: Any, found: list[Codec[Any, Any]]) -> Codec[Any, Any]:
        if len(found) > 1:
            raise InvalidCodec(
                f"a codec for {type_name(inner)}",
                f"several fit: {', '.join(f'codecs.{each}' for each in found)}",
                "Name the codec.",
            )
        return found[0]


class FunctionCodec(Codec[Any, Any]):
    """A function of the user, for one direction."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__qualname__)

    def decode(self, data: Any) -> Any:
        """See ``Codec``.

        Raises: UndecodableBytes: the function has raised.
        """
        try:
            found = self.function(data)
        except RecordError:
            raise
        except Exception as error:
            raise UndecodableBytes(self.name, f"{type(error).__name__}: {error}") from error
        return self.shallow(found, len(data)) if isinstance(data, bytes) else found

    def encode(self, value: Any) -> Any:
        """See ``Codec``."""
        try:
            return self.function(value)
        except RecordError:
            raise
        except Exception as error:
            raise self.unencodable(value, f"{type(error).__name__}: {error}") from error


def codec_of(connector: str, option: str, given: Any, registry: CodecRegistry) -> Codec[bytes, Any]:
    """Returns the codec that ``decode=`` or ``encode=`` means: a codec, a type, or a function.

    Raises: InvalidCodec: it means none.
    """
    if isinstance(given, Codec):
        return given
    if is_record_class(given) or isinstance(given, type):
        return registry.chain(bytes, given)
    if callable(given):
        return FunctionCodec(given)
    raise InvalidCodec(
        connector, f"{option}={shown(given)} is no codec", "Give a codec of clonos.codecs, a type, or a function."
    )


def is_record_class(wanted: Any) -> bool:
    """Whether a type is a class with fields: dataclass, NamedTuple, msgspec.Struct or TypedDict."""
    if is_typeddict(wanted):
        return True
    if not isinstance(wanted, type):
        return False
    is_named_tuple = issubclass(wanted, tuple) and hasattr(wanted, "_fields")
    return dataclasses.is_dataclass(wanted) or is_named_tuple or issubclass(wanted, msgspec.Struct)


def type_name(wanted: Any) -> str:
    """Returns the name of a type for messages."""
    return wanted.__qualname__ if isinstance(wanted, type) else shown(wanted)


def _joined(path: tuple[Conversion, ...], inner: Any) -> Codec[Any, Any]:
    made = [each.make(each.inner if isinstance(each.inner, type) else inner) for each in path]
    return reduce(lambda outer, further: outer | further, made)
