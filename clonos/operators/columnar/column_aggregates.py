"""Aggregates over columns: which columns of state an aggregate has per key, and how batches and panes go into them.

A ``ColumnAggregate`` is made for the types of the first batch. Its state columns begin with zeros; ``slots`` are places
in them, several of which may be equal. Values that are null do not count. Only code for columns imports this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy
import pyarrow
from pyarrow import types

from clonos.kernels.arrays import arrow_of
from clonos.kernels.record_batch import RecordBatch
from clonos.kernels.words import integers_of, sums_of_words, words_of
from clonos.operators.columnar.running.stored_keys import plain_cells

State = Mapping[str, Any]
"""Columns of state by name, as numpy arrays."""

Slots = Any
"""Numpy array of places in the columns of state."""

INT_MAX: Final = (1 << 63) - 1
EXACT_FLOAT_MAX: Final = 1 << 53
"""Bound of ints that a float represents exactly."""


class ColumnAggregate(ABC):
    """Base of the aggregates over columns. ``of`` is the column that it reads, None without one."""

    fields: ClassVar[tuple[str, ...]] = ()

    reads_records: ClassVar[bool] = False
    """Whether it reads all columns."""

    adds_states: ClassVar[bool] = False
    """Whether ``add_states`` gives the same as ``add`` with the records of the states, in any order."""

    def __init__(self, name: str, of: str | None) -> None:
        self.name, self.of = name, of
        self._names = [f"{name}.{field}" for field in self.fields]

    @property
    def logs(self) -> tuple[str, ...]:
        """Names of the logs that it has among the columns of state."""
        return ()

    @abstractmethod
    def dtypes(self) -> dict[str, Any]:
        """Returns the numpy type of each column of state."""

    def cells(self, batch: RecordBatch) -> Any:
        """Returns what ``add`` gets of a batch."""
        return None if self.of is None else plain_cells(batch.column(self.of))

    @abstractmethod
    def add(self, state: State, slots: Slots, cells: Any) -> None:
        """Adds the cells of an Arrow array, or one record for each slot if it reads no column."""

    def running(self, state: State, slots: Slots, cells: Any) -> dict[str, Any] | None:
        """Adds as ``add`` does, and returns a state for ``results`` after each record; None if it cannot itself."""
        return None

    @abstractmethod
    def merge(self, state: State, slots: Slots, other: State) -> None:
        """Adds other states, one per slot: the records of ``other`` come later. No slot is there twice."""

    def add_states(self, state: State, slots: Slots, other: State) -> None:
        """Adds other states, one per slot, as ``merge`` does; a slot may be there several times."""
        self.merge(state, slots, other)

    @abstractmethod
    def results(self, state: State, slots: Slots) -> Any:
        """Returns the results of some slots as an Arrow array."""

    def misfits(self, state: State, slots: Slots) -> Any | None:
        """Returns which slots have a result that does not fit its type, as a mask; None if all fit."""
        return None

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        """Returns the accumulators that the aggregate over rows has for some slots."""
        found: list[Any] = self.results(state, slots).to_pylist()
        return found


class CountColumn(ColumnAggregate):
    """Number of records."""

    adds_states: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("n",)

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: numpy.int64}

    def add(self, state: State, slots: Slots, cells: Any) -> None:
        counts = state[self._names[0]]
        if len(counts) <= len(slots):
            counts += numpy.bincount(slots, minlength=len(counts))
        else:
            numpy.add.at(counts, slots, 1)

    def merge(self, state: State, slots: Slots, other: State) -> None:
        state[self._names[0]][slots] += other[self._names[0]]

    def add_states(self, state: State, slots: Slots, other: State) -> None:
        numpy.add.at(state[self._names[0]], slots, other[self._names[0]])

    def results(self, state: State, slots: Slots) -> Any:
        return arrow_of(state[self._names[0]][slots])


class OfColumn(ColumnAggregate):
    """Base of aggregates of a column of fixed width, which the state has as numbers of one numpy type."""

    def __init__(self, name: str, of: str, type_: Any) -> None:
        super().__init__(name, of)
        self.type = type_
        self._storage = _storage_of(type_)

    def add(self, state: State, slots: Slots, cells: Any) -> None:
        if cells.null_count:
            slots, cells = slots[cells.is_valid().to_numpy(zero_copy_only=False)], cells.drop_null()
        if len(slots):
            self._add(state, slots, self._numbers(cells))

    def _numbers(self, cells: Any) -> Any:
        """Returns the cells of an Arrow array without nulls as numbers."""
        return numbers_of(cells, self._storage)

    @abstractmethod
    def _add(self, state: State, slots: Slots, numbers: Any) -> None: ...


class SumColumn(OfColumn):
    """Sum of ints; 0 without a number. The sum of a slot is ``sum`` + ``carry`` * 2**64, which never wraps.

    Its result has 64 bits: one with a carry does not fit.
    """

    adds_states: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("sum", "carry")

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: self._storage, self._names[1]: numpy.int32}

    def has_room_for(self, state: State, slots: Slots, numbers: Any) -> bool:
        """Returns whether ``sum`` has surely room for these numbers, so that no carry changes."""
        growth = largest_of(numbers) * len(numbers)
        return growth <= INT_MAX and growth + largest_of(state[self._names[0]][slots]) <= INT_MAX

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        if self.has_room_for(state, slots, numbers):
            numpy.add.at(state[self._names[0]], slots, numbers)
            return
        distinct, totals = sums_of_words(slots, words_of(numbers))
        words = self._words(state, distinct)
        totals["low"] += words["low"]
        totals["high"] += words["high"] + (totals["low"] < words["low"])
        sums = totals["low"].view(numpy.int64)
        state[self._names[0]][distinct], state[self._names[1]][distinct] = sums, totals["high"] + (sums < 0)

    def _words(self, state: State, slots: Slots) -> Any:
        words = words_of(state[self._names[0]][slots])
        words["high"] += state[self._names[1]][slots]
        return words

    def merge(self, state: State, slots: Slots, other: State) -> None:
        self.add_states(state, slots, other)

    def add_states(self, state: State, slots: Slots, other: State) -> None:
        if len(slots):
            self._add_sums(state, slots, other)

    def _add_sums(self, state: State, slots: Slots, other: State) -> None:
        SumColumn._add(self, state, slots, other[self._names[0]])
        if (carries := other[self._names[1]]).any():
            numpy.add.at(state[self._names[1]], slots, carries)

    def results(self, state: State, slots: Slots) -> Any:
        return arrow_of(state[self._names[0]][slots])

    def misfits(self, state: State, slots: Slots) -> Any | None:
        carries = state[self._names[1]][slots]
        return carries != 0 if carries.any() else None

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        return integers_of(self._words(state, slots))


class MeanColumn(SumColumn):
    """Arithmetic mean of ints; null without a number."""

    fields: ClassVar[tuple[str, ...]] = ("sum", "carry", "n")

    def dtypes(self) -> dict[str, Any]:
        return {**super().dtypes(), self._names[2]: numpy.int64}

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        super()._add(state, slots, numbers)
        numpy.add.at(state[self._names[2]], slots, 1)

    def _add_sums(self, state: State, slots: Slots, other: State) -> None:
        super()._add_sums(state, slots, other)
        numpy.add.at(state[self._names[2]], slots, other[self._names[2]])

    def results(self, state: State, slots: Slots) -> Any:
        sums, counts = state[self._names[0]][slots], state[self._names[2]][slots]
        is_empty = counts == 0
        means = numpy.divide(sums, numpy.where(is_empty, 1, counts))
        is_large = (sums > EXACT_FLOAT_MAX) | (sums < -EXACT_FLOAT_MAX) | (state[self._names[1]][slots] != 0)
        places = numpy.flatnonzero(is_large)
        if len(places):
            means[places] = [total / count for total, count in self.accumulators(state, slots[places])]
        return arrow_of(means, is_empty)

    def misfits(self, state: State, slots: Slots) -> Any | None:
        return None

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        return list(zip(super().accumulators(state, slots), state[self._names[2]][slots].tolist(), strict=True))


class ValueColumn(OfColumn):
    """Base of aggregates that keep one of the values; null without one."""

    fields: ClassVar[tuple[str, ...]] = ("value", "has")

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: self._storage, self._names[1]: numpy.bool_}

    def merge(self, state: State, slots: Slots, other: State) -> None:
        has = other[self._names[1]]
        if has.any():
            self._add(state, slots[has], other[self._names[0]][has])

    def results(self, state: State, slots: Slots) -> Any:
        value, has = state[self._names[0]][slots], state[self._names[1]][slots]
        return _as_type(value, ~has, self.type)


class ExtremeColumn(ValueColumn):
    """Smallest or largest value. A nan is the result only if there is nothing else."""

    adds_states: ClassVar[bool] = True

    def __init__(self, name: str, of: str, type_: Any, *, is_largest: bool) -> None:
        super().__init__(name, of, type_)
        self.is_largest = is_largest
        is_float = self._storage is numpy.float64
        self._choose = (
            (numpy.fmax if is_float else numpy.maximum) if is_largest else (numpy.fmin if is_float else numpy.minimum)
        )
        self._zero = (0.0 if is_largest else -0.0) if is_float else None  # which of both zeros is chosen

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        values, has = state[self._names[0]], state[self._names[1]]
        is_new = ~has[slots]
        if is_new.any():
            values[slots[is_new]] = numbers[is_new]
            has[slots[is_new]] = True
        zeros = self._zeros(values, slots, numbers) if self._zero is not None else None
        self._choose.at(values, slots, numbers)
        if zeros is not None:
            values[zeros[values[zeros] == 0]] = self._zero

    def _zeros(self, values: Any, slots: Slots, numbers: Any) -> Any:
        """Returns the slots that have the chosen zero or get it; numpy takes 0.0 and -0.0 for one number."""
        is_zero = numbers == 0
        if not is_zero.any():
            return None
        at = slots[is_zero]
        pairs = (numbers[is_zero], values[at])
        return at[numpy.any([(each == 0) & (numpy.signbit(each) != self.is_largest) for each in pairs], axis=0)]


class FirstColumn(ValueColumn):
    """First value by arrival."""

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        values, has = state[self._names[0]], state[self._names[1]]
        is_new = ~has[slots]
        places = slots[is_new]
        values[places[::-1]] = numbers[is_new][::-1]  # of equal places the last one assigned stays
        has[places] = True


class LastColumn(ValueColumn):
    """Last value by arrival."""

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        state[self._names[0]][slots] = numbers  # of equal places the last one assigned stays
        state[self._names[1]][slots] = True


def largest_of(numbers: Any) -> int:
    """Returns the largest absolute value of integers, 0 without one."""
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) if len(numbers) else 0


def _storage_of(type_: Any) -> Any:
    return numpy.float64 if types.is_floating(type_) else numpy.int64


def numbers_of(cells: Any, storage: Any) -> Any:
    """Returns the cells of an Arrow array without nulls as numbers."""
    if types.is_boolean(cells.type):
        return cells.cast(pyarrow.uint8()).to_numpy().astype(storage)
    if types.is_timestamp(cells.type):
        cells = cells.view(pyarrow.int64())
    elif types.is_date32(cells.type):
        cells = cells.view(pyarrow.int32())
    return cells.to_numpy().astype(storage, copy=False)


def _as_type(numbers: Any, is_null: Any, type_: Any) -> Any:
    """Returns numbers of the state as an Arrow array of the type of the column."""
    if types.is_timestamp(type_):
        return arrow_of(numbers, is_null).view(type_)
    if types.is_date32(type_):
        return arrow_of(numbers.astype(numpy.int32), is_null).view(type_)
    if types.is_boolean(type_):
        return arrow_of(numbers != 0, is_null)
    return arrow_of(numbers, is_null).cast(type_)
