"""Entries that stand still while another thread makes them bytes, and what lies over them meanwhile.

What is frozen is read by two threads and changed by none. The task goes on over it: what it sets, deletes, or may have
changed in place is in an ``Overlay``, which is merged down when nobody reads any more. So a barrier costs the task
nothing for what it leaves to others, whatever there is, and nothing is copied but what is touched meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from types import NoneType
from typing import Any, Final, NoReturn
from uuid import UUID

from clonos.core.values import decode_rows, encode_rows
from clonos.operators.state.state_changes import Entries, encode_piece, encode_sections

IMMUTABLE: Final = frozenset({NoneType, bool, int, float, str, bytes, datetime, date, timedelta, Decimal, UUID})
"""Types whose values cannot be changed by who reads them. (A tuple may hold a list.)"""


class _Absent:
    pass


_ABSENT: Final = _Absent()


class Overlay(dict[Any, Any]):
    """The entries of a table over frozen ones, asked key by key; ``merged`` is for who wants all.

    Its own are those that were set since, and copies of mutable values that were read. When nobody reads what lies
    below any more, it melts step by step: to merge all at once would hold up the task.
    """

    __slots__ = ("_left", "below", "gone", "is_melting")

    def __init__(self, below: Entries) -> None:
        super().__init__()
        self.below = below
        self.gone: dict[Any, None] = {}
        """Deleted since, and still there below. One that was set again stands in the overlay."""
        self.is_melting = False
        self._left = 0

    def __missing__(self, key: Any) -> Any:
        value = self._from_below(key)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """As of any dict."""
        value = _get(self, key, _ABSENT)
        if value is not _ABSENT:
            return value
        if not self.gone and type(value := self.below.get(key, _ABSENT)) in IMMUTABLE:
            return value
        value = self._from_below(key)
        return default if value is _ABSENT else value

    def __contains__(self, key: object) -> bool:
        return _contains(self, key) or (key in self.below and key not in self.gone)

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        """As of any dict."""
        value = self.get(key, _ABSENT)
        if value is not _ABSENT:
            _pop(self, key, None)
            if key in self.below:
                self.gone[key] = None
            return value
        if default is _ABSENT:
            raise KeyError(key)
        return default

    def _from_below(self, key: Any) -> Any:
        """A value that may be changed in place is copied, for what lies below stands still."""
        value = self.below.get(key, _ABSENT)
        if value is _ABSENT or key in self.gone:
            return _ABSENT
        if not self.is_melting and not _is_immutable(value):
            value = self[key] = _copy(value)
        return value

    @property
    def is_untouched(self) -> bool:
        """Whether all is as it was when it was frozen."""
        return not len(self) and not self.gone

    def merged(self) -> Entries:
        """All entries in their order, in a dict of its own; what lies below stays as it is."""
        entries: Entries = {}
        for key, value in self.below.items():
            if _contains(self, key):
                value = self[key]
            if key not in self.gone:
                entries[key] = value if _is_immutable(value) else _copy(value)
        entries.update(self)
        return entries

    def melt(self, entries_max: int) -> bool:
        """Nobody reads what lies below: it takes in what has come since the last time, and so many more. Whether that
        was all."""
        if self.is_melting:
            entries_max += max(0, len(self) + len(self.gone) - self._left)
        self.is_melting = True
        for key in list(islice(self.gone, entries_max)):
            entries_max -= 1
            del self.gone[key]
            self.below.pop(key, None)
        if not self.gone:  # one that was set again comes to stand at the end
            for key in list(islice(self, entries_max)):
                self.below[key] = _pop(self, key)
        self._left = len(self) + len(self.gone)
        return not self._left

    def keys(self) -> NoReturn:
        """It is not known how many there are without looking at all."""
        raise AssertionError("what lies over a frozen table is asked key by key")

    items = values = __reversed__ = keys


_get = dict.get
_contains = dict.__contains__
_pop = dict.pop


class LaterPieces:
    """Frozen entries that are made bytes by whoever iterates, in any thread, as often as needed, until the release."""

    __slots__ = ("_before", "_tables", "is_released")

    def __init__(self, tables: Mapping[str, tuple[Entries, list[Any] | None]], before: tuple[bytes, ...] = ()) -> None:
        """``tables``: by name the entries and which keys are wanted (None: all). ``before``: pieces that are ready."""
        self._tables = tables
        self._before = before
        self.is_released = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._before
        for name, (entries, wanted) in self._tables.items():
            for section in encode_sections(name, entries, wanted):
                yield encode_piece((section,))

    def release(self) -> None:
        """They are not read any more."""
        self.is_released = True
        self._tables = {}


def _copy(value: Any) -> Any:
    """As it would come back from a snapshot."""
    return decode_rows(encode_rows([value]))[0]


def _is_immutable(value: Any) -> bool:
    cls = type(value)
    return cls in IMMUTABLE or (cls is tuple and IMMUTABLE.issuperset(map(type, value)))
