"""Top k of each key over columns: the new list of a key after each record that changes it.

The state is that of ``ColumnTopK``. The lowest rank of a full key lets most records out with one comparison. Those left
are numbers, and no objects, until their lists leave in columns. Results are those of ``TopK``, in the same order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy
import pyarrow

from clonos.kernels.partition import gather
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.choosing.column_top_k import NO_ROW, ColumnTopK, plain_batch
from clonos.operators.columnar.row_forms import RECORDS, TotalForm, metadata_of
from clonos.operators.columnar.running.stored_keys import plain_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[Any]

ENTRIES_MAX: Final = 1 << 16
"""Records in the lists of one batch of results, if it has more than one list."""


class Lists(NamedTuple):
    """Lists after each of the records that have changed one, and the state of all keys after them.

    Numbers are those of rows; the candidate n has ``NO_ROW - 1 - n``.

    - ``entered``: the candidates that have changed a list, in the order of arrival.
    - ``numbers``: the numbers of the records of all lists. ``ends``: where each list ends in them.
    - ``ranks``, ``after``, ``counts``: ranks and numbers of each key by place, and how many these are.
    """

    entered: IntArray
    numbers: IntArray
    ends: IntArray
    ranks: IntArray
    after: IntArray
    counts: IntArray


class ColumnLists(ColumnTopK):
    """Operator of the lists of the k highest records of each key over columns."""

    def __init__(self, step: str, schema: Any, keys: tuple[str, ...], by: str, k: int) -> None:
        """Creates the operator for batches of a schema, in which ``keys`` are the columns of the key."""
        super().__init__(step, schema, keys, by, k, "")
        self._metadata = _metadata(keys)

    def _take(self, batch: RecordBatch, slots: IntArray, places: IntArray, ranks: IntArray) -> None:
        touched, numbered = self._marks.numbered(slots, len(self._table))
        self._table.touch(touched)
        values = self._table.values
        before = values["numbers"][touched]
        lists = self._inserted(touched, numbered, ranks)
        if not len(lists.entered):
            return
        arrived = places[lists.entered]
        number_of = numpy.empty(len(places), numpy.int64)
        number_of[lists.entered] = stored = self._store.append(plain_batch(gather(batch, arrived)))
        after = _numbered(lists.after, number_of)
        values["ranks"][touched], values["numbers"][touched], values["count"][touched] = (
            lists.ranks,
            after,
            lists.counts,
        )
        numbers = _numbered(lists.numbers, number_of)
        for part, begin, end in _parts(lists.ends):
            ends = lists.ends[part] - begin
            self.out.columns(self._results(gather(batch, arrived[part]), ends, numbers[begin:end]))
        held = numpy.concatenate((before[before != NO_ROW], stored))
        self._store.remove(numpy.setdiff1d(held, after[after != NO_ROW], assume_unique=True))

    def _inserted(self, slots: IntArray, numbered: IntArray, ranks: IntArray) -> Lists:
        """Inserts candidates, in the order of arrival, into the lists of ``slots``; ``numbered`` says into which."""
        k, values = self._k, self._table.values
        counts = values["count"][slots].tolist()
        lowered, held = (
            [row[:count] for row, count in zip(rows.tolist(), counts, strict=True)]
            for rows in (_lowered(values["ranks"][slots]), values["numbers"][slots])
        )
        entered, numbers, ends = list[int](), list[int](), list[int]()
        for candidate, (key, rank) in enumerate(zip(numbered.tolist(), _lowered(ranks).tolist(), strict=True)):
            place = bisect_right(lowered[key], rank)  # after equal ranks, which have come earlier
            if place >= k:
                continue
            lowered[key].insert(place, rank)
            held[key].insert(place, NO_ROW - 1 - candidate)
            if len(held[key]) > k:
                lowered[key].pop()
                held[key].pop()
            entered.append(candidate)
            numbers += held[key]
            ends.append(len(numbers))
        sizes = numpy.array(list(map(len, held)), numpy.int64)
        has_record = numpy.arange(k) < sizes[:, None]
        new_ranks, after = numpy.zeros((len(slots), k), self._storage), numpy.full((len(slots), k), NO_ROW)
        new_ranks[has_record] = _lowered(numpy.array(list(chain.from_iterable(lowered)), self._storage))
        after[has_record] = list(chain.from_iterable(held))
        arrived, listed, bounds = (numpy.array(each, numpy.int64) for each in (entered, numbers, ends))
        return Lists(arrived, listed, bounds, new_ranks, after, sizes)

    def _results(self, batch: RecordBatch, ends: IntArray, numbers: IntArray) -> Any:
        """Returns the lists after the records of a batch."""
        records = self._store.take(numbers)
        structs = pyarrow.StructArray.from_arrays(records.columns, fields=list(records.schema))
        offsets = pyarrow.array(numpy.concatenate(([0], ends)), pyarrow.int32())
        time = self.timestamp_column
        names = self._keys if time is None or time.name in self._keys else (*self._keys, time.name)
        columns = {name: batch.column(name) for name in names}
        columns[RECORDS] = pyarrow.ListArray.from_arrays(offsets, structs)
        fields = [pyarrow.field(name, column.type) for name, column in columns.items()]
        return pyarrow.RecordBatch.from_arrays(list(columns.values()), schema=pyarrow.schema(fields, self._metadata))


def list_fields(schema: Any, keys: tuple[str, ...], names: tuple[str, ...]) -> Any:
    """Returns the columns of results, of which ``names`` are those of records; None if they are not known."""
    if any(pyarrow.types.is_dictionary(schema.field(name).type) for name in names):
        return None
    record = pyarrow.struct([pyarrow.field(each.name, plain_type(each.type)) for each in schema])
    fields = [pyarrow.field(name, schema.field(name).type) for name in names]
    return pyarrow.schema([*fields, pyarrow.field(RECORDS, pyarrow.list_(record))], _metadata(keys))


def _metadata(keys: tuple[str, ...]) -> dict[bytes, bytes]:
    return metadata_of(TotalForm(keys, (RECORDS,), True))


def _lowered(ranks: IntArray) -> IntArray:
    """Returns numbers that ascend where ranks descend; of these, the ranks."""
    return ~ranks if ranks.dtype == numpy.int64 else -ranks


def _numbered(numbers: IntArray, number_of: IntArray) -> IntArray:
    """Returns numbers of rows, in which those of candidates are what ``number_of`` has for them."""
    is_new = numbers < NO_ROW
    numbers[is_new] = number_of[NO_ROW - 1 - numbers[is_new]]
    return numbers


def _parts(ends: IntArray) -> Iterator[tuple[slice, int, int]]:
    """Yields lists that leave together, and where their records begin and end."""
    first, begin = 0, 0
    while first < len(ends):
        after = max(first + 1, int(numpy.searchsorted(ends, begin + ENTRIES_MAX, "right")))
        end = int(ends[after - 1])
        yield slice(first, after), begin, end
        first, begin = after, end
