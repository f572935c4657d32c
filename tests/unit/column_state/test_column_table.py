"""A table in columns: keys and slots, values, removal, compaction, and what a job of another version finds."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy
import pyarrow
import pytest

from clonos.operators.state.column_spec import SIZES, code_of, type_of_code
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_errors import StateOfOtherForm
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

COUNTS = ColumnSpec((pyarrow.int64(),), {"n": numpy.int64})


def keys(*numbers: int) -> Any:
    return numpy.array(numbers, numpy.int64)


def counts(*, of: ColumnSpec = COUNTS) -> ColumnTable:
    return StateBackend(None).column_table("step/counts", of)


def restored(backend: StateBackend) -> StateBackend:
    image = StateImage()
    image.apply(backend.changes(True))
    return StateBackend(image)


def test_slots_are_in_the_order_of_arrival_and_a_key_that_comes_again_is_the_last() -> None:
    table = counts()
    assert table.slots(keys(7, 5, 7, 9)).tolist() == [0, 1, 0, 2]
    table.remove(numpy.array([1, 1]))
    assert table.find(keys(5, 9, 4)).tolist() == [-1, 2, -1]
    assert table.slots(keys(4, 5, 5, 7)).tolist() == [3, 4, 4, 0]
    assert table.live().tolist() == [0, 2, 3, 4]
    assert (len(table), table.live_count) == (5, 4)
    assert table.keys(table.live())[0].to_pylist() == [7, 9, 4, 5]


def test_new_slots_have_the_initial_values_and_a_key_that_comes_again_has_them_too() -> None:
    spec = ColumnSpec(
        (pyarrow.string(),), {"n": numpy.int64, "least": numpy.int64}, {"least": 99}, frozenset({"least"})
    )
    table = counts(of=spec)
    slots = table.slots([pyarrow.array(["a", "b"])])
    table.values["n"][slots] = 5
    table.values["least"][slots] = 1
    table.valid["least"][slots] = True
    table.remove(slots[:1])
    again = table.slots([pyarrow.array(["a"])])
    assert [table.values["n"][again[0]], table.values["least"][again[0]], table.valid["least"][again[0]]] == [0, 99, 0]


def test_values_stay_when_arrays_grow() -> None:
    table = counts()
    for start in range(0, 10_000, 100):
        slots = table.slots(numpy.arange(start, start + 100))
        table.values["n"][slots] = numpy.arange(start, start + 100)
    assert table.values["n"][: len(table)].tolist() == list(range(10_000))
    assert table.size_bytes >= 10_000 * 16


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pyarrow.int64(), [1, None, -1, 1 << 62]),
        (pyarrow.uint32(), [1, None, (1 << 32) - 1]),
        (pyarrow.uint64(), [1, (1 << 64) - 1, None]),
        (pyarrow.int8(), [-128, 127, None]),
        (pyarrow.bool_(), [True, None, False]),
        (pyarrow.date32(), [date(2024, 1, 1), None, date(1900, 1, 1)]),
        (pyarrow.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), None]),
        (pyarrow.string(), ["a", "", None, "é" * 100]),
        (pyarrow.large_string(), ["a", None, ""]),
        (pyarrow.binary(), [b"a", None, b"\0"]),
        (pyarrow.decimal128(10, 2), [Decimal("1.50"), None, Decimal("-3.00")]),
    ],
)
def test_keys_come_back_with_their_types_and_after_a_restore_too(kind: Any, values: list[Any]) -> None:
    backend = StateBackend(None)
    spec = ColumnSpec((kind,), {"n": numpy.int64})
    column = pyarrow.array([*values, *values[::-1]], kind)
    expected = list(range(len(values)))
    for _ in range(2):
        table = backend.column_table("step/keys", spec)
        assert table.slots([column]).tolist() == [*expected, *expected[::-1]]
        (found,) = table.keys(table.live())
        assert (found.type, found.to_pylist()) == (kind, values)
        assert table.all_keys() == [found]
        backend = restored(backend)


@pytest.mark.parametrize("kind", [pyarrow.int64(), pyarrow.uint8(), pyarrow.date32()])
def test_all_keys_are_those_of_all_slots_without_the_room_for_more(kind: Any) -> None:
    table = counts(of=ColumnSpec((kind,), {}))
    table.slots([pyarrow.array(range(100), pyarrow.int32()).cast(kind)])
    table.remove(numpy.array([3]))
    assert table.all_keys() == table.keys(numpy.arange(100))


def test_dictionary_columns_are_keys_by_their_values() -> None:
    table = counts(of=ColumnSpec((pyarrow.string(), pyarrow.int64()), {}))
    texts = pyarrow.array(["a", "b", "a"]).dictionary_encode()
    assert table.slots([texts, pyarrow.array([1, 1, 1])]).tolist() == [0, 1, 0]
    table.remove(numpy.array([0]))
    assert table.slots([texts, pyarrow.array([1, 1, 2])]).tolist() == [2, 1, 3]
    assert [column.to_pylist() for column in table.keys(table.live())] == [["b", "a", "a"], [1, 1, 2]]


def test_the_null_key_of_integers_may_go_and_come_again() -> None:
    backend = StateBackend(None)
    table = backend.column_table("step/counts", COUNTS)
    with_null = [pyarrow.array([3, None, 0])]
    assert table.slots(with_null).tolist() == [0, 1, 2]
    table.remove(numpy.array([1]))
    assert table.slots(with_null).tolist() == [0, 3, 2]
    again = restored(backend).column_table("step/counts", COUNTS)
    for each in (table, again):
        assert each.keys(each.live())[0].to_pylist() == [3, 0, None]
        assert each.find(with_null).tolist() == [0, 3, 2]


def test_remove_where_and_expire_return_the_removed_slots() -> None:
    table = counts()
    slots = table.slots(keys(1, 2, 3, 4, 5))
    table.values["n"][slots] = [10, 20, 30, 40, 50]
    assert table.remove_where(table.values["n"][: len(table)] == 20).tolist() == [1]
    assert table.expire("n", 40).tolist() == [0, 2]
    assert table.keys(table.live())[0].to_pylist() == [4, 5]


def test_a_barrier_compacts_a_table_of_which_most_slots_are_removed_and_keeps_the_order() -> None:
    backend, image = StateBackend(None), StateImage()
    table = backend.column_table("step/counts", COUNTS)
    slots = table.slots(numpy.arange(3 * SIZES.compacted_min))
    table.values["n"][slots] = slots * 2
    table.remove(slots[slots % 3 != 1])
    assert (len(table), table.layout) == (3 * SIZES.compacted_min, 0)
    image.apply(backend.changes(False))
    assert (len(table), table.live_count, table.layout) == (SIZES.compacted_min, SIZES.compacted_min, 1)
    expected = list(range(1, 3 * SIZES.compacted_min, 3))
    for each in (table, StateBackend(image).column_table("step/counts", COUNTS)):
        assert each.keys(each.live())[0].to_pylist() == expected
        assert each.values["n"][: len(each)].tolist() == [2 * key for key in expected]
        assert each.slots(keys(4, 5)).tolist() == [1, SIZES.compacted_min]


def test_keys_that_come_and_go_between_two_barriers_are_not_stored() -> None:
    backend = StateBackend(None)
    table = backend.column_table("step/counts", COUNTS)
    empty = len(backend.changes(True))
    table.remove(table.slots(numpy.arange(100_000)))
    assert len(backend.changes(False)) < empty + 200
    assert (len(table), table.size_bytes < 10_000) == (0, True)


def test_a_table_of_another_form_is_refused_in_place_of_lost() -> None:
    backend = StateBackend(None)
    backend.column_table("step/counts", COUNTS).slots(keys(1))
    backend.table("step/rows").set("key", 1)
    other = ColumnSpec((pyarrow.int64(),), {"n": numpy.float64})
    with pytest.raises(StateOfOtherForm, match=r"stored as keys int64 and columns n: <i8, and .* keeps .* n: <f8"):
        restored(backend).column_table("step/counts", other)
    with pytest.raises(StateOfOtherForm, match="stored as columns"):
        restored(backend).table("step/counts")
    with pytest.raises(StateOfOtherForm, match="stored as a value for each key"):
        restored(backend).column_table("step/rows", COUNTS)
    with pytest.raises(StateOfOtherForm, match="stored as a value for each key"):
        restored(backend).row_store("step/rows")


def test_a_dropped_table_is_dropped_by_standbys() -> None:
    backend, image = StateBackend(None), StateImage()
    for name in ("step/1", "step/2"):
        backend.column_table(name, COUNTS).slots(keys(1))
    backend.row_store("step/3").append(pyarrow.record_batch({"a": [1]}))
    image.apply(backend.changes(True))
    assert StateBackend(image).restored_columns("step/") == ["step/1", "step/2", "step/3"]
    backend.drop("step/1")
    backend.drop("step/3")
    backend.column_table("step/1", COUNTS).slots(keys(8, 9))
    image.apply(backend.changes(False))
    assert sorted([*image.columns, *image.stores]) == ["step/1", "step/2"]
    again = StateBackend(image).column_table("step/1", COUNTS)
    assert again.keys(again.live())[0].to_pylist() == [8, 9]


@pytest.mark.parametrize(
    "dtype", [numpy.int64, numpy.float32, numpy.bool_, "V16", (numpy.int64, 10), (numpy.bool_, (2, 3))]
)
def test_the_code_of_a_type_gives_the_type(dtype: Any) -> None:
    assert type_of_code(code_of(numpy.dtype(dtype)), "n") == numpy.dtype(dtype)


@pytest.mark.parametrize("dtype", [object, "U5", "V70000", (numpy.int64, 10_000), ">i8"])
def test_a_type_that_no_table_can_have_is_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r": n$"):
        ColumnSpec((pyarrow.int64(),), {"n": dtype})
