"""Exact sums of decimals over columns."""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow

from clonos.kernels.arrays import fixed_values
from clonos.operators.columnar.column_aggregates import Slots, State
from clonos.operators.columnar.sums.word_sums import DIGITS, WORDS, WordSum


class DecimalSum(WordSum):
    """Sum of decimals of one scale; 0 without a number."""

    def __init__(self, name: str, of: str, type_: Any) -> None:
        super().__init__(name, of, pyarrow.decimal128(DIGITS, type_.scale))

    def results(self, state: State, slots: Slots) -> Any:
        words = self.words_at(state, slots).view(numpy.uint8)
        return pyarrow.Array.from_buffers(self.type, len(slots), [None, pyarrow.py_buffer(words)])

    def _numbers(self, cells: Any) -> Any:
        """Returns the integers that decimals without nulls consist of."""
        if not pyarrow.types.is_decimal128(cells.type):
            cells = cells.cast(self.type)
        return fixed_values(cells, WORDS)
