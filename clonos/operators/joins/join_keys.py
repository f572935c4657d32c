"""Keys of the records of a join: a key that is null, or has a null in it, matches nothing, as in SQL."""

from __future__ import annotations

from types import NoneType
from typing import Any, Final

from clonos.core.values.keys import state_keys


class NullKey:
    """Stands for a key that matches nothing. No buffer and no table has it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL_KEY"


NULL_KEY: Final = NullKey()


def join_keys(rows: list[Any]) -> list[Any]:
    """Returns the state key of each row (key, value), ``NULL_KEY`` in place of those that match nothing.

    Raises: KeyUnsupported: the type of a key cannot be one.
    """
    keys = [key for key, _ in rows]
    stored = state_keys(keys)
    classes = {*map(type, keys)}
    if NoneType not in classes and tuple not in classes:
        return stored
    return [NULL_KEY if _has_null(key) else each for key, each in zip(keys, stored, strict=True)]


def _has_null(key: Any) -> bool:
    return key is None or (type(key) is tuple and any(map(_has_null, key)))
