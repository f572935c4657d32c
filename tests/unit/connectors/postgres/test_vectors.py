"""Which vectors a column of pgvector holds as they are."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow
import pytest

from clonos.connectors.postgres.exact_types import check_of, is_held
from clonos.connectors.postgres.vectors import DIMENSIONS_MAX, with_texts
from clonos.connectors.tables.exact_columns import NotStored, TableColumn

FLOAT32_MAX = struct.unpack("f", b"\xff\xff\x7f\x7f")[0]
FLOAT32_MIN = struct.unpack("f", b"\x00\x00\x80\x00")[0]


def refused(type_name: str, value: Any, round_vectors: bool = False) -> str:
    """Why a value is not stored, "" if it is."""
    check = check_of(type_name, round_vectors)
    assert check is not None
    try:
        check(value)
    except NotStored as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("vector(3)", [1.0, -0.0, 2.5]),
        ("vector(3)", (1, 1 << 24, 1 << 100)),
        ("vector(3)", [FLOAT32_MAX, -FLOAT32_MAX, FLOAT32_MIN]),
        ("vector(3)", "[1, 2.5, -3e2]"),
        ("vector", [0.5]),
        ("vector", [0.5] * DIMENSIONS_MAX),
        ("shop.vector(1)", [0.5]),
        ("halfvec(2)", [65504.0, 2.0**-24]),
    ],
)
def test_a_vector_of_numbers_that_the_column_has_is_stored(type_name: str, value: Any) -> None:
    assert refused(type_name, value) == ""


@pytest.mark.parametrize(
    ("type_name", "value", "reason"),
    [
        ("vector(3)", [1.0, 2.0], "it has 2 numbers"),
        ("vector", [], "it has 0 numbers"),
        ("vector", [0.5] * (DIMENSIONS_MAX + 1), "it has 16001 numbers"),
        ("vector(2)", [1.0, 0.1], "its number at index 1 is 0.1, which a number of 32 bits does not hold exactly"),
        ("vector(1)", [(1 << 24) + 1], "is 16777217, which a number of 32 bits does not hold exactly"),
        ("vector(1)", [float("nan")], "is nan, which is not finite"),
        ("vector(1)", [float("-inf")], "is -inf, which is not finite"),
        ("vector(1)", [1e39], "is 1e+39, which is not finite, or beyond the range of 32 bits"),
        ("vector(1)", [10**400], "is 10{39}, which is not finite, or beyond the range of 32 bits"),
        ("vector(1)", [1e-50], "is 1e-50, which becomes 0"),
        ("vector(1)", [True], "is True, which is neither a float nor an int"),
        ("vector(2)", [1.0, None], "is None, which is neither a float nor an int"),
        ("vector(1)", ["1"], "is '1', which is neither a float nor an int"),
        ("vector(1)", 1.0, "give a list of numbers"),
        ("vector(1)", {"a": 1}, "give a list of numbers"),
        ("vector(1)", "{1}", "Expecting property name"),
        ("vector(1)", "[0.10000000000000000001]", "has more digits than a float holds"),
        ("halfvec(1)", [65520.0], "is 65520.0, which is not finite, or beyond the range of 16 bits"),
        ("halfvec(1)", [2049], "is 2049, which a number of 16 bits does not hold exactly"),
    ],
)
def test_a_vector_that_the_column_would_change_or_refuse_is_not_stored(type_name: str, value: Any, reason: str) -> None:
    found = refused(type_name, value)
    assert f"which a column of the type {type_name} does not hold" in found
    assert reason.replace("0{39}", "0" * 39) in found


def test_numbers_are_rounded_where_that_is_asked_for_but_not_to_zero_or_infinity() -> None:
    assert refused("vector(2)", [0.1, (1 << 24) + 1], round_vectors=True) == ""
    assert refused("halfvec(1)", [65519.0], round_vectors=True) == ""
    assert "becomes 0" in refused("vector(2)", [0.1, 1e-50], round_vectors=True)
    assert "not finite" in refused("vector(2)", [0.1, 1e39], round_vectors=True)
    assert "not finite" in refused("vector(2)", [0.1, float("nan")], round_vectors=True)
    assert "not finite" in refused("halfvec(1)", [65520.0], round_vectors=True)


LISTS = [[0.5, 1.0], None, [2.0, -0.0]]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pyarrow.array(LISTS, pyarrow.list_(pyarrow.float32(), 2)), True),
        (pyarrow.array(LISTS, pyarrow.list_(pyarrow.float32())), True),
        (pyarrow.array(LISTS, pyarrow.list_(pyarrow.float32())).slice(1, 1), True),
        (pyarrow.array([], pyarrow.list_(pyarrow.float32())), True),
        (pyarrow.array(LISTS, pyarrow.list_(pyarrow.float64())), False),
        (pyarrow.array([[0.5]], pyarrow.list_(pyarrow.float32(), 1)), False),
        (pyarrow.array([[0.5, 1.0], [0.5]], pyarrow.list_(pyarrow.float32())), False),
        (pyarrow.array([[0.5, None]], pyarrow.list_(pyarrow.float32(), 2)), False),
        (pyarrow.array([[0.5, float("nan")]], pyarrow.list_(pyarrow.float32(), 2)), False),
        (pyarrow.array([[0.5, float("inf")]], pyarrow.list_(pyarrow.float32(), 2)), False),
    ],
)
def test_a_column_of_lists_is_held_if_each_vector_of_it_is(column: Any, expected: bool) -> None:
    assert is_held(column, TableColumn("embedding", "vector(2)")) is expected
    assert not is_held(column, TableColumn("embedding", "halfvec(2)"))
    assert not is_held(column, TableColumn("embedding", "jsonb"))


def test_a_column_with_null_is_not_held_where_the_table_refuses_null() -> None:
    column = pyarrow.array(LISTS, pyarrow.list_(pyarrow.float32(), 2))
    assert not is_held(column, TableColumn("embedding", "vector(2)", is_required=True))


def test_the_text_of_a_column_has_all_digits_of_its_vectors() -> None:
    numbers = [FLOAT32_MAX, FLOAT32_MIN, -0.0, struct.unpack("f", struct.pack("f", 0.1))[0]]
    lists = pyarrow.array([numbers, None], pyarrow.list_(pyarrow.float32(), 4))
    batch = with_texts(pyarrow.record_batch({"id": pyarrow.array([1, 2]), "embedding": lists}))
    assert batch.to_pylist() == [
        *({"id": 1, "embedding": "[3.4028235e+38,1.1754944e-38,-0,0.1]"}, {"id": 2, "embedding": None}),
    ]
