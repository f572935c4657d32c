"""A batch of rows as bytes and back, compared with a naive implementation that encodes each row by itself."""

from __future__ import annotations

import datetime
import gc
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given

from clonos.core.values import (
    ValueBeyondLimit,
    ValueMalformed,
    ValueUnsupported,
    decode_rows,
    decode_value,
    encode_rows,
    encode_value,
    value_limits,
)
from clonos.core.values.rows import COLUMN_DECODER, EXACT, Column, column_of, rows_of
from tests.unit.values.golden import ROWS
from tests.unit.values.samples import STEADY, Pair, Point, Shape, Unregistered, batches, same


def twin(rows: list[Any]) -> list[Any]:
    return [decode_value(encode_value(row)) for row in rows]


@STEADY
@given(batches)
def test_a_batch_is_decoded_like_its_single_rows(rows: list[Any]) -> None:
    decoded = decode_rows(encode_rows(rows))
    assert same(decoded, twin(rows))
    assert same(decoded, rows)


@STEADY
@given(batches)
def test_a_copy_of_a_batch_has_the_same_bytes(rows: list[Any]) -> None:
    data = encode_rows(rows)
    assert encode_rows(decode_rows(memoryview(data))) == data


WEST = datetime.timezone(datetime.timedelta(hours=-1), "west")
UNNAMED = datetime.timezone(datetime.timedelta(hours=-1))


@pytest.mark.parametrize(
    "rows",
    [
        *([1, True], [True, 1], [1, 1.0], [1.0, 1], [0, False, 0.0, -0.0], [1, 2**64], ["a", "\ud800"], [b"a", "a"]),
        *([(1, True), (True, 1)], [(1,), (1, 2)], [(1, 2), (1,)], [(), (1,)], [[], []], [(1,), [1]], [[1], [1, 2]]),
        *([{"a": 1, "b": 2}, {"b": 2, "a": 1}], [{"a": 1}, {}], [{}, {}], [{1: 2}, {1: 3}], [{"a": 1}, {"b": 1}]),
        *([{1: "x"}, {True: "x"}], [{"a": 1}, {"a": True}], [{"a": 1, "b": 1}, {"c": 1, "d": 1}]),
        *([Point(1), Point(True)], [Point(1), Pair(1, 2)], [Pair(1, 2), (1, 2)], [Shape(1), Shape((1,))]),
        [datetime.datetime(2024, 1, 1, tzinfo=WEST), datetime.datetime(2024, 1, 1, tzinfo=UNNAMED)],
        [datetime.datetime(2024, 1, 1, tzinfo=WEST), datetime.datetime(2024, 1, 2, tzinfo=WEST)],
        [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)],
        [datetime.datetime.min, datetime.datetime.max],
        [datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)],
        [tuple(range(value_limits.COLUMNS_WIDTH_MAX + 1))] * 2,
        [((((((((((1,),),),),),),),),),)] * 2,
    ],
)
def test_similar_shapes_are_not_confused(rows: list[Any]) -> None:
    assert same(decode_rows(encode_rows(rows)), rows)


def kinds(column: Column) -> set[int]:
    return {column.kind}.union(*map(kinds, column.parts))


@pytest.mark.parametrize(
    "name", [name for name in ROWS if not name.startswith(("no ", "odd", "ragged", "empty", "enum"))]
)
def test_rows_of_one_shape_are_encoded_as_columns(name: str) -> None:
    assert (EXACT in kinds(COLUMN_DECODER.decode(encode_rows(ROWS[name])[1:]))) == (name == "rows with bytes")


COUNTED = {name: ROWS[name][:1] for name in ROWS if name in {
    "text rows", "int rows", "float rows", "bytes rows", "bool rows", "tuple rows", "nested tuple rows", "list rows",
    "dict rows", "dataclass rows", "named tuple rows", "datetime rows", "date rows", "decimal rows",
}}  # fmt: skip


def python_calls(rows: list[Any]) -> int:
    """Calls of functions of clonos written in Python during a round trip."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and "clonos" in frame.f_globals.get("__name__", "")

    earlier = sys.getprofile()
    gc.disable()  # what other tests have left may have finalizers of clonos
    sys.setprofile(count)
    try:
        decode_rows(encode_rows(rows))
    finally:
        sys.setprofile(earlier)
        gc.enable()
    return calls


@pytest.mark.parametrize("name", COUNTED)
def test_a_column_makes_no_call_per_row(name: str) -> None:
    assert python_calls(COUNTED[name] * 1000) == python_calls(COUNTED[name] * 2)


def test_a_part_that_cannot_be_encoded_is_named_with_its_row() -> None:
    with pytest.raises(ValueUnsupported) as caught:
        encode_rows([("a", {"k": 1}), ("b", {"k": Unregistered()})])
    assert caught.value.path == "rows[1][1]['k']"


def test_a_record_with_a_lost_attribute_is_refused_within_a_column_too() -> None:
    odd = Point(2)
    odd.color = "red"  # type: ignore[attr-defined]
    with pytest.raises(ValueUnsupported, match=r"^record.*color"):
        encode_rows([Point(1), odd])


def test_too_many_rows_and_bytes_are_refused() -> None:
    assert rows_of(column_of([1, 2, 3], rows_max=3)) == [1, 2, 3]
    with pytest.raises(ValueBeyondLimit, match="rows"):
        column_of([1, 2, 3], rows_max=2)
    data = encode_rows(["0123456789"])
    with pytest.raises(ValueBeyondLimit, match="bytes"):
        encode_rows(["0123456789"], bytes_max=len(data) - 1)
    with pytest.raises(ValueMalformed, match="limit"):
        decode_rows(data, bytes_max=len(data) - 1)


def test_rows_of_a_newer_format_are_refused_by_name() -> None:
    with pytest.raises(ValueMalformed, match="begin with the byte 1"):
        decode_rows(b"\x02" + encode_rows([1])[1:])
