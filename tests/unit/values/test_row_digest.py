"""Digest of a row: it follows from the row alone, not from the rows that are encoded with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from clonos.core.values import encode_rows, encode_value
from clonos.core.values.elements import encode_timed_rows
from clonos.core.values.row_digest import row_digest, tree_of
from clonos.core.values.rows import column_of
from clonos.core.values.tree import ENCODER
from tests.unit.values.golden import ROWS
from tests.unit.values.samples import STEADY, batches


@STEADY
@given(batches)
def test_the_tree_of_a_cell_is_that_of_its_value(rows: list[Any]) -> None:
    column = column_of(rows)
    assert [ENCODER.encode(tree_of(column, index)) for index in range(len(rows))] == [*map(encode_value, rows)]


DAY = datetime(2024, 1, 1, tzinfo=UTC)


SAMPLES: list[list[Any]] = [
    *ROWS.values(),
    [DAY, DAY + timedelta(microseconds=1)],
    [datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=hours))) for hours in (1, 1)],  # no column: two zones
    [DAY.date(), DAY.date() + timedelta(1)],
    [Decimal("1.50"), Decimal("1E+2")],
    [{"a": 1, "b": [1, 2]}, {"a": 2, "b": [3, 4]}],
    [(1, {2, 3}), (2, {3, 2})],
]


@pytest.mark.parametrize("rows", SAMPLES, ids=range(len(SAMPLES)))
def test_a_row_has_the_same_digest_alone_and_among_others(rows: list[Any]) -> None:
    alone = [row_digest(encode_rows([row]), 0) for row in rows]
    assert [row_digest(memoryview(encode_rows(rows)), index) for index in range(len(rows))] == alone


def test_keys_beside_rows_are_in_the_digest_wherever_they_are_encoded() -> None:
    keys, rows = ["a", "b", "c"], [("a", 1), ("b", 2), ("c", 3)]
    among, alone = encode_rows(rows, keys), encode_rows(rows[2:], keys[2:])
    assert row_digest(among, 2) == row_digest(alone, 0) == row_digest(encode_rows([("c", ("c", 3))]), 0)
    assert row_digest(among, 2) != row_digest(encode_rows(rows), 2)


@pytest.mark.parametrize("beyond", [7, 1 << 70])
def test_the_timestamp_of_a_row_is_in_its_digest(beyond: int) -> None:
    among, alone = encode_timed_rows(["a", "b"], [5, beyond]), encode_timed_rows(["b"], [beyond])
    assert row_digest(among, 1) == row_digest(alone, 0)
    assert len({row_digest(among, 1), row_digest(encode_rows(["b"]), 0), row_digest(among, 0)}) == 3
    assert row_digest(encode_timed_rows(["b"], [6]), 0) != row_digest(alone, 0)
