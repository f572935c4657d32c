"""Rows of any Arrow type by number: what is kept, in which chunks, and the last row of each key."""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.state.row_chunks import RowChunk
from clonos.operators.state.row_store import RowsDiffer, RowStore
from tests.unit.column_state.column_twins import SMALL

deeds = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("remove"), st.integers(1, 30)),
        st.tuples(st.just("remove old"), st.integers(1, 60)),
    ),
    max_size=40,
)


def batch(first: int, count: int) -> Any:
    numbers = range(first, first + count)
    texts = pyarrow.array([None if number % 5 == 0 else f"text {number}" for number in numbers], pyarrow.string())
    return pyarrow.record_batch({"n": list(numbers), "text": texts, "nested": [[{"x": n}] for n in numbers]})


def numbers_of(*numbers: int) -> Any:
    return numpy.array(numbers, numpy.int64)


@settings(deadline=None)
@given(deeds, st.randoms(use_true_random=False))
def test_rows_are_those_of_a_dict_in_any_order(deeds: list[tuple[str, int]], random: Any) -> None:
    store, twin = RowStore("rows", SMALL), dict[int, dict[str, Any]]()
    for deed, count in deeds:
        if deed == "append":
            rows = batch(store.next_number * 3, count)
            numbers = store.append(rows).tolist()
            twin.update(zip(numbers, rows.to_pylist(), strict=True))
        else:
            gone = random.sample(list(twin), min(count, len(twin))) if deed == "remove" else list(twin)[:count]
            store.remove(numpy.array(gone, numpy.int64))
            for number in gone:
                del twin[number]
        assert len(store) == len(twin)
        if twin:
            wanted = random.choices(list(twin), k=10)
            assert store.take(numbers_of(*wanted)).to_pylist() == [twin[number] for number in wanted]
            assert store.take(numbers_of(*twin)).to_pylist() == list(twin.values())


@pytest.mark.parametrize("numbers", [(3, 1, 3), (0, 99, 0)])
def test_a_row_is_removed_once(numbers: tuple[int, ...]) -> None:
    store = RowStore("rows", SMALL)
    store.append(batch(0, 100))
    with pytest.raises(AssertionError, match="a row is removed once"):
        store.remove(numbers_of(*numbers))
    store.remove(numbers_of(*sorted({*numbers}, reverse=True)))
    assert len(store) == 98


@pytest.mark.slow
def test_small_batches_are_merged_and_removed_rows_give_their_memory_back() -> None:
    store = RowStore()
    for first in range(0, 50_000, 10):
        store.append(batch(first, 10))
    assert len(store.chunks) < 50
    size_bytes = store.size_bytes
    assert size_bytes > 50_000 * 20
    for first in range(0, 49_000, 100):
        store.remove(numpy.arange(first, first + 100))
    assert store.size_bytes < size_bytes / 20
    assert store.take(numbers_of(49_000, 49_999)).to_pylist() == batch(49_000, 1000).to_pylist()[::999]


def test_rows_that_remain_here_and_there_are_in_few_chunks() -> None:
    store = RowStore()
    for first in range(0, 100_000, 1000):
        store.append(batch(first, 1000))
    everything = numpy.arange(100_000)
    for rest in range(1, 500):
        store.remove(everything[everything % 500 == rest])
    assert len(store) == 200
    assert len(store.chunks) <= 64
    assert store.take(everything[::500]).column(0).to_pylist() == list(range(0, 100_000, 500))


def test_only_chunks_with_wanted_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RowStore()
    for first in range(0, 3 << 18, 1 << 18):
        store.append(pyarrow.record_batch({"n": numpy.arange(first, first + (1 << 18))}))
    read: list[int] = []
    places = RowChunk.places

    def reading(chunk: RowChunk, numbers: Any) -> Any:
        read.append(chunk.first)
        return places(chunk, numbers)

    monkeypatch.setattr(RowChunk, "places", reading)
    assert store.take(numbers_of(5, (2 << 18) + 1, 5)).column(0).to_pylist() == [5, (2 << 18) + 1, 5]
    assert read == [0, 2 << 18]


def test_a_row_that_was_removed_is_not_read_and_not_removed_again() -> None:
    store = RowStore()
    store.append(batch(0, 10))
    store.remove(numbers_of(3))
    for call in (store.take, store.remove):
        with pytest.raises(AssertionError, match="a row of a row store was removed"):
            call(numbers_of(3))
        with pytest.raises(AssertionError, match="a row of a row store was removed"):
            call(numbers_of(10))


def test_a_batch_of_other_columns_is_refused_by_name() -> None:
    store = RowStore("latest/rows")
    store.append(pyarrow.record_batch({"n": [1]}))
    with pytest.raises(
        RowsDiffer, match=r"latest/rows keeps have the columns n: int64, and a batch came with n: string"
    ):
        store.append(pyarrow.record_batch({"n": ["1"]}))


def test_dictionaries_are_stored_as_their_values() -> None:
    store = RowStore()
    for texts in (["a", "b"], ["c", "a"]):
        store.append(pyarrow.record_batch({"text": pyarrow.array(texts).dictionary_encode()}))
    taken = store.take(numbers_of(3, 0, 2))
    assert taken.schema.types == [pyarrow.string()]
    assert taken.column(0).to_pylist() == ["a", "a", "c"]


def test_nothing_is_taken_as_an_empty_batch_with_the_columns() -> None:
    store = RowStore()
    store.append(batch(0, 3))
    assert store.take(numbers_of()).schema == store.schema
    store.append(batch(0, 3).slice(0, 0))
    assert len(store) == 3


def test_a_store_holds_the_last_row_of_each_key() -> None:
    backend = StateBackend(None)
    table = backend.column_table("step/keys", ColumnSpec((pyarrow.string(),), {"row": numpy.int64}, {"row": -1}))
    store = backend.row_store("step/rows")
    for keys, values in ((["a", "b", "a"], [1, 2, 3]), (["b", "c", "c"], [4, 5, 6])):
        rows = pyarrow.record_batch({"value": values})
        store.replace(table, "row", table.slots([pyarrow.array(keys)]), rows)
    assert store.take(table.values["row"][table.live()]).column(0).to_pylist() == [3, 4, 6]
    assert len(store) == 3
    gone = table.find([pyarrow.array(["b"])])
    store.discard(table, "row", gone)
    table.remove(gone)
    assert len(store) == 2
