"""Frozen entries of a table, which another thread encodes for a snapshot, and the overlay that takes changes meanwhile.

Two threads read frozen entries and none changes them. What the task sets, deletes or may change in place goes into an
``Overlay``, which is merged into the entries when the snapshot is stored. Therefore a barrier takes the same time for
any size of state, and only entries that are touched meanwhile are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn

from clonos.core.values import decode_rows, encode_rows
from clonos.core.values.copying import IMMUTABLE, is_immutable
from clonos.operators.state.state_changes import Entries, encode_piece, encode_sections

if TYPE_CHECKING:
    from clonos.operators.state.column_state import Reader


class Absent:
    """Type of ``ABSENT``."""


ABSENT: Final = Absent()
"""In place of the value of an entry that is not there: None is a value."""


class Overlay(dict[Any, Any]):
    """Changes of a table over its frozen entries; supports access by key only.

    The overlay holds entries that were set since, and copies of mutable values that were read. ``merged`` returns all
    entries. When the snapshot is stored, the overlay is merged in pieces, because merging it at once would block the
    task.
    """

    __slots__ = ("_left", "frozen", "deleted", "is_merging")

    def __init__(self, frozen: Entries) -> None:
        super().__init__()
        self.frozen = frozen
        self.deleted: dict[Any, None] = {}
        """Keys deleted since, which still exist in ``frozen``. A key that was set again is in the overlay too."""
        self.is_merging = False
        self._left = 0

    def __missing__(self, key: Any) -> Any:
        value = self._from_frozen(key)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """Behaves as ``dict.get``."""
        value = _get(self, key, ABSENT)
        if value is not ABSENT:
            return value
        if not self.deleted and type(value := self.frozen.get(key, ABSENT)) in IMMUTABLE:
            return value
        value = self._from_frozen(key)
        return default if value is ABSENT else value

    def __contains__(self, key: object) -> bool:
        return _contains(self, key) or (key in self.frozen and key not in self.deleted)

    def pop(self, key: Any, default: Any = ABSENT) -> Any:
        """Behaves as ``dict.pop``.

        Raises: KeyError: there is neither an entry nor a default.
        """
        value = self.get(key, ABSENT)
        if value is not ABSENT:
            _pop(self, key, None)
            if key in self.frozen:
                self.deleted[key] = None
            return value
        if default is ABSENT:
            raise KeyError(key)
        return default

    def _from_frozen(self, key: Any) -> Any:
        """Returns a value of ``frozen``; as a copy if it is mutable, because frozen entries must not change."""
        value = self.frozen.get(key, ABSENT)
        if value is ABSENT or key in self.deleted:
            return ABSENT
        if not self.is_merging and not is_immutable(value):
            value = self[key] = _copy(value)
        return value

    @property
    def is_unchanged(self) -> bool:
        """Returns whether nothing has changed since the entries were frozen."""
        return not len(self) and not self.deleted

    def merged(self) -> Entries:
        """Returns all entries in order in a new dict; the frozen entries stay unchanged."""
        entries: Entries = {}
        for key, value in self.frozen.items():
            if _contains(self, key):
                value = self[key]
            if key not in self.deleted:
                entries[key] = value if is_immutable(value) else _copy(value)
        entries.update(self)
        return entries

    def merge_overlay(self, entries_max: int) -> bool:
        """Merges the changes since the last call and ``entries_max`` more into ``frozen``.

        Returns whether all are merged.

        Call it only when no thread reads the frozen entries.
        """
        if self.is_merging:
            entries_max += max(0, len(self) + len(self.deleted) - self._left)
        self.is_merging = True
        for key in list(islice(self.deleted, entries_max)):
            entries_max -= 1
            del self.deleted[key]
            self.frozen.pop(key, None)
        if not self.deleted:  # keys that were deleted and set again come last
            for key in list(islice(self, entries_max)):
                self.frozen[key] = _pop(self, key)
        self._left = len(self) + len(self.deleted)
        return not self._left

    def keys(self) -> NoReturn:
        """Fails: the number of entries is unknown without a merge."""
        raise AssertionError("an overlay supports access by key only")

    items = values = __reversed__ = keys


_get = dict.get
_contains = dict.__contains__
_pop = dict.pop


class FrozenPieces:
    """Frozen entries that any thread may encode by iterating, repeatedly, until they are released."""

    __slots__ = ("_before", "_tables", "_columns", "is_released")

    def __init__(
        self,
        tables: Mapping[str, tuple[Entries, list[Any] | None]],
        before: tuple[bytes, ...] = (),
        columns: Sequence[Reader] = (),
    ) -> None:
        """Creates pieces of ``tables``: by name the entries and the wanted keys (None: all).

        ``before`` are finished pieces; ``columns`` are readers of state in columns.
        """
        self._tables = tables
        self._before = before
        self._columns = columns
        self.is_released = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._before
        for name, (entries, wanted) in self._tables.items():
            for section in encode_sections(name, entries, wanted):
                yield encode_piece((section,))
        for reader in self._columns:
            for change in reader:
                yield encode_piece((), columns=(change,))

    def release(self) -> None:
        """Releases the entries: no thread will read them again."""
        for reader in self._columns:
            reader.release()
        self._tables, self._columns = {}, ()
        self.is_released = True  # last: the task looks at it, and then at the readers


def _copy(value: Any) -> Any:
    """Copies a value as a restore from a snapshot would."""
    return decode_rows(encode_rows([value]))[0]
