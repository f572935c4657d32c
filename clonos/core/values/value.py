"""Encoding of one value: exact, deterministic across processes, and safe to decode because it runs no code."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator

from clonos.core.values import type_registry, value_limits
from clonos.core.values.tree import CAREFUL, DECODER, PLAIN, Unencodable, lift, lower, pack
from clonos.core.values.value_errors import ValueBeyondLimit, ValueMalformed, ValueUnsupported


def encode_value(value: object, *, bytes_max: int = value_limits.VALUE_BYTES_MAX) -> bytes:
    """Returns the bytes of a value.

    Raises: ValueUnsupported, if a part of it has no encoding; ValueBeyondLimit, if it is too large, too long or too
    deep.
    """
    try:
        data = pack(lower, value, 0)
    except Unencodable as refused:
        raise unsupported("value", value, refused) from None
    if len(data) > bytes_max:
        raise ValueBeyondLimit("bytes of an encoded value", len(data), bytes_max)
    return data


def decode_value(data: bytes | memoryview, *, bytes_max: int = value_limits.VALUE_BYTES_MAX) -> object:
    """Returns an exact copy of the value that was encoded.

    Raises: ValueMalformed, if the bytes are no encoded value.
    """
    if len(data) > bytes_max:
        raise ValueMalformed("value", f"{len(data)} bytes, and the limit is {bytes_max}")
    try:
        return lift(DECODER.decode(data), 0)
    # Wrong bytes may raise anything, in the libraries below or in __hash__ and __post_init__ of a registered class.
    except Exception as error:
        raise ValueMalformed("value", reason(error)) from error


def reason(error: Exception) -> str:
    """Returns the text of an exception, at most 500 characters, for the error about malformed bytes."""
    return f"{error}"[:500] or type(error).__name__


def unsupported(root: str, value: object, refused: Unencodable) -> ValueUnsupported:
    """Returns the error for a value with a refused part. ``root`` is the beginning of the path to that part."""
    return ValueUnsupported(refused.type_name, root + _path(value), refused.advice)


def _path(value: object) -> str:
    """Returns the path from a refused value to the innermost part that is itself refused."""
    for step, part in _parts(value):
        try:
            lower(part, CAREFUL, 0)
        except Unencodable:
            return step + _path(part)
    return ""


def _parts(value: object) -> Iterator[tuple[str, object]]:
    cls = type(value)
    if cls is list or cls is tuple:
        for place, item in enumerate(value):  # type: ignore[var-annotated, arg-type]
            yield f"[{place}]", item
    elif cls is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            yield f".key({_brief(key)})", key
            yield f"[{_brief(key)}]", item
    elif cls is set or cls is frozenset:
        for item in value:  # type: ignore[attr-defined]
            yield ".item", item
    entry = type_registry.by_type.get(cls)
    if isinstance(entry, type_registry.RegisteredRecord):
        for field in entry.fields:
            if hasattr(value, field):
                yield f".{field}", getattr(value, field)


def _brief(key: object) -> str:
    """Returns a short text for a key in a path. It avoids the repr of user classes, which may fail or never end."""
    return reprlib.repr(key) if type(key) in PLAIN else type(key).__name__
