"""The highest records of each key in columns.

State: a table of columns with the ranks of each key, highest first, and the numbers of their rows, and a row store. The
lowest rank of a full key lets most records out with one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.kernels.partition import gather
from clonos.kernels.ranks import NO_ROW, Inserted, insert_highest
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.choosing.cells import ranks_of
from clonos.operators.columnar.choosing.first_places import Marks
from clonos.operators.columnar.row_forms import RECORDS, TotalForm, metadata_of
from clonos.operators.columnar.running.stored_keys import plain, plain_type
from clonos.operators.kinds.column_batch import ColumnBatch, filtered, plain_batch
from clonos.operators.operator import Operator
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import Numbers, StateKind, StateScope, StateSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[Any]

HIGHEST_ROWS: Final = StateSpec("rows", StateKind.ROWS, StateScope.REFERRED, owner="keys")
HIGHEST: Final = StateSpec(
    HIGHEST_ROWS.owner, StateKind.COLUMNS, StateScope.KEYED, numbers=(Numbers(HIGHEST_ROWS.name, "numbers"),)
)

ENTRIES_MAX: Final = 1 << 16
"""Records in the lists of one batch of results, if it has more than one list."""


class ColumnHighest:
    """The highest records of each key."""

    def __init__(self, state: StepState, keys: dict[str, Any], by: str, k: int) -> None:
        """``keys``: the columns of the key with their types."""
        self._keys, self._by, self._k = tuple(keys), by, k
        values = {"ranks": (numpy.int64, k), "numbers": (numpy.int64, k), "count": numpy.int64}
        spec = ColumnSpec(tuple(keys.values()), values, {"numbers": NO_ROW})
        self._table = state.column_table(HIGHEST, spec)
        self._store = state.row_store(HIGHEST_ROWS)
        self._marks = Marks()

    def pass_lists(self, operator: Operator, batch: ColumnBatch) -> None:
        """See ``Highest``."""
        candidates, count = self._candidates(batch), max(1, ENTRIES_MAX // self._k)
        for first in range(0, len(candidates[0]), count):
            places, slots, ranks = (each[first : first + count] for each in candidates)
            found = self._inserted(slots, ranks, has_lists=True)
            entered = numpy.flatnonzero(found.above < self._k)
            records = gather(batch.batch, places[entered])
            number_of = numpy.empty(len(places), numpy.int64)
            number_of[entered] = self._store.append(plain_batch(records))
            distinct, _ = self._marks.numbered(slots, len(self._table))
            numbers = self._table.values["numbers"]
            numbers[distinct] = _numbered(numbers[distinct], number_of)
            if len(entered):
                results = self._lists(operator, records, found.size[entered], _numbered(found.lists, number_of))
                self._store.remove(_numbered(found.left[found.left != NO_ROW], number_of))
                operator.out.columns(results)

    def pass_ranks(self, operator: Operator, batch: ColumnBatch, name: str) -> None:
        """See ``Highest``."""
        places, slots, ranks = self._candidates(batch)
        if not len(places):
            return
        found, values = self._inserted(slots, ranks, has_lists=False), self._table.values
        distinct, numbered = self._marks.numbered(slots, len(self._table))
        first = numpy.full(len(distinct), self._k)
        numpy.minimum.at(first, numbered, found.above)
        numbers, ranks_of_key = values["numbers"][distinct], numpy.arange(self._k)
        entered = numpy.sort(NO_ROW - 1 - numbers[numbers < NO_ROW])
        number_of = numpy.empty(len(places), numpy.int64)
        number_of[entered] = self._store.append(plain_batch(gather(batch.batch, places[entered])))
        values["numbers"][distinct] = numbers = _numbered(numbers, number_of)
        has_changed = (ranks_of_key >= first[:, None]) & (ranks_of_key < values["count"][distinct][:, None])
        _, changed = numpy.nonzero(has_changed)
        results = _with_ranks(self._store.take(numbers[has_changed]), name, changed + 1)
        self._store.remove(found.left[found.left > NO_ROW])
        operator.out.columns(results)

    def _candidates(self, batch: ColumnBatch) -> tuple[IntArray, IntArray, IntArray]:
        """Returns the places, slots and ranks of the records that may be among the highest."""
        keys, (ranks, has_rank) = batch.keys, ranks_of(batch.batch.column(self._by))
        places = numpy.arange(len(ranks))
        if has_rank is not None:
            keys, places, ranks = filtered(keys, has_rank), places[has_rank], ranks[has_rank]
        slots, values = self._table.slots(keys), self._table.values
        found = numpy.flatnonzero((values["count"][slots] < self._k) | (values["ranks"][slots, self._k - 1] < ranks))
        return places[found], slots[found], ranks[found]

    def _inserted(self, slots: IntArray, ranks: IntArray, *, has_lists: bool) -> Inserted:
        """Inserts candidates into the table, where they have the numbers of candidates until they are stored."""
        self._table.touch(slots)
        values = self._table.values
        arrays = values["ranks"], values["numbers"], values["count"]
        return insert_highest(*arrays, slots, ranks, has_lists=has_lists)

    def _lists(self, operator: Operator, batch: RecordBatch, sizes: IntArray, numbers: IntArray) -> Any:
        """Returns the lists after the records of a batch."""
        records, keys = self._store.take(numbers), self._keys
        structs = pyarrow.StructArray.from_arrays(records.columns, fields=list(records.schema))
        offsets = pyarrow.array(numpy.concatenate(([0], numpy.cumsum(sizes))), pyarrow.int32())
        time = operator.timestamp_column
        names = keys if time is None or time.name in keys else (*keys, time.name)
        columns = {name: batch.column(name) for name in names}
        columns[RECORDS] = pyarrow.ListArray.from_arrays(offsets, structs)
        fields = [pyarrow.field(name, column.type) for name, column in columns.items()]
        return pyarrow.RecordBatch.from_arrays(list(columns.values()), schema=pyarrow.schema(fields, _metadata(keys)))


def list_fields(schema: Any, keys: tuple[str, ...], names: tuple[str, ...]) -> Any:
    """Returns the columns of results, of which ``names`` are those of records; None if they are not known."""
    if any(pyarrow.types.is_dictionary(schema.field(name).type) for name in names):
        return None
    record = pyarrow.struct([pyarrow.field(each.name, plain_type(each.type)) for each in schema])
    fields = [pyarrow.field(name, schema.field(name).type) for name in names]
    return pyarrow.schema([*fields, pyarrow.field(RECORDS, pyarrow.list_(record))], _metadata(keys))


def ranked_schema(schema: Any, rank: str) -> Any | None:
    """Returns the columns of results with their ranks; None if they are not known."""
    if any(map(pyarrow.types.is_dictionary, schema.types)):
        return None
    found, ranks = plain(schema, schema.names), pyarrow.field(rank, pyarrow.int64())
    return found.set(found.get_field_index(rank), ranks) if rank in found.names else found.append(ranks)


def _with_ranks(batch: RecordBatch, name: str, ranks: IntArray) -> Any:
    column = pyarrow.array(ranks)
    field, place = pyarrow.field(name, column.type), batch.schema.get_field_index(name)
    return batch.append_column(field, column) if place < 0 else batch.set_column(place, field, column)


def _numbered(numbers: IntArray, number_of: IntArray) -> IntArray:
    """Returns numbers of rows, in which those of candidates are what ``number_of`` has for them."""
    is_new = numbers < NO_ROW
    numbers[is_new] = number_of[NO_ROW - 1 - numbers[is_new]]
    return numbers


def _metadata(keys: tuple[str, ...]) -> dict[bytes, bytes]:
    return metadata_of(TotalForm(keys, (RECORDS,), True))
