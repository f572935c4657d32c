"""Lists of values and of records over columns: all values, the distinct ones, and the records of highest ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow
from pyarrow import types

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.distinct import CountDistinct
from clonos.operators.aggregates.ranking import Ranking, TopKRecords
from clonos.operators.columnar.choosing.cells import has_ranks, ranks_of
from clonos.operators.columnar.column_aggregates import Slots
from clonos.operators.columnar.logs.log_aggregate import LogAggregate, order_in_slots, without_nulls
from clonos.operators.columnar.logs.value_log import Places, first_of_pairs, slot_of_entries
from clonos.operators.columnar.running.stored_keys import plain_cells, plain_type


class Collected(LogAggregate):
    """List of all values, by arrival."""

    def __init__(self, name: str, of: str, type_: Any) -> None:
        super().__init__(name, of)
        self._type = plain_type(type_)

    def _entries(self, slots: Slots, cells: Any) -> tuple[Slots, Sequence[Any]]:
        slots, cells = without_nulls(slots, cells)
        return slots, [plain_cells(cells)]

    def _compacted(self, slots: Slots, columns: list[Any]) -> tuple[Slots, Sequence[Any]] | None:
        return None

    def _results(self, columns: list[Any], places: Places) -> Any:
        return pyarrow.ListArray.from_arrays(pyarrow.array(places, pyarrow.int32()), columns[0])

    def _nothing(self, count: int) -> Any:
        return pyarrow.array([[]] * count, pyarrow.list_(self._type))


class DistinctValues(Collected):
    """List of the distinct values, by first arrival."""

    def _entries(self, slots: Slots, cells: Any) -> tuple[Slots, Sequence[Any]]:
        slots, (values,) = super()._entries(slots, cells)
        return self._compacted(slots, [values])

    def _compacted(self, slots: Slots, columns: list[Any]) -> tuple[Slots, Sequence[Any]]:
        first = first_of_pairs(slots, _codes(columns[0]))
        return slots[first], [columns[0].take(pyarrow.array(first))]

    def _results(self, columns: list[Any], places: Places) -> Any:
        slots, (values,) = self._compacted(slot_of_entries(places), columns)
        return super()._results([values], numpy.searchsorted(slots, numpy.arange(len(places))))


class DistinctNumber(DistinctValues):
    """Number of the distinct values."""

    def _results(self, columns: list[Any], places: Places) -> Any:
        return pyarrow.array(numpy.diff(super()._results(columns, places).offsets.to_numpy()).astype(numpy.int64))

    def _nothing(self, count: int) -> Any:
        return pyarrow.array(numpy.zeros(count, numpy.int64))


class CollectedRecords(LogAggregate):
    """List of all records, by arrival."""

    reads_records = True

    def __init__(self, name: str, schema: Any, of: str | None = None) -> None:
        """Creates it for records of a schema."""
        super().__init__(name, of)
        self._names = list(schema.names)
        self._type = pyarrow.struct([pyarrow.field(each.name, plain_type(each.type)) for each in schema])

    def cells(self, batch: RecordBatch) -> Any:
        return batch

    def _entries(self, slots: Slots, cells: Any) -> tuple[Slots, Sequence[Any]]:
        return slots, [*map(plain_cells, cells.columns)]

    def _compacted(self, slots: Slots, columns: list[Any]) -> tuple[Slots, Sequence[Any]] | None:
        return None

    def _results(self, columns: list[Any], places: Places) -> Any:
        records = pyarrow.StructArray.from_arrays(columns, fields=list(self._type))
        return pyarrow.ListArray.from_arrays(pyarrow.array(places, pyarrow.int32()), records)

    def _nothing(self, count: int) -> Any:
        return pyarrow.array([[]] * count, pyarrow.list_(self._type))


class Ranked(CollectedRecords):
    """List of the k records with the highest or lowest ranks; of equal ones the first by arrival."""

    def __init__(self, name: str, aggregation: Ranking, of: str, schema: Any) -> None:
        """Creates it for records of a schema; ``of`` is the column of the ranks."""
        super().__init__(name, schema, of)
        self._aggregation, self._k, self._is_top = aggregation, aggregation.k, isinstance(aggregation, TopKRecords)
        self._place = schema.get_field_index(of)

    def _entries(self, slots: Slots, cells: Any) -> tuple[Slots, Sequence[Any]]:
        slots, columns = super()._entries(slots, cells)
        return self._compacted(slots, list(columns))

    def _compacted(self, slots: Slots, columns: list[Any]) -> tuple[Slots, Sequence[Any]]:
        chosen = numpy.sort(self._chosen(slots, columns[self._place]))
        return slots[chosen], [column.take(pyarrow.array(chosen)) for column in columns]

    def _chosen(self, slots: Slots, cells: Any) -> Any:
        """Returns the places of the k first records of each slot, by slot and rank."""
        ranks, has_rank = ranks_of(cells)
        if self._is_top:
            ranks = ~ranks
        places = numpy.arange(len(slots)) if has_rank is None else numpy.flatnonzero(has_rank)
        order = places[order_in_slots(slots[places], ranks[places])]
        ordered = slots[order]
        begins = numpy.flatnonzero(numpy.concatenate(([True], ordered[1:] != ordered[:-1])))[: len(order)]
        nth = numpy.arange(len(order)) - numpy.repeat(begins, numpy.diff(numpy.append(begins, len(order))))
        return order[nth < self._k]

    def _results(self, columns: list[Any], places: Places) -> Any:
        slots = slot_of_entries(places)
        chosen = self._chosen(slots, columns[self._place])
        bounds = numpy.searchsorted(slots[chosen], numpy.arange(len(places)))
        return super()._results([column.take(pyarrow.array(chosen)) for column in columns], bounds)


def has_codes(type_: Any) -> bool:
    """Returns whether the distinct values of a column are those of the same values in rows."""
    type_ = plain_type(type_)
    if types.is_timestamp(type_):
        return bool(type_.unit != "ns")  # Python has no nanoseconds
    if types.is_float16(type_):
        return False
    is_text = types.is_string(type_) or types.is_large_string(type_)
    is_binary = types.is_binary(type_) or types.is_large_binary(type_)
    is_number = types.is_integer(type_) or types.is_floating(type_) or types.is_decimal128(type_)
    return bool(is_text or is_binary or is_number or types.is_boolean(type_) or types.is_date32(type_))


def listed(name: str, aggregation: Any, of: str, schema: Any) -> LogAggregate | None:
    """Makes the list of an aggregation; None if there is none for the type of the column."""
    type_ = schema.field(of).type
    if isinstance(aggregation, Ranking):
        return Ranked(name, aggregation, of, schema) if has_ranks(plain_type(type_)) else None
    if aggregation.name == "collect":
        return Collected(name, of, type_)
    if not has_codes(type_):
        return None
    return (DistinctNumber if type(aggregation) is CountDistinct else DistinctValues)(name, of, type_)


def _codes(values: Any) -> Any:
    """Returns a number for each value, the same for equal ones."""
    if types.is_floating(values.type):
        values = pyarrow.array(values.to_numpy() + 0.0)  # 0.0 and -0.0 are one value, and all nan
    return values.dictionary_encode().indices.to_numpy()
