"""Hooks of a replay: a function sees each record in front of each step, or each batch of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow

from clonos.operators.operator import Operator, TwoInputOperator
from clonos.operators.user_errors import Guard


class RecordAt(NamedTuple):
    """Record that a step is about to process. ``number``: of the task's input in the epoch, from 1, if it is known.

    ``key``: None in a step without keys. ``last``: of a batch of columns, which is then ``record``, the number of the
    last record of the input from which it may come; else None.
    """

    number: int | None
    step: str
    key: Any
    record: Any
    last: int | None = None


Hook = Callable[[RecordAt], None]


class BatchPlace(Protocol):
    """Chain that knows how many records came before the batch that is being processed."""

    @property
    def first(self) -> int: ...


def methods_for_batches(operator: Operator) -> Iterator[str]:
    """Yields the names of the methods by which a step processes batches as columns; other steps divide them."""
    if operator.takes_columns:
        yield "keyed_columns"
    if operator.requires_columns:
        yield "columns"
    for name in ("first_columns", "second_columns"):
        if getattr(type(operator), name, None) is not getattr(TwoInputOperator, name) and hasattr(operator, name):
            yield name


class HookedGuard(Guard):
    """Guard that calls a hook in front of each record. ``watch`` is called first."""

    __slots__ = ("_hook", "_chain")

    def watch(self, hook: Hook, chain: BatchPlace | None) -> None:
        """Calls the hook from now on. ``chain``: knows the numbers of the records, if this step has one for each."""
        self._hook, self._chain = hook, chain

    def run(
        self, consume: Callable[[Iterator[Any]], None], rows: list[Any], pairs: Sequence[Any] | None = None
    ) -> list[int]:
        """See ``Guard.run``."""
        seen = HookedRows(rows, pairs, self.step, self._hook, None if self._chain is None else self._chain.first)
        return super().run(consume, seen, pairs)  # type: ignore[arg-type]


class HookedRows:
    """Rows of a batch that call a hook before each of them is given."""

    def __init__(self, rows: list[Any], pairs: Sequence[Any] | None, step: str, hook: Hook, first: int | None) -> None:
        self._rows, self._pairs, self._step, self._hook, self._first = rows, pairs, step, hook, first

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[Any]:
        return HookedIterator(self)

    def at(self, index: int) -> RecordAt:
        """Returns where the row of an index is."""
        number = None if self._first is None else self._first + index + 1
        if self._pairs is not None and isinstance(self._pairs[index], tuple):
            key, record = self._pairs[index]
            return RecordAt(number, self._step, key, record)
        return RecordAt(number, self._step, None, self._rows[index])

    def give(self, index: int) -> Any:
        """Calls the hook, and returns the row of an index. A whole batch is not a record."""
        if not isinstance(self._rows[index], pyarrow.RecordBatch):
            self._hook(self.at(index))
        return self._rows[index]


class HookedIterator:
    """Iterator of ``HookedRows``, which says how many are left as that of a list does."""

    def __init__(self, rows: HookedRows) -> None:
        self._rows, self._index = rows, 0

    def __iter__(self) -> HookedIterator:
        return self

    def __next__(self) -> Any:
        if self._index >= len(self._rows):
            raise StopIteration
        index, self._index = self._index, self._index + 1
        return self._rows.give(index)

    def __length_hint__(self) -> int:
        return len(self._rows) - self._index
