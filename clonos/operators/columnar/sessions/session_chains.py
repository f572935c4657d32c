"""Chains of open sessions: which slots of the table of sessions belong to each key. Derived from the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy

from clonos.kernels.packed_keys import KeyIndex
from clonos.operators.state.column_slots import grown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]

NONE: Final = -1
"""End of a chain."""

KEYS_SPARE: Final = 1 << 16
"""Keys without an open session that the index may have besides as many as there are slots."""


class SessionChains:
    """Chain of the slots of each key, in no order. Keys have numbers, which are those of an index of them."""

    __slots__ = ("index", "_heads", "_next", "_owners")

    def __init__(self, types: Sequence[Any]) -> None:
        """Creates it for keys of these Arrow types."""
        self.index = KeyIndex(types)
        self._heads = numpy.empty(0, numpy.int64)  # by key
        self._next = numpy.empty(0, numpy.int64)  # by slot
        self._owners = numpy.empty(0, numpy.int64)  # by slot

    def is_full(self, slots: int) -> bool:
        """Returns whether most keys have no session, where there are ``slots`` slots: it is time to make it anew."""
        return len(self.index) > 2 * slots + KEYS_SPARE

    def keys(self, columns: Sequence[Any]) -> Numbers:
        """Returns the number of the key of each row; new keys are added."""
        before = len(self.index)
        numbers = self.index.add(columns).astype(numpy.int64)
        if len(self.index) > before:
            self._heads = grown(self._heads, before, len(self.index))
            self._heads[before : len(self.index)] = NONE
        return numbers

    def heads(self, keys: Numbers) -> Numbers:
        """Returns one slot of each key, NONE of keys without sessions."""
        return self._heads[keys]

    def is_last(self, slots: Numbers) -> NDArray[numpy.bool_]:
        """Returns which slots have no others after them in their chains."""
        is_last: NDArray[numpy.bool_] = self._next[slots] == NONE
        return is_last

    def of(self, keys: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """Yields all slots of distinct keys, in parts: places in ``keys``, and a slot for each of them."""
        places, slots = numpy.arange(len(keys)), self._heads[keys]
        while len(places):
            is_slot = slots != NONE
            places, slots = places[is_slot], slots[is_slot]
            if len(places):
                yield places, slots
                slots = self._next[slots]

    def add(self, keys: Numbers, slots: Numbers) -> None:
        """Adds new slots to the chains of their keys, which may be there several times."""
        count = int(slots.max(initial=-1)) + 1
        self._next, self._owners = (grown(each, len(each), count) for each in (self._next, self._owners))
        order = numpy.argsort(keys, kind="stable")
        keys, slots = keys[order], slots[order]
        is_first = numpy.concatenate(([True], keys[1:] != keys[:-1]))[: len(keys)]
        is_last = numpy.concatenate((is_first[1:], [True]))[: len(keys)]
        self._owners[slots] = keys
        self._next[slots[:-1]] = slots[1:]
        self._next[slots[is_last]] = self._heads[keys[is_last]]
        self._heads[keys[is_first]] = slots[is_first]

    def drop(self, slots: Numbers, is_removed: NDArray[numpy.bool_]) -> None:
        """Drops slots from their chains, all of which ``is_removed`` has."""
        keys = numpy.unique(self._owners[slots])
        nodes = self._heads[keys] = self._left(self._heads[keys], is_removed)
        nodes = nodes[nodes != NONE]
        while len(nodes):
            following = self._next[nodes] = self._left(self._next[nodes], is_removed)
            nodes = following[following != NONE]

    def _left(self, slots: Numbers, is_removed: NDArray[numpy.bool_]) -> Numbers:
        """Returns for each slot the first one from it on in its chain that is left."""
        while True:
            passed = numpy.flatnonzero((slots != NONE) & is_removed[slots])
            if not len(passed):
                return slots
            slots[passed] = self._next[slots[passed]]
