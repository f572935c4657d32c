"""Partition and gathering of rows, against Arrow's take."""

from __future__ import annotations

import decimal
from itertools import pairwise
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.kernels.partition import gather, gather_parts, partition
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

DATES = st.none() | st.dates()
COLUMNS: dict[Any, st.SearchStrategy[Any]] = {
    pyarrow.int64(): st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    pyarrow.int32(): st.integers(-9, 9),
    pyarrow.uint8(): st.none() | st.integers(0, 255),
    pyarrow.float64(): st.floats(allow_nan=False),
    pyarrow.bool_(): st.none() | st.booleans(),
    pyarrow.string(): st.none() | st.text(max_size=30),
    pyarrow.large_string(): st.text(max_size=30),
    pyarrow.binary(): st.binary(max_size=30),
    pyarrow.large_binary(): st.none() | st.binary(max_size=3),
    pyarrow.binary(3): st.none() | st.binary(min_size=3, max_size=3),
    pyarrow.date32(): DATES,
    pyarrow.timestamp("ns", "UTC"): st.none() | st.integers(-(1 << 62), 1 << 62),
    pyarrow.decimal128(20, 2): st.integers(-(10**17), 10**17).map(lambda cents: decimal.Decimal(cents).scaleb(-2)),
    pyarrow.list_(pyarrow.int64()): st.none() | st.lists(st.integers(0, 9), max_size=3),
    pyarrow.struct({"a": pyarrow.int64()}): st.none() | st.fixed_dictionaries({"a": st.integers(0, 9)}),
    pyarrow.string_view(): st.none() | st.text(max_size=20),
    pyarrow.binary_view(): st.binary(max_size=20),
    pyarrow.null(): st.none(),
    pyarrow.binary(0): st.just(b""),
}


@st.composite
def batches(draw: st.DrawFn) -> Any:
    """A batch of columns of all kinds, perhaps a slice, with metadata."""
    kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4))
    rows, first = draw(st.integers(0, 40)), draw(st.integers(0, 9))
    columns, fields = [], []
    for number, kind in enumerate(kinds):
        found = draw(st.lists(COLUMNS[kind], min_size=first + rows, max_size=first + rows))
        column = pyarrow.array(found, kind)
        if kind in (pyarrow.string(), pyarrow.int64()) and draw(st.booleans()):
            column = column.dictionary_encode()
        columns.append(column)
        fields.append(pyarrow.field(f"c{number}", column.type, metadata={"of": "test"}))
    return pyarrow.record_batch(columns, schema=pyarrow.schema(fields, {"whole": "x"})).slice(first)


def taken(batch: Any, rows: list[int]) -> Any:
    """The rows as Arrow takes them; of views, which it cannot take, as Python does."""
    columns = [
        pyarrow.array([column[row].as_py() for row in rows], column.type)
        if column.type in (pyarrow.string_view(), pyarrow.binary_view())
        else column.take(pyarrow.array(rows, pyarrow.int64()))
        for column in batch.columns
    ]
    return pyarrow.record_batch(columns, schema=batch.schema)


@given(batches(), st.data())
def test_rows_are_gathered_as_arrow_takes_them(batch: Any, data: st.DataObject) -> None:
    rows = batch.num_rows
    order = data.draw(st.lists(st.integers(0, rows - 1), max_size=60)) if rows else []
    gathered = gather(batch, numpy.array(order, numpy.int64))
    gathered.validate(full=True)
    assert gathered.equals(taken(batch, order), check_metadata=True)


@given(batches(), st.integers(1, 5), st.data())
def test_each_receiver_gets_its_rows_in_their_order(batch: Any, width: int, data: st.DataObject) -> None:
    rows = batch.num_rows
    targets = data.draw(st.lists(st.integers(0, width - 1), min_size=rows, max_size=rows))
    parts = partition(batch, numpy.array(targets, numpy.int32), width)
    assert len(parts) == width
    for target, part in enumerate(parts):
        wanted = [row for row in range(rows) if targets[row] == target]
        assert part.equals(taken(batch, wanted), check_metadata=True)


def test_a_batch_for_one_receiver_is_not_copied() -> None:
    batch = pyarrow.record_batch({"a": [1, 2, 3]})
    parts = partition(batch, numpy.ones(3, numpy.int32), 3)
    assert [part.num_rows for part in parts] == [0, 3, 0]
    assert parts[1].column(0).buffers()[1].address == batch.column(0).buffers()[1].address


@pytest.mark.parametrize("target", [-1, 2, 1 << 30])
def test_a_receiver_that_does_not_exist_is_refused(target: int) -> None:
    batch = pyarrow.record_batch({"a": [1, 2, 3]})
    with pytest.raises(IndexError, match="0 to 1 exist"):
        partition(batch, numpy.array([0, 1, target], numpy.int32), 2)
    with pytest.raises(ValueError, match="2 receivers were given for 3 rows"):
        partition(batch, numpy.array([0, 1], numpy.int32), 2)


@pytest.mark.parametrize("row", [-1, 3, 1 << 40])
@pytest.mark.parametrize("values", [[1, 2, 3], ["a", "b", "c"], [True, False, True], [None, 1, 2]])
def test_a_row_that_does_not_exist_is_refused(row: int, values: list[Any]) -> None:
    with pytest.raises(IndexError):
        gather(pyarrow.record_batch({"a": values}), numpy.array([0, row]))


@given(batches(), st.data())
def test_rows_of_several_batches_are_those_of_one(whole: Any, data: st.DataObject) -> None:
    bounds = sorted(data.draw(st.lists(st.integers(0, whole.num_rows), max_size=3)))
    bounds = [0, *bounds, whole.num_rows]
    rows = data.draw(st.lists(st.integers(0, whole.num_rows - 1), max_size=50)) if whole.num_rows else []
    parts = numpy.searchsorted(bounds[1:], rows, "right").astype(numpy.int32)
    cut = [whole.slice(first, end - first) for first, end in pairwise(bounds)]
    found = gather_parts(cut, parts, numpy.array(rows, numpy.int64) - numpy.array(bounds)[parts])
    found.validate(full=True)
    assert found.schema == whole.schema
    assert found.to_pylist() == taken(whole, rows).to_pylist()


@pytest.mark.parametrize(("part", "place"), [(-1, 0), (2, 0), (1, -1), (1, 2)])
@pytest.mark.parametrize("kind", [pyarrow.int64(), pyarrow.int8(), pyarrow.string(), pyarrow.bool_()])
def test_a_row_that_no_batch_has_is_refused(part: int, place: int, kind: Any) -> None:
    two = [pyarrow.record_batch({"a": pyarrow.array([1, 0]).cast(kind)}) for _ in range(2)]
    with pytest.raises(IndexError):
        gather_parts(two, numpy.array([0, part], numpy.int32), numpy.array([0, place]))
