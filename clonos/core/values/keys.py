"""Keys, by which streams are partitioned and under which state is stored.

A key is identified by its encoded bytes, because 1, 1.0 and True are one key in a dict but different keys to a user.
Allowed are str, bytes, int, bool, None, UUID, date, datetimes with a time zone, members of registered enums, and tuples
of them. ``key -> bytes -> key group -> task`` is the same in every process for the whole life of the job; the number of
key groups never changes, the number of tasks may.

In memory a key represents itself where that is safe (``state_key``). A datetime is represented by the same instant in
UTC, because two datetimes of one instant are one key in any zones. Keys that are or contain a bool or a member of an
enum are wrapped: True equals 1, and a member may equal a str or an int.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import UTC, date, datetime
from enum import Enum
from itertools import chain, repeat
from operator import attrgetter, is_
from types import NoneType
from typing import Any, Final
from uuid import UUID

from xxhash import xxh3_64_intdigest

from clonos.core.values.key_encoding import EncodedKey, check_depth, decode_key, encode_key, instant_of, unsupported
from clonos.core.values.numpy_scalars import python_scalar
from clonos.core.values.type_registry import Choice, by_type
from clonos.core.values.value_limits import KEY_DEPTH_MAX
from clonos.kernels import choice

SAFE: Final = frozenset({str, bytes, int, NoneType, UUID, date})
"""Types whose keys are equal exactly when their bytes are."""

SAFE_OR_TUPLE: Final = SAFE | {tuple}

CACHED_KEYS_MAX: Final = 1 << 16
"""Maximum number of keys whose target a router remembers."""


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
    if first is datetime and _are_in_utc(keys):
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
    use. The native kernel hashes most ints and texts, which it does not look up.
    """

    __slots__ = ("_cached_keys_max", "_packed_tasks", "_parallelism", "_targets", "_tasks", "_tasks_of_groups")

    def __init__(self, parallelism: int, max_parallelism: int, cached_keys_max: int = CACHED_KEYS_MAX) -> None:
        self._parallelism = parallelism
        groups = range(max_parallelism)
        self._tasks_of_groups = [task_of_group(group, parallelism, max_parallelism) for group in groups]
        self._packed_tasks = array("i", self._tasks_of_groups)
        self._cached_keys_max = cached_keys_max
        self._targets: dict[object, int] = {}
        self._tasks: Any = None  # _tasks_of_groups as a numpy array, since the first batch of columns

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

    @property
    def parallelism(self) -> int:
        """Number of tasks."""
        return self._parallelism

    def tasks_of(self, groups: Any) -> Any:
        """Returns the index of the task for each key group, as a numpy array of 32-bit integers."""
        if self._tasks is None:
            import numpy

            self._tasks = numpy.array(self._tasks_of_groups, numpy.int32)
        return self._tasks.take(groups)

    def split(self, keys: Sequence[Any], *columns: list[Any]) -> tuple[list[list[Any]], ...]:
        """Returns for each column what it has for each task, by task index and in its order. ``keys[i]`` is the key of
        row ``i``, of which each column has a part.

        Raises: KeyUnsupported, if a type cannot be a key; ValueBeyondLimit, if a key is too large; ValueError, if the
        numbers of keys and rows differ.
        """
        stored = state_keys(keys if type(keys) is list else list(keys))
        for column in columns:
            if len(stored) != len(column):
                raise ValueError(f"{len(stored)} keys for {len(column)} rows")
        split = split_rows if choice.native is None else choice.native.split_rows
        parts: tuple[list[list[Any]], ...] = tuple([[[] for _ in range(self._parallelism)] for _ in columns])
        first = 0
        # A key that is not cached interrupts the loop, which continues after it.
        while (first := split(stored, columns, first, self._packed_tasks, self._targets, parts)) < len(stored):
            self._learn(stored[first])
        return parts

    def _learn(self, key: object) -> int:
        """Computes and caches the target of a state key."""
        group = key_group(encode_key(key), len(self._tasks_of_groups))
        if len(self._targets) >= self._cached_keys_max:
            self._targets.clear()
        target = self._targets[key] = self._tasks_of_groups[group]
        return target


def split_rows(
    keys: list[Any],
    columns: tuple[list[Any], ...],
    first: int,
    tasks: Sequence[int],
    targets: dict[object, int],
    parts: tuple[list[list[Any]], ...],
) -> int:
    """Appends what each column has from the index ``first`` on to its part of the target of the key there.

    Returns the index of the first key without a target, or the number of rows. It is the twin of the native kernel,
    which finds the group of many keys by itself, and the target in ``tasks``.
    """
    for index in range(first, len(keys)):
        target = targets.get(keys[index])
        if target is None:
            return index
        for column, parts_of_it in zip(columns, parts, strict=True):
            parts_of_it[target].append(column[index])
    return len(keys)


def _state_key(key: object) -> object:
    key = _canonical(key, 0)
    return EncodedKey(encode_key(key)) if _is_ambiguous(key) else key


def _are_in_utc(keys: list[Any]) -> bool:
    """Returns whether all keys are datetimes in UTC, and so represent themselves."""
    if [*map(type, keys)].count(datetime) != len(keys):
        return False
    return all(map(is_, map(attrgetter("tzinfo"), keys), repeat(UTC))) and not any(map(attrgetter("fold"), keys))


def _canonical(key: Any, depth: int) -> Any:
    """Returns the key with each datetime in UTC and each numpy scalar as a Python one.

    Raises: KeyUnsupported, if the type cannot be a key; ValueBeyondLimit, if the key is too deep.
    """
    cls = type(key)
    if cls in SAFE or cls is bool or isinstance(by_type.get(cls), Choice):
        return key
    if cls is tuple:
        check_depth(depth)
        return tuple([_canonical(cell, depth + 1) for cell in key])
    if cls is datetime:
        return instant_of(key)
    scalar = python_scalar(key)
    if type(scalar) not in SAFE and type(scalar) is not bool:
        raise unsupported(key)
    return scalar


def _is_ambiguous(key: object) -> bool:
    """Returns whether a canonical key is or contains a bool or a member of an enum."""
    if type(key) is tuple:
        return any(map(_is_ambiguous, key))
    return type(key) is bool or isinstance(key, Enum)
