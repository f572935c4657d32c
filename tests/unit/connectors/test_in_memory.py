"""``values``: a list distributed over splits, readable from any mark."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import values
from clonos.connectors.connector_errors import InvalidConnector
from clonos.operators.connector_contract import Source
from tests.unit.connectors.reading import read_piecewise, read_split


@given(
    records=st.lists(st.integers(), max_size=30),
    parallelism=st.integers(1, 5),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_values_are_dealt_out_in_turn_and_read_once(records: list[int], parallelism: int, sizes: list[int]) -> None:
    source: Source = values(records)
    shares = [
        [row for piece in read_piecewise(source, split, sizes) for row in piece] for split in source.splits(parallelism)
    ]
    assert shares == [records[first::parallelism] for first in range(parallelism)]


def test_a_batch_is_never_larger_than_asked_for() -> None:
    source = values(range(5), batch=2, splits=1)
    (split,) = source.splits(3)
    assert list(read_piecewise(source, split, [1_000])) == [[0, 1], [2, 3], [4]]


def test_a_resume_with_other_values_is_refused() -> None:
    (split,) = values([1, 2]).splits(1)
    with pytest.raises(InvalidConnector, match="first started with 2 values and now has 3"):
        read_split(values([1, 2, 3]).reader(), split)


@pytest.mark.parametrize("option", ["batch", "splits"])
def test_a_number_below_one_is_refused(option: str) -> None:
    with pytest.raises(InvalidConnector, match=option):
        values([1], **{option: cast(Any, 0)})
