"""Exact sums of decimals over columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy
import pyarrow

from clonos.kernels.arrays import fixed_values
from clonos.kernels.words import WORD, WORDS
from clonos.operators.aggregates.exact_numbers import EXACT
from clonos.operators.columnar.column_aggregates import Slots, State, largest_of
from clonos.operators.columnar.sums.word_sums import DIGITS, WordSum

TOO_LARGE: Final = 10**DIGITS


class DecimalSum(WordSum):
    """Sum of decimals of one scale; 0 without a number. One of more than 38 digits does not fit its type."""

    def __init__(self, name: str, of: str, type_: Any) -> None:
        super().__init__(name, of, pyarrow.decimal128(DIGITS, type_.scale))

    def results(self, state: State, slots: Slots) -> Any:
        words = self.words_at(state, slots).view(numpy.uint8)
        return pyarrow.Array.from_buffers(self.type, len(slots), [None, pyarrow.py_buffer(words)])

    def misfits(self, state: State, slots: Slots) -> Any | None:
        highs, carries = state[self._names[1]][slots], state[self._names[2]][slots]
        if largest_of(highs) + 1 < TOO_LARGE >> WORD and not carries.any():
            return None
        return numpy.array([abs(total) >= TOO_LARGE for total in self.totals(state, slots)], numpy.bool_)

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        return [Decimal(total).scaleb(-self.type.scale, EXACT) for total in self.totals(state, slots)]

    def _numbers(self, cells: Any) -> Any:
        """Returns the integers that decimals without nulls consist of."""
        if not pyarrow.types.is_decimal128(cells.type):
            cells = cells.cast(self.type)
        return fixed_values(cells, WORDS)
