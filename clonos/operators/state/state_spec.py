"""Declared state: what a table, a row store or a position of a step is, and how a change of the width divides it.

An operator declares all of its state before the start, in ``Operator.state_specs``. A step cannot open other state.
When a vertex gets another number of tasks, task j of the new ones takes from each old task what its ``scope`` gives it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

ANY: Final = "\0"
"""Stands in the name of a state for a number or a name, so that there may be several of them."""

KEY_COLUMN: Final = ""
"""Place of the only key column of a table among the names of its columns; of several, its number from 0 on follows."""

EACH: Final = -1
"""Place that stands for each item of a list or tuple."""

Place = tuple[int, ...] | str
"""Where state has something: in a table the path to it in an entry (key, value); in columns the name of the column."""

NO_KEY: Final = "its records have no key, so that nothing tells which task needs which of its state"
"""Reason why the width of a step without a key cannot change."""


class StateKind(StrEnum):
    """Form of state."""

    TABLE = "table"  # an entry per key, as Python objects
    COLUMNS = "columns"  # a slot per key, in columns
    ROWS = "rows"  # numbered rows, in columns
    POSITION = "position"  # of a source, beside the tables


class StateScope(StrEnum):
    """How a change of the width divides state.

    An order of entries, slots and rows is kept: that of the old task, and of entries of several old tasks by the index
    of the old task first. Where several old tasks have an entry of equal key, the first of them counts.
    """

    KEYED = "keyed"  # by the group of the key of the records that an entry is of
    REFERRED = "referred"  # with each entry, slot or row of ``owner`` whose numbers name it
    REFERRING = "referring"  # with the entry, slot or row of ``owner`` that its own numbers name
    NEXT = "next"  # the number that follows those of the sequence ``owner`` in the task
    EQUAL = "equal"  # the same in all tasks at a barrier; otherwise the width cannot change
    FIRST = "first"  # those of the first old task, for each task: the tasks may differ in the order of what made it
    MIN = "min"  # for each key of an entry the least value of the tasks that have one, for each task
    MAX = "max"  # for each key of an entry the greatest value of the tasks that have one, for each task
    SUM = "sum"  # for each key of an entry the sum of the values of all tasks, for task 0
    DEAL = "deal"  # entries, or the splits of a position, are dealt to the tasks in turn
    UNION = "union"  # each task gets the entries of all tasks
    DRAINED = "drained"  # what waits: empty at the barrier of a change; otherwise the width cannot change
    TIMES = "times"  # states of ``SourceWatermarks``: the least of all tasks, for each task
    EMPTY = "empty"  # begins empty, as a cache does
    FIXED = "fixed"  # the width of the step cannot change, for ``reason``


class Encoding(StrEnum):
    """Kind of the bytes in the entries of a table, which the function that redacts a record cannot be given."""

    NONE = "none"  # values of the user, if there are any
    INSTANTS = "instants"  # encoded watermarks, which have no values of records
    OUTCOME = "outcome"  # the encoded outcome of a call of the step
    RESUMED = "resumed"  # encoded values that a resume reads, and no replay
    OPAQUE = "opaque"  # encoded values that a replay reads


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers in state that a change of the width gives anew.

    - ``of``: the state of the step whose slots or rows they are, which may be this state; any other name is that of a
      sequence, such as that of arrival. Numbers of a sequence are given from 0 on by (old index of the task, old
      number), and equal ones of an old task stay equal, in all state of the step that has the sequence.
    - ``place``: where they are. Several rows or slots of one entry may be there; None in a table is no number.
    - ``first``: the number of the first row or slot. Lower numbers stand for none and stay.
    - ``first_bit``, ``bits``: the part of an integer that they are. ``if_bit``: without this bit there is none.
    """

    of: str
    place: Place
    first: int = 0
    first_bit: int = 0
    bits: int = 64
    if_bit: int | None = None


@dataclass(frozen=True, slots=True)
class StateSpec:
    """Declaration of a table, a row store or the position of a step.

    - ``name``: its name within the step. ``ANY`` in it stands for a number, such as that of a pane, or for a name
      of a descriptor, aggregate or step.
    - ``kind``, ``scope``: see there.
    - ``key_place``: where an entry of a table has the key of its records, such as (0, 1) for the key of an entry
      (instant, key).
    - ``key_columns``: what has the key of its records in columns: the number of leading key columns, None for all; of
      rows the names of columns.
    - ``numbers``: where it has numbers that are given anew.
    - ``owner``: the state or sequence of the step that decides, if its scope is ``REFERRED``, ``REFERRING`` or
      ``NEXT``. Names with ``ANY`` have the same number in its place.
    - ``reason``: why the width of the step cannot change, if its scope is ``FIXED``: the end of a sentence.
    - ``is_small``: whether a table is never frozen but encoded by the barrier.
    - ``deletes_empty``: whether an empty container in a table is deleted at the next snapshot.
    - ``encoding``, ``encoded_place``: what is encoded in a table, and the path to it in an entry (key, value); () for
      the entry itself.
    """

    name: str
    kind: StateKind
    scope: StateScope
    key_place: Place = (0,)
    key_columns: int | tuple[str, ...] | None = None
    numbers: tuple[Numbers, ...] = ()
    owner: str = ""
    reason: str = ""
    is_small: bool = False
    deletes_empty: bool = False
    encoding: Encoding = Encoding.NONE
    encoded_place: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        has_owner = self.scope in (StateScope.REFERRED, StateScope.REFERRING, StateScope.NEXT)
        assert has_owner == bool(self.owner), f"{self.name}: its owner"
        assert (self.scope is StateScope.FIXED) == bool(self.reason), f"{self.name}: the reason of its width"
        assert self.name.count(ANY) <= 1, f"{self.name}: it stands for one number or name"

    def named(self, part: int | str) -> StateSpec:
        """Returns the declaration of one of several states."""
        name, owner = self.name.replace(ANY, str(part)), self.owner.replace(ANY, str(part))
        numbers = tuple(replace(each, of=each.of.replace(ANY, str(part))) for each in self.numbers)
        return replace(self, name=name, owner=owner, numbers=numbers)

    def fixed(self, reason: str) -> StateSpec:
        """Returns the declaration of the same state in a step whose width cannot change."""
        return replace(self, scope=StateScope.FIXED, reason=reason, owner="")

    def by_key(self, is_keyed: bool) -> StateSpec:
        """Returns the declaration of the same state in a step whose records have a key, or else have none."""
        return self if is_keyed else self.fixed(NO_KEY)


def small(
    name: str,
    scope: StateScope,
    owner: str = "",
    *,
    encoding: Encoding = Encoding.NONE,
    encoded_place: tuple[int, ...] = (1,),
) -> StateSpec:
    """Returns the declaration of a small table, whose entries are values of the task."""
    encoded: dict[str, Any] = {"encoding": encoding, "encoded_place": encoded_place}
    return StateSpec(name, StateKind.TABLE, scope, owner=owner, is_small=True, **encoded)


def keyed(name: str, key_place: Place = (0,), numbers: tuple[Numbers, ...] = ()) -> StateSpec:
    """Returns the declaration of a table with an entry for each key of the records."""
    return StateSpec(name, StateKind.TABLE, StateScope.KEYED, key_place=key_place, numbers=numbers)
