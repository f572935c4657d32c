"""Encoding of keys: the bytes by which a key is identified, partitioned and stored, the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, Flag
from types import NoneType
from typing import Any, Final
from uuid import UUID

from clonos.core.model.errors import JobError
from clonos.core.values import ValueBeyondLimit, ValueMalformed
from clonos.core.values.numpy_scalars import python_scalar
from clonos.core.values.type_registry import Choice, by_type, choice_of
from clonos.core.values.value_limits import KEY_BYTES_MAX, KEY_DEPTH_MAX

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


class KeyUnsupported(JobError):
    """Error for a value of a type that cannot be a key."""

    type_name: str
    advice: str

    def __str__(self) -> str:
        return (
            f"a key is or contains a {self.type_name}, which cannot be a key. {self.advice}"
            " Keys are str, bytes, int, bool, None, UUID, date, datetimes with a time zone, members of registered enums"
            " and tuples of them."
        )


@dataclass(frozen=True, slots=True)
class EncodedKey:
    """Key in encoded form, in place of a key that would equal a different one."""

    encoded: bytes


def encode_key(key: object) -> bytes:
    """Returns the bytes of a key or of its ``state_key``.

    Raises: KeyUnsupported, if the type cannot be a key; ValueBeyondLimit, if the key is too large or too deep.
    """
    if type(key) is EncodedKey:
        return key.encoded
    data = _encode(key, 0)
    if len(data) > KEY_BYTES_MAX:
        raise ValueBeyondLimit("bytes of a key", len(data), KEY_BYTES_MAX, "Use a digest of it as the key.")
    return data


def decode_key(data: bytes | memoryview) -> object:
    """Returns the key that was encoded.

    Raises: ValueMalformed, if the bytes are no encoded key.
    """
    if len(data) > KEY_BYTES_MAX:
        raise ValueMalformed("key", f"{len(data)} bytes, and the limit is {KEY_BYTES_MAX}")
    try:
        return _decode(bytes(data), 0)
    except (ValueError, OverflowError, IndexError) as error:
        raise ValueMalformed("key", str(error) or type(error).__name__) from error


def instant_of(key: datetime) -> datetime:
    """Returns the same instant in UTC.

    Raises: KeyUnsupported: the datetime has no time zone, or is not within the years 1 to 9999 in UTC.
    """
    if key.utcoffset() is None:
        advice = "Without a time zone it is no instant: give it one, such as value.replace(tzinfo=UTC)."
        raise KeyUnsupported("datetime without a time zone", advice)
    try:
        return key.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise KeyUnsupported("datetime outside of the years 1 to 9999 in UTC", "Use .isoformat() of it.") from None


def check_depth(depth: int) -> None:
    """Checks the number of tuples around a part of a key.

    Raises: ValueBeyondLimit: they are too many.
    """
    if depth >= KEY_DEPTH_MAX:
        raise ValueBeyondLimit("nested tuples in a key", depth + 1, KEY_DEPTH_MAX, "Use a flat tuple.")


def unsupported(key: object) -> KeyUnsupported:
    """Creates the error for a key of a type that cannot be one, with what to use instead."""
    cls = type(key)
    if issubclass(cls, float):
        advice = (
            "Floats that should be equal often differ in their last bit:"
            " use round(x), int(x * 100), or x.hex() where exact equality is meant."
        )
    elif issubclass(cls, Decimal):
        advice = "Use int(x * 100), or str(x.normalize()): 1.0 and 1.00 are equal, and are written differently."
    elif issubclass(cls, Enum):
        advice = "Register its class: put @register (from clonos import register) above it."
    elif cls in (list, set, frozenset, dict, bytearray):
        advice = "Use a tuple, with the items of a set or dict sorted."
    else:
        parent = next((parent for parent in (str, bytes, int, tuple, UUID) if issubclass(cls, parent)), None)
        advice = (
            f"A subclass of {parent.__name__} cannot be one either: convert it with {parent.__name__}(...)."
            if parent is not None
            else "Use an identifying value instead: an id, a name, .isoformat() of a time, a tuple of its fields."
        )
    return KeyUnsupported(cls.__qualname__, advice)


def _encode(key: object, depth: int) -> bytes:
    encoder = _ENCODERS.get(type(key))
    if encoder is not None:
        return encoder(key)
    if type(key) is not tuple:
        choice = by_type.get(type(key))
        if isinstance(choice, Choice):
            return _encode_member(key, choice)
        scalar = python_scalar(key)
        if scalar is key or type(scalar) not in _ENCODERS:
            raise unsupported(key)
        return _encode(scalar, depth)
    check_depth(depth)
    parts = [b"t"]
    for cell in key:
        encoder = _ENCODERS.get(type(cell))
        data = encoder(cell) if encoder is not None else _encode(cell, depth + 1)
        parts.append(_length(len(data)))
        parts.append(data)
    return b"".join(parts)


def _length(size: int) -> bytes:
    """Encodes the length of a tuple's part: one byte, or 255 and four bytes."""
    return _SHORT[size] if size < 255 else b"\xff" + min(size, _LONGEST).to_bytes(4, "big")


def _signed(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


_SHORT: Final = [bytes((size,)) for size in range(255)]
_LONGEST: Final = (1 << 32) - 1
"""Largest length that fits, far above the limit of a key, which is checked once the key is complete."""


def _encode_member(key: Any, choice: Choice) -> bytes:
    """Encodes a member of an enum by class and name, a combination of flags by class and number."""
    name = choice.name.encode("utf-8", "surrogatepass")
    if choice.is_flag:
        return b"".join((b"g", _length(len(name)), name, _encode(key._value_, 0)))
    member: str = key._name_
    if choice.cls.__members__.get(member) is not key:
        raise KeyUnsupported(type(key).__qualname__, "It is not one of the members that its class declares.")
    return b"".join((b"e", _length(len(name)), name, member.encode("utf-8", "surrogatepass")))


def _decode_member(body: bytes) -> object:
    name, rest = _first_part(body)
    member = rest.decode("utf-8", "surrogatepass")
    found: Any = choice_of(name.decode("utf-8", "surrogatepass")).cls.__members__.get(member)
    if found is None:
        raise ValueError(f"its enum has no member {member[:100]!r}")
    return found


def _decode_flags(body: bytes) -> object:
    name, rest = _first_part(body)
    cls = choice_of(name.decode("utf-8", "surrogatepass")).cls
    if not issubclass(cls, Flag):
        raise ValueError("its enum has no flags")
    return cls(_decode(rest, 0))


def _first_part(body: bytes) -> tuple[bytes, bytes]:
    """Splits a part off that its length precedes."""
    size, at = _size_at(body, 0)
    if at + size > len(body):
        raise ValueError("it ends early")
    return body[at : at + size], body[at + size :]


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    str: lambda key: b"s" + key.encode("utf-8", "surrogatepass"),
    bytes: lambda key: b"b" + key,
    int: lambda key: b"i" + _signed(key),
    bool: lambda key: b"T" if key else b"F",
    NoneType: lambda key: b"N",
    UUID: lambda key: b"u" + key.bytes,
    date: lambda key: b"d" + key.toordinal().to_bytes(3, "big"),
    datetime: lambda key: b"z" + _signed((instant_of(key) - EPOCH) // MICROSECOND),
}


def _decode(data: bytes, depth: int) -> object:
    tag, body = data[:1], data[1:]
    if tag == b"t":
        return _decode_tuple(body, depth)
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise ValueError(f"it begins with {tag!r}, as no key does")
    key = decoder(body)
    if _encode(key, depth) != data:
        raise ValueError("it is not the canonical encoding of its key")
    return key


def _decode_tuple(body: bytes, depth: int) -> tuple[object, ...]:
    if depth >= KEY_DEPTH_MAX:
        raise ValueError(f"more than {KEY_DEPTH_MAX} nested tuples")
    cells = []
    at = 0
    while at < len(body):
        size, at = _size_at(body, at)
        if at + size > len(body):
            raise ValueError("a tuple ends early")
        cells.append(_decode(body[at : at + size], depth + 1))
        at += size
    return tuple(cells)


def _size_at(body: bytes, at: int) -> tuple[int, int]:
    """Decodes a length; returns it and the position after it."""
    size, at = body[at], at + 1
    if size == 255:
        size, at = int.from_bytes(body[at : at + 4], "big"), at + 4
        if size < 255:
            raise ValueError("it is not the canonical encoding of its key")
    return size, at


_DECODERS: Final[dict[bytes, Callable[[bytes], object]]] = {
    b"s": lambda body: body.decode("utf-8", "surrogatepass"),
    b"b": lambda body: body,
    b"i": lambda body: int.from_bytes(body, "big", signed=True),
    b"T": lambda body: True,
    b"F": lambda body: False,
    b"N": lambda body: None,
    b"u": lambda body: UUID(int=int.from_bytes(body, "big")),
    b"d": lambda body: date.fromordinal(int.from_bytes(body, "big")),
    b"z": lambda body: EPOCH + timedelta(microseconds=int.from_bytes(body, "big", signed=True)),
    b"e": _decode_member,
    b"g": _decode_flags,
}
