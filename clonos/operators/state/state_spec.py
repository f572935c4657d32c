"""Declared state: what a table, a row store or a value of a step is, and how a change of the width divides it.

An operator declares all of its state before the start, in ``Operator.state_specs``. A step cannot open other state.
When a vertex gets another number of tasks, task j of the new ones takes from each old task what its ``scope`` gives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Place = tuple[str | int, ...]
"""Place of something in state: of an entry ``KEY`` or ``VALUE`` and how to go on, such as ``(VALUE, EACH, 2)``, in
columns ``(KEY, number of the column)`` or ``(VALUE, name of the column)``."""

KEY: Final = "key"
VALUE: Final = "value"

EACH: Final = "*"
"""Part of a place: each item of a list or tuple."""

NUMBER: Final = "{}"
"""Part of the name of state of which there is one for each of several numbers, such as panes."""


class StateKind(StrEnum):
    """Form of state."""

    TABLE = "table"  # an entry per key, as Python objects
    COLUMNS = "columns"  # a slot per key, in columns
    ROWS = "rows"  # numbered rows, in columns


class StateScope(StrEnum):
    """How a change of the width divides state.

    An order of entries, slots and rows is kept: that of the old task, and of entries of several old tasks by the index
    of the old task first.
    """

    KEYED = "keyed"  # by the group of the key of an entry, slot or row
    REFERRED = "referred"  # with the entries, slots or rows that refer to it
    REFERRING = "referring"  # with the entry, slot or row that it refers to
    LOCAL = "local"  # partial results in front of an exchange: to the task of the group; equal keys are combined
    EQUAL = "equal"  # the same in all tasks at a barrier; otherwise the width cannot change
    MIN = "min"  # the least value of all tasks, for each task; none if a task has none
    MAX = "max"  # the greatest value of all tasks, for each task
    SUM = "sum"  # the sum of the values of all tasks, for task 0
    NEXT = "next"  # the number after those that order the entries of the step
    DEAL = "deal"  # entries are dealt to the tasks in turn
    UNION = "union"  # each task gets the entries of all tasks
    DRAINED = "drained"  # rows that wait: empty at the barrier of a change
    EMPTY = "empty"  # begins empty, as a cache does
    FIXED = "fixed"  # the width of the step cannot change, for ``reason``


@dataclass(frozen=True, slots=True)
class Reference:
    """Numbers in a table or in rows that name slots, rows or entries of other state of the step.

    - ``to``: name of that state; if both names have a ``NUMBER``, it is the same one. ``place``: where the numbers are.
    - ``first``: the number that stands for the first slot or row; lower ones stand for none.
    - ``shift``: bits below the number. ``flag``: the bit that is set where there is a number, which is in those below.
    """

    to: str
    place: Place
    first: int = 0
    shift: int = 0
    flag: int = 0


@dataclass(frozen=True, slots=True)
class StateSpec:
    """Declaration of a table, a row store or a value of a step.

    - ``name``: its name within the step. With ``NUMBER`` in it there is one of them for each of several numbers.
    - ``kind``, ``scope``: see there.
    - ``key``: where the key of the records is: in a table its place, such as ``(KEY, 1)`` of (instant, key); in columns
      the numbers of the key columns; in rows the names of the columns. () for the whole key.
    - ``references``: what refers to other state. ``numbers``: places of numbers that order entries: they are numbered
      anew, by the index of the old task first. All numbers of a step are counted together.
    - ``reason``: why the width of the step cannot change, if its scope is ``FIXED``: the end of a sentence.
    """

    name: str
    kind: StateKind
    scope: StateScope
    key: Place = ()
    references: tuple[Reference, ...] = ()
    numbers: tuple[Place, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        assert (self.scope is StateScope.FIXED) == bool(self.reason), f"{self.name}: the reason of its width"
        assert self.scope is not StateScope.REFERRING or self.references, f"{self.name}: what it refers to"
