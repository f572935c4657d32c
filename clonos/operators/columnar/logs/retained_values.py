"""First, last, smallest and largest values over columns of types that state has not as numbers, such as texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow
from pyarrow import compute, types

from clonos.operators.aggregates.values import First, Last, Min
from clonos.operators.columnar.column_aggregates import Slots
from clonos.operators.columnar.logs.log_aggregate import LogAggregate, without_nulls
from clonos.operators.columnar.logs.value_log import Places, slot_of_entries
from clonos.operators.columnar.running.stored_keys import plain_cells, plain_type


class RetainedValue(LogAggregate):
    """One value of each slot. An entry is a value; those that cannot be the result are dropped."""

    def __init__(self, name: str, aggregation: Any, of: str, type_: Any) -> None:
        super().__init__(name, of)
        self._aggregation, self._type = aggregation, plain_type(type_)

    def _entries(self, slots: Slots, cells: Any) -> tuple[Slots, Sequence[Any]]:
        slots, cells = without_nulls(slots, cells)
        return self._compacted(slots, [plain_cells(cells)])

    def _compacted(self, slots: Slots, columns: list[Any]) -> tuple[Slots, Sequence[Any]]:
        chosen = numpy.sort(self._chosen(slots, columns[0]))
        return slots[chosen], [columns[0].take(pyarrow.array(chosen))]

    def _chosen(self, slots: Slots, values: Any) -> Places:
        """Returns the place of the value of each slot."""
        kind = type(self._aggregation)
        if kind is First:
            return numpy.unique(slots, return_index=True)[1]
        if kind is Last:
            return len(slots) - 1 - numpy.unique(slots[::-1], return_index=True)[1]
        order = numpy.lexsort((compute.rank(values, tiebreaker="dense").to_numpy(), slots))
        differs = slots[order][1:] != slots[order][:-1]
        is_chosen = ([True], differs) if kind is Min else (differs, [True])
        return order[numpy.concatenate(is_chosen)[: len(order)]]

    def _results(self, columns: list[Any], places: Places) -> Any:
        slots, (values,) = self._compacted(slot_of_entries(places), columns)
        wanted = numpy.arange(len(places) - 1)
        found = numpy.searchsorted(slots, wanted)
        is_missing = numpy.ones(len(wanted), numpy.bool_)
        is_missing[slots] = False
        return values.take(pyarrow.array(found, mask=is_missing))

    def _nothing(self, count: int) -> Any:
        return pyarrow.nulls(count, self._type)


def can_be_retained(aggregation: Any, type_: Any) -> bool:
    """Returns whether an aggregation of values has the same result over a column of a type as over rows."""
    plain = plain_type(type_)
    is_text = types.is_string(plain) or types.is_large_string(plain)
    is_binary = types.is_binary(plain) or types.is_large_binary(plain)
    has_order = is_text or is_binary or types.is_decimal128(plain) or types.is_uint64(plain)
    return type(aggregation) in (First, Last) or bool(has_order)
