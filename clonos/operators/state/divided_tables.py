"""Division of tables of Python objects: the entries that a new task takes from an old one, and numbers in them.

Nothing here loads numpy or pyarrow, but for keys that are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from clonos.core.values.keys import Router, groups_of_task, key_of, state_keys
from clonos.operators.state.state_changes import Entries, user_keys
from clonos.operators.state.state_spec import EACH, Numbers, Place, StateSpec

if TYPE_CHECKING:
    from clonos.operators.state.keyed_state import StateImage

PLAIN: Final = frozenset({str, int, bytes})
"""Types of parts of keys whose groups are computed in columns."""

TUPLES_MIN: Final = 64
"""Keys below which columns do not pay."""


class OwnKeys:
    """Keys of one of several tasks: those of its groups."""

    def __init__(self, task: int, parallelism: int, max_parallelism: int) -> None:
        self.task, self.groups = task, groups_of_task(task, parallelism, max_parallelism)
        self.parallelism, self.max_parallelism = parallelism, max_parallelism
        self._router = Router(parallelism, max_parallelism)
        self._column_groups: Any = None

    def of(self, keys: list[Any], *columns: list[Any]) -> tuple[list[Any], ...]:
        """Returns what each column has for own keys; ``keys[i]`` is that of row ``i`` of them."""
        if len(keys) >= TUPLES_MIN and (parts := _columns_of(keys)) is not None:
            is_own = self.are_own(parts).tolist()
            return tuple([list(compress(column, is_own)) for column in columns])
        return tuple([parts[self.task] for parts in self._router.split(keys, *columns)])

    def are_own(self, columns: list[Any]) -> Any:
        """Returns which rows of key columns have own keys, as a numpy array."""
        if self._column_groups is None:
            from clonos.core.values.column_keys import KeyGroups

            self._column_groups = KeyGroups(self.max_parallelism)
        groups = self._column_groups.of(columns)
        return (groups >= self.groups.start) & (groups < self.groups.stop)


def _columns_of(keys: list[Any]) -> list[Any] | None:
    """Returns keys that are tuples of equal types as Arrow arrays; None for other keys.

    A key in one column is not a tuple, so the group of a tuple of one part is another.
    """
    first = keys[0]
    if type(first) is not tuple or len(first) < 2 or {*map(type, keys)} != {tuple} or {*map(len, keys)} != {len(first)}:
        return None
    columns = [list(map(itemgetter(place), keys)) for place in range(len(first))]
    for column in columns:
        classes = {*map(type, column)}
        if len(classes) > 1 or not classes <= PLAIN:
            return None
    import pyarrow

    try:
        return list(map(pyarrow.array, columns))
    except (OverflowError, pyarrow.ArrowInvalid, UnicodeEncodeError):  # an int above 64 bits, half of a character
        return None


def own_rows(spec: StateSpec, own: OwnKeys, keys: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
    """Returns those of the entries of a table by key, in columns, whose key of records is an own one."""
    first, *path = _path(spec.key_place)
    by = values if first else user_keys(keys)
    if path:
        by = [_at(each, path) for each in by]
    found_keys, found_values = own.of(by, keys, values)
    return found_keys, found_values


class OldState(Protocol):
    """State of an old task, of which a part moves to a new one. ``numbers`` and ``move`` follow what decides that."""

    @property
    def is_moving(self) -> bool:
        """Whether something moves."""

    @property
    def chosen(self) -> Any:
        """Numbers of the slots and rows that move, or keys of the entries."""

    @property
    def moved(self) -> Any:
        """Slots or rows with their new numbers, after ``place``."""

    def choose_own(self, own: OwnKeys) -> None:
        """Lets the part of own keys move."""

    def choose_none(self) -> None:
        """Lets none move."""

    def choose_referred(self, found: Sequence[Any]) -> None:
        """Lets those with some numbers move."""

    def choose_referring(self, numbers: Sequence[Numbers], targets: Any) -> None:
        """Lets those move whose numbers are in ``targets``, in a list or array."""

    def numbers(self, numbers: Numbers) -> Any:
        """Returns the numbers in what moves, as a list or array."""

    def place(self, image: StateImage, name: str, indexes: dict[str, Any]) -> None:
        """Gives slots or rows their numbers in an image. ``indexes`` find slots that are shared."""

    def move(self, renumber: Sequence[tuple[Numbers, Any]]) -> None:
        """Adds to the image what moves, with new numbers in it."""


class OldTable:
    """See ``OldState``. ``entries`` are those that move."""

    moved: Any = None

    def __init__(self, spec: StateSpec, entries: Entries) -> None:
        self.spec, self.entries = spec, entries
        self._new: Entries = {}

    @property
    def chosen(self) -> Any:
        """See ``OldState``."""
        return self.entries

    @property
    def is_moving(self) -> bool:
        """See ``OldState``."""
        return bool(self.entries)

    def choose_own(self, own: OwnKeys) -> None:
        """See ``OldState``."""
        entries = self.entries
        self.entries = dict(zip(*own_rows(self.spec, own, list(entries), list(entries.values())), strict=True))

    def choose_none(self) -> None:
        """See ``OldState``."""
        self.entries = {}

    def choose_referred(self, found: Sequence[list[int]]) -> None:
        """See ``OldState``."""
        numbers = {*chain.from_iterable(found)}
        self.entries = {key: value for key, value in self.entries.items() if key in numbers}

    def choose_referring(self, numbers: Sequence[Numbers], targets: Any) -> None:
        """See ``OldState``."""
        moving, found = {*targets}, {}
        for key, value in self.entries.items():
            if any(number in moving for each in numbers for number in _numbers(each.place, (key,), (value,))):
                found[key] = value
        self.entries = found

    def numbers(self, numbers: Numbers) -> list[int]:
        """See ``OldState``."""
        assert numbers == Numbers(numbers.of, numbers.place), f"{numbers}: a table has numbers as they are"
        return _numbers(numbers.place, self.entries, self.entries.values())

    def place(self, image: StateImage, name: str, indexes: dict[str, Any]) -> None:
        """See ``OldState``."""
        self._new = image.tables.setdefault(name, {})

    def move(self, renumber: Sequence[tuple[Numbers, Any]]) -> None:
        """See ``OldState``. Containers that have numbers are new."""
        entries = self.entries
        for numbers, ranks in renumber:
            entries = _renumbered(numbers.place, ranks.of, entries)
        for key, value in entries.items():
            self._new.setdefault(key, value)


class Ranks:
    """New numbers of a sequence for those that are left of it in an old task: their places among them, from 0 on."""

    def __init__(self, found: Sequence[Any], first: int) -> None:
        """``found``: lists or arrays of numbers; ``first``: the new number of the first one."""
        self.first = first
        self._array: Any = None
        if all(type(part) is list for part in found):
            self._of = {number: place for place, number in enumerate(sorted({*chain.from_iterable(found)}), first)}
        else:
            import numpy

            self._array = numpy.unique(numpy.concatenate([numpy.asarray(part, numpy.int64) for part in found]))
            self._of = {}

    def __len__(self) -> int:
        return len(self._of) if self._array is None else len(self._array)

    def of(self, number: int) -> int:
        """Returns the new number for an old one."""
        if self._array is not None and not self._of:
            self._of = dict(zip(self._array.tolist(), range(self.first, self.first + len(self._array)), strict=True))
        return self._of[number]

    def numbered(self, numbers: Any) -> Any:
        """Returns an array of new numbers for one of old ones."""
        return self._array.searchsorted(numbers) + self.first


def _path(place: Place) -> tuple[int, ...]:
    assert not isinstance(place, str), f"{place}: a table has no columns"
    return place


def _at(item: Any, path: Sequence[Any]) -> Any:
    for place in path:
        item = item[place]
    return item


# ------------------------------------------------------------------ numbers


def _numbers(place: Place, keys: Iterable[Any], values: Iterable[Any]) -> list[int]:
    """Returns the numbers at a place of entries."""
    first, *path = _path(place)
    items: Iterable[Any] = values if first else map(key_of, keys)
    for part in path:
        items = chain.from_iterable(items) if part == EACH else map(itemgetter(part), items)
    return [number for number in items if number is not None]


def _renumbered(place: Place, new: Callable[[int], int], entries: Entries) -> Entries:
    first, *path = _path(place)
    if first:
        return {key: _replaced(value, path, new) for key, value in entries.items()}
    keys = state_keys([_replaced(key_of(key), path, new) for key in entries])
    return dict(zip(keys, entries.values(), strict=True))


def _replaced(item: Any, path: Sequence[int], new: Callable[[int], int]) -> Any:
    if not path:
        return None if item is None else new(item)
    if path[0] == EACH:
        items = [_replaced(each, path[1:], new) for each in item]
    else:
        items = list(item)
        items[path[0]] = _replaced(items[path[0]], path[1:], new)
    return tuple(items) if type(item) is tuple else items
