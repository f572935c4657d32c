"""Keys, by which streams are partitioned and under which state is stored.

A key is identified by its encoded bytes, because 1, 1.0 and True are one key in a dict but different keys to a user.
Allowed are str, bytes, int, bool, None, UUID, date and tuples of them. ``key -> bytes -> key group -> task`` is the
same in every process for the whole life of the job; the number of key groups never changes, the number of tasks may.

In memory a key represents itself where that is safe. Only keys that are or contain a bool are wrapped (``state_key``),
because True and False equal 1 and 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, repeat
from types import NoneType
from typing import Any, Final
from uuid import UUID

from xxhash import xxh3_64_intdigest

from clonos.core.model.errors import JobError
from clonos.core.values import ValueBeyondLimit, ValueMalformed
from clonos.core.values.value_limits import KEY_BYTES_MAX, KEY_DEPTH_MAX

SAFE: Final = frozenset({str, bytes, int, NoneType, UUID, date})
"""Types whose keys are equal exactly when their bytes are."""

SAFE_OR_TUPLE: Final = SAFE | {tuple}

CACHED_KEYS_MAX: Final = 1 << 16
"""Maximum number of keys whose target a router remembers."""


class KeyUnsupported(JobError):
    """Error for a value of a type that cannot be a key."""

    type_name: str
    advice: str

    def __str__(self) -> str:
        return (
            f"a key is or contains a {self.type_name}, which cannot be a key. {self.advice}"
            " Keys are str, bytes, int, bool, None, UUID, date and tuples of them."
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


def key_group(encoded: bytes, max_parallelism: int) -> int:
    """Returns the group of a key, 0 to ``max_parallelism`` - 1.

    Groups are the unit in which state is stored and moved.
    """
    return xxh3_64_intdigest(encoded) % max_parallelism


def task_of_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """Returns the index of the task that owns a key group.

    Each task owns a contiguous range, all of nearly equal length.
    """
    return group * parallelism // max_parallelism


def groups_of_task(task: int, parallelism: int, max_parallelism: int) -> range:
    """Returns the key groups that a task owns."""
    return range(-(-task * max_parallelism // parallelism), -(-(task + 1) * max_parallelism // parallelism))


def state_key(key: object) -> object:
    """Returns a hashable that equals another one exactly when the keys' bytes do: the key or an ``EncodedKey``.

    Raises: KeyUnsupported, if the type cannot be a key.
    """
    return key if type(key) in SAFE else state_keys([key])[0]


def state_keys(keys: list[Any]) -> list[Any]:
    """Returns the ``state_key`` of each key, and the same list if every key represents itself.

    Raises: KeyUnsupported, if a type cannot be a key.
    """
    if not keys:
        return keys
    first = type(keys[0])
    if first in SAFE and [*map(type, keys)].count(first) == len(keys):  # faster than building the set of their types
        return keys
    level = keys
    for _ in range(KEY_DEPTH_MAX + 1):
        classes = {*map(type, level)}
        if classes <= SAFE:
            return keys
        if not classes <= SAFE_OR_TUPLE:
            break
        tuples = level if len(classes) == 1 else [cell for cell in level if type(cell) is tuple]
        level = list(chain.from_iterable(tuples))
    return [_state_key(key) for key in keys]


def key_of(state_key: object) -> object:
    """Returns the user's key for a ``state_key``."""
    return decode_key(state_key.encoded) if type(state_key) is EncodedKey else state_key


class Router:
    """Partitioner of batches by key over the tasks of a vertex, with a cache of recent keys' targets.

    The cache is a plain dict from state keys to targets. It is cleared when full, which is cheaper than tracking recent
    use.
    """

    __slots__ = ("_cached_keys_max", "_parallelism", "_targets", "_tasks_of_groups")

    def __init__(self, parallelism: int, max_parallelism: int, cached_keys_max: int = CACHED_KEYS_MAX) -> None:
        self._parallelism = parallelism
        groups = range(max_parallelism)
        self._tasks_of_groups = [task_of_group(group, parallelism, max_parallelism) for group in groups]
        self._cached_keys_max = cached_keys_max
        self._targets: dict[object, int] = {}

    @property
    def cached_keys(self) -> int:
        """Number of keys whose task is cached."""
        return len(self._targets)

    def target(self, key: object) -> int:
        """Returns the index of the task for a key.

        Raises: KeyUnsupported, if the type cannot be a key.
        """
        stored = state_key(key)
        found = self._targets.get(stored)
        return self._learn(stored) if found is None else found

    def targets(self, stored: list[Any]) -> Any:
        """Returns the index of the task for each state key, as a numpy array."""
        import numpy

        found = numpy.fromiter(map(self._targets.get, stored, repeat(-1)), numpy.int16, len(stored))
        for index in numpy.flatnonzero(found < 0).tolist():
            found[index] = self._learn(stored[index])
        return found

    def split(self, keys: Sequence[Any], rows: list[Any]) -> list[list[Any]]:
        """Returns the rows for each task, by task index and in their order. ``keys[i]`` is the key of ``rows[i]``.

        Raises: KeyUnsupported, if a type cannot be a key; ValueBeyondLimit, if a key is too large; ValueError, if the
        numbers of keys and rows differ.
        """
        parts: list[list[Any]] = [[] for _ in range(self._parallelism)]
        stored = state_keys(keys if type(keys) is list else list(keys))
        targets = self._targets
        key = row = None
        # A key that is not cached interrupts the fast loop, which then continues after it.
        if stored is rows:
            remaining = iter(stored)
            while True:
                try:
                    for key in remaining:
                        parts[targets[key]].append(key)
                    return parts
                except KeyError:
                    pass
                parts[self._learn(key)].append(key)
        pairs = zip(stored, rows, strict=True)
        while True:
            try:
                for key, row in pairs:
                    parts[targets[key]].append(row)
                return parts
            except KeyError:
                pass
            parts[self._learn(key)].append(row)

    def _learn(self, key: object) -> int:
        """Computes and caches the target of a state key."""
        group = key_group(encode_key(key), len(self._tasks_of_groups))
        if len(self._targets) >= self._cached_keys_max:
            self._targets.clear()
        target = self._targets[key] = self._tasks_of_groups[group]
        return target


def _state_key(key: object) -> object:
    return EncodedKey(encode_key(key)) if _holds_bool(key, 0) else key


def _holds_bool(key: object, depth: int) -> bool:
    """Returns whether the key is or contains a bool.

    Raises: KeyUnsupported, if the type cannot be a key; ValueBeyondLimit, if the key is too deep.
    """
    if type(key) is tuple:
        _check_depth(depth)
        return any(_holds_bool(cell, depth + 1) for cell in key)
    if type(key) not in SAFE and type(key) is not bool:
        raise _unsupported(key)
    return type(key) is bool


def _check_depth(depth: int) -> None:
    if depth >= KEY_DEPTH_MAX:
        raise ValueBeyondLimit("nested tuples in a key", depth + 1, KEY_DEPTH_MAX, "Use a flat tuple.")


def _unsupported(key: object) -> KeyUnsupported:
    cls = type(key)
    if issubclass(cls, float):
        advice = (
            "Floats that should be equal often differ in their last bit:"
            " use round(x), int(x * 100), or x.hex() where exact equality is meant."
        )
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
        raise _unsupported(key)
    _check_depth(depth)
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


_SHORT: Final = [bytes((size,)) for size in range(255)]
_LONGEST: Final = (1 << 32) - 1
"""Largest length that fits, far above the limit of a key, which is checked once the key is complete."""


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    str: lambda key: b"s" + key.encode("utf-8", "surrogatepass"),
    bytes: lambda key: b"b" + key,
    int: lambda key: b"i" + key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True),
    bool: lambda key: b"T" if key else b"F",
    NoneType: lambda key: b"N",
    UUID: lambda key: b"u" + key.bytes,
    date: lambda key: b"d" + key.toordinal().to_bytes(3, "big"),
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
        size, at = body[at], at + 1
        if size == 255:
            size, at = int.from_bytes(body[at : at + 4], "big"), at + 4
            if size < 255:
                raise ValueError("it is not the canonical encoding of its key")
        if at + size > len(body):
            raise ValueError("a tuple ends early")
        cells.append(_decode(body[at : at + size], depth + 1))
        at += size
    return tuple(cells)


_DECODERS: Final[dict[bytes, Callable[[bytes], object]]] = {
    b"s": lambda body: body.decode("utf-8", "surrogatepass"),
    b"b": lambda body: body,
    b"i": lambda body: int.from_bytes(body, "big", signed=True),
    b"T": lambda body: True,
    b"F": lambda body: False,
    b"N": lambda body: None,
    b"u": lambda body: UUID(int=int.from_bytes(body, "big")),
    b"d": lambda body: date.fromordinal(int.from_bytes(body, "big")),
}
