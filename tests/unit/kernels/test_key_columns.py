"""Packed keys: reversible, equal exactly where all columns are, and an index over them."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.kernels.packed_keys import KeyIndex, check_key_types, pack, unpack
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

ZONED = pyarrow.timestamp("us", "Europe/Berlin")
VALUES_OF: dict[Any, st.SearchStrategy[Any]] = {
    pyarrow.int64(): st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(1 << 31), (1 << 31) - 1),
    pyarrow.int8(): st.integers(-128, 127),
    pyarrow.uint64(): st.integers(0, (1 << 64) - 1),
    pyarrow.uint16(): st.integers(0, 65535),
    pyarrow.bool_(): st.booleans(),
    pyarrow.string(): st.text(max_size=20),
    pyarrow.large_string(): st.text(max_size=5),
    pyarrow.binary(): st.binary(max_size=20),
    pyarrow.large_binary(): st.binary(max_size=20),
    pyarrow.binary(3): st.binary(min_size=3, max_size=3),
    pyarrow.date32(): st.dates(),
    ZONED: st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(datetime.UTC)),
    pyarrow.time32("s"): st.integers(0, 86_399).map(lambda s: datetime.time(s // 3600, s // 60 % 60, s % 60)),
    pyarrow.decimal128(20, 2): st.integers(-(10**17), 10**17).map(lambda cents: decimal.Decimal(cents).scaleb(-2)),
}


@st.composite
def tables(draw: st.DrawFn, rows_max: int = 30) -> tuple[list[Any], list[Any]]:
    """Types and columns of equal length, which may be slices and dictionaries."""
    types = draw(st.lists(st.sampled_from(list(VALUES_OF)), min_size=1, max_size=4))
    rows, first = draw(st.integers(0, rows_max)), draw(st.integers(0, 3))
    columns = []
    for kind in types:
        values = VALUES_OF[kind] if draw(st.booleans()) else st.none() | VALUES_OF[kind]
        few = st.sampled_from(draw(st.lists(values, min_size=1, max_size=3)))
        found = draw(st.lists(few | values, min_size=first + rows, max_size=first + rows))
        column = pyarrow.array(found, kind)
        if draw(st.booleans()) and not pyarrow.types.is_decimal(kind):
            column = column.dictionary_encode()
        columns.append(column.slice(first))
    return types, columns


def rows_of(columns: list[Any]) -> list[tuple[Any, ...]]:
    return list(zip(*[column.to_pylist() for column in columns], strict=True))


@given(tables())
def test_packed_keys_are_unpacked_and_are_equal_where_rows_are(table: tuple[list[Any], list[Any]]) -> None:
    types, columns = table
    packed = pack(columns)
    unpacked = unpack(packed, types)
    for column, kind in zip(unpacked, types, strict=True):
        assert column.type == kind
        column.validate(full=True)
    rows = rows_of(columns)
    assert rows_of(unpacked) == rows
    assert len(set(packed.to_pylist())) == len(set(rows))
    sliced = len(rows) // 2
    assert rows_of(unpack(packed.slice(sliced), types)) == rows[sliced:]


@given(tables(), st.integers(0, 30))
def test_an_index_of_columns_has_the_slots_of_a_dict_of_rows(table: tuple[list[Any], list[Any]], cut: int) -> None:
    types, columns = table
    index, model, rows = KeyIndex(types), dict[Any, int](), rows_of(columns)
    for begin, end in ((0, cut), (cut, len(rows))):
        part = [column.slice(begin, max(0, end - begin)) for column in columns]
        assert index.find(part).tolist() == [model.get(row, -1) for row in rows[begin:end]]
        assert index.add(part).tolist() == [model.setdefault(row, len(model)) for row in rows[begin:end]]
        assert len(index) == len(model)
    assert rows_of(index.columns()) == list(model)
    assert [column.type for column in index.columns()] == types
    backwards = numpy.arange(len(model))[::-1]
    assert rows_of(index.columns_at(backwards)) == list(model)[::-1]
    assert rows_of(index.columns(len(model) // 2)) == list(model)[len(model) // 2 :]


def test_a_first_null_changes_no_slot() -> None:
    for values in ([7, 8, 9], ["seven", "eight", "nine"]):
        index = KeyIndex([pyarrow.array(values).type])
        assert index.add([pyarrow.array(values)]).tolist() == [0, 1, 2]
        assert index.find([pyarrow.array([values[1], None])]).tolist() == [1, -1]
        assert index.add([pyarrow.array([None, values[2], None, values[0]])]).tolist() == [3, 2, 3, 0]
        assert index.columns()[0].to_pylist() == [*values, None]


@pytest.mark.parametrize("wide", [None, 1 << 31, -(1 << 31) - 1, 1 << 62])
def test_a_pair_of_numbers_that_needs_more_bits_changes_no_slot(wide: int | None) -> None:
    types = [pyarrow.int64(), pyarrow.date32()]
    index, days = KeyIndex(types), pyarrow.array([-3, 0, 7], pyarrow.int32()).cast(pyarrow.date32())
    assert index.add([pyarrow.array([-1, (1 << 31) - 1, -(1 << 31)]), days]).tolist() == [0, 1, 2]
    assert index.find([pyarrow.array([-1, -(1 << 31), 3]), days.take(pyarrow.array([0, 2, 1]))]).tolist() == [0, 2, -1]
    assert rows_of(index.columns(1)) == list(zip([(1 << 31) - 1, -(1 << 31)], days.to_pylist()[1:], strict=True))
    assert index.add([pyarrow.array([wide, -1], pyarrow.int64()), days[:2].take(pyarrow.array([1, 0]))]).tolist() == [
        3,
        0,
    ]
    assert index.columns()[0].to_pylist() == [-1, (1 << 31) - 1, -(1 << 31), wide]
    assert [column.type for column in index.columns()] == types


def test_texts_do_not_run_into_each_other() -> None:
    index = KeyIndex([pyarrow.string(), pyarrow.string()])
    assert index.add([pyarrow.array(["ab", "a", ""]), pyarrow.array(["c", "bc", "abc"])]).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", [pyarrow.float64(), pyarrow.list_(pyarrow.int64()), pyarrow.null()])
def test_a_type_that_cannot_be_a_key_is_refused(kind: Any) -> None:
    for call in (check_key_types, KeyIndex):
        with pytest.raises(TypeError, match="cannot be a key"):
            call([pyarrow.int64(), kind])
    with pytest.raises(TypeError, match="at least one column"):
        KeyIndex([])


def test_columns_of_other_types_or_lengths_are_refused() -> None:
    index = KeyIndex([pyarrow.int64(), pyarrow.string()])
    with pytest.raises(TypeError, match="have the types int64, int64, and int64, string are expected"):
        index.add([pyarrow.array([1]), pyarrow.array([1])])
    with pytest.raises(ValueError, match="key columns have 1, 2 rows"):
        index.add([pyarrow.array([1]), pyarrow.array(["a", "b"])])


TYPES = [pyarrow.int16(), pyarrow.string()]
PACKED = pack([pyarrow.array([258], pyarrow.int16()), pyarrow.array(["abc"])])[0].as_py()


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (PACKED[:-1], "ends within a text"),
        (PACKED + b"x", "goes on after its last column"),
        (PACKED[:5], "of 5 bytes is shorter than 8"),
        (b"\x02" + PACKED[1:], "has the mark 2"),
        (PACKED[:4] + b"\xff\xff\xff\xff" + PACKED[8:], "ends within a text"),
    ],
)
def test_a_damaged_packed_key_is_refused(row: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        unpack(pyarrow.array([PACKED, row], pyarrow.large_binary()), TYPES)
