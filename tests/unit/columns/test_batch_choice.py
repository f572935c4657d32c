"""Choices in front of an exchange, given batches by hand."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from clonos.operators.columnar.choosing.batch_choice import FirstOfBatch
from clonos.operators.operator import Operator, Times

ROWS = 300_000
"""Rows whose offsets alone are more than a key may have."""


class Taken(Operator):
    """Keeps the batches."""

    takes_columns = True

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def rows(self, rows: list[Any], times: Times = None) -> None:
        raise AssertionError("there are columns")

    def columns(self, batch: Any) -> None:
        self.batches.append(batch)


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.binary()], ids=str)
def test_the_first_record_is_chosen_of_many_whose_keys_are_all_null(kind: Any) -> None:
    first = FirstOfBatch(("key",))
    first.out = taken = Taken()
    first.columns(pyarrow.record_batch({"key": pyarrow.nulls(ROWS, kind), "n": range(ROWS)}))
    assert [batch.to_pylist() for batch in taken.batches] == [[{"key": None, "n": 0}]]
