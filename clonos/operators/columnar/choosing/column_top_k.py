"""Top k of each key over columns: the records whose ranks a batch has changed, with their ranks.

State: a table of columns with the ranks of each key, highest first, and the numbers of their rows, and a row store. The
lowest rank of a full key lets most records out with one comparison. Those left are sorted by key and rank, and merged
into the state of all their keys at once. Results are those of ``ChangedRanks``, in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy
import pyarrow

from clonos.kernels.partition import gather
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.choosing.cells import rank_storage, ranks_of
from clonos.operators.columnar.choosing.first_places import Marks
from clonos.operators.columnar.column_form import ColumnOperator
from clonos.operators.columnar.running.stored_keys import plain, plain_type
from clonos.operators.operator import Scope
from clonos.operators.state.column_table import ColumnSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[Any]

KEYS_NAME: Final = "keys"
ROWS_NAME: Final = "rows"
NO_ROW: Final = -1


class Merged(NamedTuple):
    """New state of some keys, which are rows of all arrays.

    - ``ranks``, ``numbers``: by place; a new record has ``NO_ROW - 1 - n`` as its number if it is the candidate n.
    - ``counts``: number of places in use. ``first``: the first place that has changed.
    - ``removed``: numbers of rows that are no longer among the k.
    """

    ranks: IntArray
    numbers: IntArray
    counts: IntArray
    first: IntArray
    removed: IntArray


class ColumnTopK(ColumnOperator):
    """Operator of the k highest records of each key over columns."""

    def __init__(self, step: str, schema: Any, keys: tuple[str, ...], by: str, k: int, rank: str) -> None:
        """Creates the operator for batches of a schema, in which ``keys`` are the columns of the key."""
        self._step, self._keys, self._by, self._k, self._rank = step, keys, by, k, rank
        self._names: list[str] = schema.names
        types = tuple(plain_type(schema.field(name).type) for name in keys)
        self._storage = rank_storage(plain_type(schema.field(by).type))
        values = {"ranks": (self._storage, k), "numbers": (numpy.int64, k), "count": numpy.int64}
        self._spec = ColumnSpec(types, values, {"numbers": NO_ROW})
        self._marks = Marks()

    def open(self, scope: Scope) -> None:
        self._table = scope.state.column_table(f"{self._step}/{KEYS_NAME}", self._spec)
        self._store = scope.state.row_store(f"{self._step}/{ROWS_NAME}")

    # --- records

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        ranks, has_rank = ranks_of(batch.column(self._by))
        if has_rank is not None:
            batch, ranks = batch.filter(pyarrow.array(has_rank)), ranks[has_rank]
        table = self._table
        slots = table.slots([batch.column(name) for name in self._keys])
        values = table.values
        is_candidate = (values["count"][slots] < self._k) | (values["ranks"][slots, self._k - 1] < ranks)
        places = numpy.flatnonzero(is_candidate)
        if not len(places):
            return
        self._take(batch, slots[places], places, ranks[places])

    def _take(self, batch: RecordBatch, slots: IntArray, places: IntArray, ranks: IntArray) -> None:
        """Takes candidates: the records of a batch at ``places``, with their slots and ranks."""
        table, values = self._table, self._table.values
        touched, numbered = self._marks.numbered(slots, len(table))
        table.touch(touched)
        merged = self._merged(touched, numbered, ranks)
        self._store_rows(batch, places, merged.numbers)
        values["ranks"][touched], values["numbers"][touched] = merged.ranks, merged.numbers
        values["count"][touched] = merged.counts
        self._emit(merged)
        self._store.remove(merged.removed)

    def _merged(self, slots: IntArray, numbered: IntArray, ranks: IntArray) -> Merged:
        """Merges candidates, in the order of arrival, into the state of ``slots``: candidate i is of number i there."""
        k, values = self._k, self._table.values
        old, old_numbers, old_counts = (values[name][slots] for name in ("ranks", "numbers", "count"))
        # Candidates of a key side by side, highest first, of equal ranks the earlier one.
        order = numpy.lexsort((~ranks if ranks.dtype == numpy.int64 else -ranks, numbered))
        counts = numpy.bincount(numbered, minlength=len(slots))
        starts = numpy.cumsum(counts) - counts
        key_of = numbered[order]
        place = numpy.arange(len(order)) - starts[key_of]
        is_high = place < k
        order, key_of, place = order[is_high], key_of[is_high], place[is_high]
        new_ranks = ranks[order]
        # An old record has an old place, and goes back by one for each higher candidate.
        columns = numpy.arange(k)
        is_old = columns < old_counts[:, None]
        is_ahead = (old[key_of] >= new_ranks[:, None]) & is_old[key_of]
        new_places = place + is_ahead.sum(axis=1)
        behind = numpy.zeros((len(slots), k + 1), numpy.int64)  # candidates by the number of old records ahead
        numpy.add.at(behind, (key_of, new_places - place), 1)
        old_places = columns + numpy.cumsum(behind, axis=1)[:, :k]
        merged_ranks, merged_numbers = numpy.zeros_like(old), numpy.full_like(old_numbers, NO_ROW)
        stays = is_old & (old_places < k)
        rows, _ = numpy.nonzero(stays)
        merged_ranks[rows, old_places[stays]], merged_numbers[rows, old_places[stays]] = old[stays], old_numbers[stays]
        enters = new_places < k
        key_of, new_places, order = key_of[enters], new_places[enters], order[enters]
        merged_ranks[key_of, new_places] = new_ranks[enters]
        merged_numbers[key_of, new_places] = NO_ROW - 1 - order
        first = numpy.full(len(slots), k)
        numpy.minimum.at(first, key_of, new_places)
        return Merged(
            merged_ranks,
            merged_numbers,
            numpy.minimum(old_counts + counts, k),
            first,
            old_numbers[is_old & ~stays],
        )

    def _store_rows(self, batch: RecordBatch, places: IntArray, numbers: IntArray) -> None:
        """Stores the records that have entered, and puts the numbers of their rows in ``numbers``."""
        is_new = numbers < NO_ROW
        candidates = NO_ROW - 1 - numbers[is_new]
        arrived = numpy.sort(candidates)
        number_of = numpy.empty(len(places), numpy.int64)
        number_of[arrived] = self._store.append(plain_batch(gather(batch, places[arrived])))
        numbers[is_new] = number_of[candidates]

    def _emit(self, merged: Merged) -> None:
        places = numpy.arange(self._k)
        changed = (places >= merged.first[:, None]) & (places < merged.counts[:, None])
        _, ranks = numpy.nonzero(changed)
        self.out.columns(self._with_ranks(self._store.take(merged.numbers[changed]), ranks + 1))

    def _with_ranks(self, batch: RecordBatch, ranks: IntArray) -> Any:
        column = pyarrow.array(ranks)
        if self._rank in self._names:
            return batch.set_column(self._names.index(self._rank), pyarrow.field(self._rank, column.type), column)
        return batch.append_column(pyarrow.field(self._rank, column.type), column)


def ranked_schema(schema: Any, rank: str) -> Any | None:
    """Returns the columns of results with their ranks; None if they are not known."""
    if any(map(pyarrow.types.is_dictionary, schema.types)):
        return None
    found, ranks = plain(schema, schema.names), pyarrow.field(rank, pyarrow.int64())
    return found.set(found.get_field_index(rank), ranks) if rank in found.names else found.append(ranks)


def plain_batch(batch: RecordBatch) -> Any:
    """Returns the same columns with fields that may be null and nothing else in the schema."""
    return pyarrow.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)
