"""Keys: what a stream is partitioned by and what state is kept under.

A key is its encoded bytes, since 1, 1.0 and True are one key in a dict and different keys to a user. Allowed: str,
bytes, int, bool, None, UUID, date and tuples of them. ``key -> bytes -> key group -> task`` is the same in every
process and for the job's whole life; the number of key groups never changes, that of tasks may.

In memory a key stands for itself wherever that is safe. Only True and False, bare or within a tuple, equal another
key, so they are wrapped (``state_key``).
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
"""Types whose keys equal each other just when their bytes do."""

SAFE_OR_TUPLE: Final = SAFE | {tuple}

CACHED_KEYS_MAX: Final = 1 << 16
"""Keys whose target a router remembers."""


class KeyUnsupported(JobError):
    """The job partitions by something that cannot be a key."""

    type_name: str
    advice: str

    def __str__(self) -> str:
        return (
            f"a key is or holds a {self.type_name}, which cannot be a key. {self.advice}"
            " Keys are str, bytes, int, bool, None, UUID, date and tuples of them."
        )


@dataclass(frozen=True, slots=True)
class EncodedKey:
    """Stands in memory for a key that would equal another one."""

    encoded: bytes


def encode_key(key: object) -> bytes:
    """The bytes of a key, or of its ``state_key``. KeyUnsupported, ValueBeyondLimit."""
    if type(key) is EncodedKey:
        return key.encoded
    data = _encode(key, 0)
    if len(data) > KEY_BYTES_MAX:
        raise ValueBeyondLimit("bytes of a key", len(data), KEY_BYTES_MAX, "Use a digest of it as the key.")
    return data


def decode_key(data: bytes | memoryview) -> object:
    """The key of the bytes. ValueMalformed."""
    if len(data) > KEY_BYTES_MAX:
        raise ValueMalformed("key", f"{len(data)} bytes, and the limit is {KEY_BYTES_MAX}")
    try:
        return _decode(bytes(data), 0)
    except (ValueError, OverflowError, IndexError) as error:
        raise ValueMalformed("key", str(error) or type(error).__name__) from error


def key_group(encoded: bytes, max_parallelism: int) -> int:
    """The group of a key, 0 to ``max_parallelism`` - 1: the unit in which state is kept and moved."""
    return xxh3_64_intdigest(encoded) % max_parallelism


def task_of_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """The task that has a key group: contiguous ranges, as even as can be."""
    return group * parallelism // max_parallelism


def groups_of_task(task: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups that a task has."""
    return range(-(-task * max_parallelism // parallelism), -(-(task + 1) * max_parallelism // parallelism))


def state_key(key: object) -> object:
    """A hashable that equals another one just when the keys' bytes do: the key itself, or an EncodedKey.

    KeyUnsupported.
    """
    return key if type(key) in SAFE else state_keys([key])[0]


def state_keys(keys: list[Any]) -> list[Any]:
    """``state_key`` of each: the same list where all keys stand for themselves. KeyUnsupported."""
    if not keys:
        return keys
    first = type(keys[0])
    if first in SAFE and [*map(type, keys)].count(first) == len(keys):  # quicker than the set of their types
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
    """The user's key behind a ``state_key``."""
    return decode_key(state_key.encoded) if type(state_key) is EncodedKey else state_key


class Router:
    """Partitions batches by key over the tasks of a vertex; remembers the targets of recent keys.

    The targets are a plain dict of state keys. It forgets all when it is full: that costs less than knowing which was
    used last.
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
        """The index of the task that a key belongs to. KeyUnsupported."""
        stored = state_key(key)
        found = self._targets.get(stored)
        return self._learn(stored) if found is None else found

    def targets(self, stored: list[Any]) -> Any:
        """The index of the task of each of some state keys, as an array of numpy."""
        import numpy

        found = numpy.fromiter(map(self._targets.get, stored, repeat(-1)), numpy.int16, len(stored))
        for place in numpy.flatnonzero(found < 0).tolist():
            found[place] = self._learn(stored[place])
        return found

    def split(self, keys: Sequence[Any], rows: list[Any]) -> list[list[Any]]:
        """The rows for each task, by its index, in their order. ``keys[i]`` is the key of ``rows[i]``.

        KeyUnsupported, ValueBeyondLimit; ValueError: more or fewer keys than rows.
        """
        parts: list[list[Any]] = [[] for _ in range(self._parallelism)]
        stored = state_keys(keys if type(keys) is list else list(keys))
        targets = self._targets
        key = row = None
        # A key that is not known yet stops the quick loop, which goes on behind it.
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
        """The target of a state key that was not remembered."""
        group = key_group(encode_key(key), len(self._tasks_of_groups))
        if len(self._targets) >= self._cached_keys_max:
            self._targets.clear()
        target = self._targets[key] = self._tasks_of_groups[group]
        return target


def _state_key(key: object) -> object:
    return EncodedKey(encode_key(key)) if _holds_bool(key, 0) else key


def _holds_bool(key: object, depth: int) -> bool:
    """Whether the key is or holds a bool. KeyUnsupported, ValueBeyondLimit: it is no key."""
    if type(key) is tuple:
        _check_depth(depth)
        return any(_holds_bool(cell, depth + 1) for cell in key)
    if type(key) not in SAFE and type(key) is not bool:
        raise _unsupported(key)
    return type(key) is bool


def _check_depth(depth: int) -> None:
    if depth >= KEY_DEPTH_MAX:
        raise ValueBeyondLimit("tuples within each other in a key", depth + 1, KEY_DEPTH_MAX, "Use a flat tuple.")


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
            f"No subclass of {parent.__name__} is: convert it by {parent.__name__}(...)."
            if parent is not None
            else "Use what identifies it: an id, a name, .isoformat() of a time, a tuple of its fields."
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
    """In front of each part of a tuple: one byte, or 255 and four bytes."""
    return _SHORT[size] if size < 255 else b"\xff" + min(size, _LONGEST).to_bytes(4, "big")


_SHORT: Final = [bytes((size,)) for size in range(255)]
_LONGEST: Final = (1 << 32) - 1
"""Far beyond the limit of a key, which is checked when all of it is there."""


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
        raise ValueError(f"no key begins with {tag!r}")
    key = decoder(body)
    if _encode(key, depth) != data:
        raise ValueError("a key has one encoding only, and this is another")
    return key


def _decode_tuple(body: bytes, depth: int) -> tuple[object, ...]:
    if depth >= KEY_DEPTH_MAX:
        raise ValueError(f"more than {KEY_DEPTH_MAX} tuples within each other")
    cells = []
    at = 0
    while at < len(body):
        size, at = body[at], at + 1
        if size == 255:
            size, at = int.from_bytes(body[at : at + 4], "big"), at + 4
            if size < 255:
                raise ValueError("a key has one encoding only, and this is another")
        if at + size > len(body):
            raise ValueError("a tuple that is cut short")
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
