"""Choices in front of an exchange: a batch loses the records that the step after it drops because of others in it.

Each batch is reduced for itself and passed on at once, so there is no state. What is left has the same result, in the
same order, wherever the step after cuts its batches. Batches that would hardly become smaller pass as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final

from clonos.core.values.value_limits import KEY_BYTES_MAX
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.operator import Operator, Times

PLACES_MAX: Final = 1 << 20
"""Keys of a batch, times the number of records to keep of each, from which on it passes as it is."""


class BatchChoice(Operator):
    """Base of these operators, for records with columns of a key."""

    takes_columns = True
    changes_rows = False

    rows_min: ClassVar[int] = 16
    """Rows of a batch below which it passes as it is."""

    share_max: ClassVar[float] = 0.8
    """Share of the records left above which batches pass as they are, up to the next barrier."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._pays = True
        self._given: Any = None  # the schema of the last batch
        self._types: Any = None  # of its keys; None if nothing can be chosen

    def prepare(self, checkpoint: int) -> None:
        self._pays = True  # a task that takes over begins here, and must make the same batches

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows(rows, times)

    def columns(self, batch: RecordBatch) -> None:
        if not self._pays or batch.num_rows < self.rows_min or not self._can_choose(batch):
            self.out.columns(batch)
            return
        import pyarrow

        from clonos.kernels.packed_keys import KeyIndex

        index = KeyIndex(self._types, batch.num_rows)
        numbers = index.add([batch.column(name) for name in self._keys])
        is_chosen = self._chosen(batch, numbers, len(index))
        left = batch.num_rows if is_chosen is None else int(is_chosen.sum())
        self._pays = left <= self.share_max * batch.num_rows
        if left == batch.num_rows or not self._pays:
            self.out.columns(batch)
        elif left:
            self.out.columns(batch.filter(pyarrow.array(is_chosen)))

    def _can_choose(self, batch: RecordBatch) -> bool:
        """Returns whether keys and ranks of a batch are as in rows, and no key is too long, which is an error."""
        if self._given is None or not self._given.equals(batch.schema):
            self._given, self._types = batch.schema, self._types_of(batch.schema)
        return self._types is not None and not any(_has_long(batch.column(name)) for name in self._keys)

    def _types_of(self, schema: Any) -> list[Any] | None:
        """Returns the types of the key for batches of a schema; None if nothing can be chosen of them."""
        from clonos.operators.columnar.running.stored_keys import are_keys, plain_type

        if not are_keys(schema, self._keys):
            return None
        return [plain_type(schema.field(name).type) for name in self._keys]

    @abstractmethod
    def _chosen(self, batch: RecordBatch, numbers: Any, count: int) -> Any:
        """Returns which records to pass on, as an array of bools; ``numbers``, below ``count``, stand for their keys.

        Returns None if they cannot be chosen.
        """


class FirstOfBatch(BatchChoice):
    """First record of each key."""

    def _chosen(self, batch: RecordBatch, numbers: Any, count: int) -> Any:
        from clonos.operators.columnar.choosing.first_places import Marks

        return Marks().first(numbers, count)


class LastInBatch(BatchChoice):
    """Last record of each key, by timestamp if there are timestamps, and by arrival."""

    def _chosen(self, batch: RecordBatch, numbers: Any, count: int) -> Any:
        import numpy

        from clonos.operators.columnar.choosing.first_places import Marks

        times = self.time_array(batch)
        if times is None:
            return Marks().last(numbers, count)
        latest = numpy.full(count, numpy.iinfo(numpy.int64).min)
        numpy.maximum.at(latest, numbers, times)
        places = numpy.flatnonzero(latest[numbers] == times)
        is_chosen = numpy.zeros(len(numbers), numpy.bool_)
        is_chosen[places[Marks().last(numbers[places], count)]] = True
        return is_chosen


class HighestOfBatch(BatchChoice):
    """The k highest records of each key, and each that is higher than all before it.

    These are needed for the order of results: that of the first records that are higher than the kth so far.
    """

    def __init__(self, keys: tuple[str, ...], by: str, k: int) -> None:
        super().__init__(keys)
        self._by, self._k = by, k

    def _types_of(self, schema: Any) -> list[Any] | None:
        from clonos.operators.columnar.choosing.cells import has_ranks
        from clonos.operators.columnar.running.stored_keys import plain_type

        if schema.names.count(self._by) != 1 or not has_ranks(plain_type(schema.field(self._by).type)):
            return None
        return super()._types_of(schema)

    def _chosen(self, batch: RecordBatch, numbers: Any, count: int) -> Any:
        import numpy

        from clonos.kernels.ranks import highest_rows
        from clonos.operators.columnar.choosing.cells import ranks_of

        if count * self._k > PLACES_MAX:
            return None
        ranks, has_rank = ranks_of(batch.column(self._by))
        if has_rank is None:
            return highest_rows(numbers, ranks, self._k, count)
        is_chosen = numpy.zeros(len(numbers), numpy.bool_)
        is_chosen[has_rank] = highest_rows(numbers[has_rank], ranks[has_rank], self._k, count)
        return is_chosen


def _has_long(column: Any) -> bool:
    """Returns whether a column has texts that may be too long for a key."""
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind):
        return _has_long(column.dictionary)
    if types.is_integer(kind) or types.is_temporal(kind) or types.is_boolean(kind) or column.nbytes < KEY_BYTES_MAX:
        return False
    longest = compute.max(compute.binary_length(column)).as_py() or 0  # None if all are null
    return bool(longest * 2 > KEY_BYTES_MAX)
