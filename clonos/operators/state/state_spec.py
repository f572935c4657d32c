"""Declared state: what a table, a row store or a value of a step is, and how a change of the width divides it.

An operator declares all of its state before the start, in ``Operator.state_specs``. A step cannot open other state.
When a vertex gets another number of tasks, task j of the new ones takes from each old task what its ``scope`` gives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

    KEYED = "keyed"  # by the group of the key of an entry, which is its key or ``key_part`` of it
    REFERRED = "referred"  # with the slot or row of ``owner`` that refers to it
    LOCAL = "local"  # partial results in front of an exchange: to the task of the group; equal keys are combined
    EQUAL = "equal"  # the same in all tasks at a barrier; otherwise the width cannot change
    MIN = "min"  # the least value of all tasks, for each task
    MAX = "max"  # the greatest value of all tasks, for each task
    SUM = "sum"  # the sum of the values of all tasks, for task 0
    DEAL = "deal"  # entries are dealt to the tasks in turn
    UNION = "union"  # each task gets the entries of all tasks
    DRAINED = "drained"  # rows that wait: empty at the barrier of a change
    EMPTY = "empty"  # begins empty, as a cache does
    FIXED = "fixed"  # the width of the step cannot change, for ``reason``


@dataclass(frozen=True, slots=True)
class StateSpec:
    """Declaration of a table, a row store or a value of a step.

    - ``name``: its name within the step. With ``is_numbered`` there is one of them for each of several numbers, such as
      panes: the number follows the name.
    - ``kind``, ``scope``: see there.
    - ``key_part``: the part of the key of an entry that is the key of its records, such as 1 of (instant, key); None
      for the whole key. In columns: the number of leading key columns that are the key of the records; None for all.
    - ``owner``: name of the state that refers to this one, if its scope is ``REFERRED``.
    - ``reason``: why the width of the step cannot change, if its scope is ``FIXED``: the end of a sentence.
    """

    name: str
    kind: StateKind
    scope: StateScope
    is_numbered: bool = False
    key_part: int | None = None
    owner: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        assert (self.scope is StateScope.REFERRED) == bool(self.owner), f"{self.name}: its owner"
        assert (self.scope is StateScope.FIXED) == bool(self.reason), f"{self.name}: the reason of its width"
