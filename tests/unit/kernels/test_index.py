"""The indexes, native and in numpy, against a dict of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.kernels.index import HashIndex, new_index
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBERS = st.one_of(st.integers(-3, 3), INT64, st.integers(0, 300).map(lambda number: number << 40))
BINARIES = st.one_of(st.binary(max_size=3), st.binary(max_size=40), st.integers(0, 300).map(lambda n: b"%020d" % n))
BATCHES_OF_NUMBERS = st.lists(st.lists(NUMBERS, max_size=200), max_size=5)
BATCHES_OF_BINARIES = st.lists(st.lists(BINARIES, max_size=60), max_size=5)
TEXT_TYPES = (pyarrow.binary(), pyarrow.large_binary())


def int64(values: Sequence[int]) -> Any:
    return numpy.array(values, numpy.int64)


def model_slots(model: dict[Any, int], keys: Sequence[Any]) -> list[int]:
    """The slots that a dict gives, in the order of first occurrence."""
    return [model.setdefault(key, len(model)) for key in keys]


def check(index: HashIndex, model: dict[Any, int]) -> None:
    assert len(index) == len(model)
    assert index.keys().tolist() == list(model)


@given(BATCHES_OF_NUMBERS)
def test_slots_of_numbers_are_those_of_a_dict(batches: list[list[int]]) -> None:
    index, model = new_index("int64"), dict[Any, int]()
    for batch in batches:
        assert index.find(int64(batch)).tolist() == [model.get(key, -1) for key in batch]
        slots = index.add(int64(batch))
        assert slots.dtype == numpy.int32
        assert slots.tolist() == model_slots(model, batch)
        assert index.find(int64(batch)).tolist() == slots.tolist()
        check(index, model)


@given(BATCHES_OF_BINARIES, st.sampled_from(TEXT_TYPES))
def test_slots_of_binaries_are_those_of_a_dict(batches: list[list[bytes]], kind: Any) -> None:
    index, model = new_index("bytes"), dict[Any, int]()
    for batch in batches:
        keys = pyarrow.array(batch, kind)
        assert index.find(keys).tolist() == [model.get(key, -1) for key in batch]
        assert index.add(keys).tolist() == model_slots(model, batch)
        check(index, model)


@given(st.lists(st.text(max_size=12), max_size=40), st.sampled_from([pyarrow.string(), pyarrow.large_string()]))
def test_texts_are_keys_by_their_bytes(texts: list[str], kind: Any) -> None:
    index = new_index("bytes")
    slots = index.add(pyarrow.array(texts, kind))
    assert slots.tolist() == model_slots({}, texts)
    assert index.find(pyarrow.array([text.encode() for text in texts], pyarrow.binary())).tolist() == slots.tolist()


@given(st.lists(BINARIES, min_size=2, max_size=50), st.data(), st.sampled_from(TEXT_TYPES))
def test_slices_of_arrays_are_read_at_their_offset(batch: list[bytes], data: st.DataObject, kind: Any) -> None:
    begin = data.draw(st.integers(0, len(batch)))
    size = data.draw(st.integers(0, len(batch) - begin))
    index = new_index("bytes")
    index.add(pyarrow.array(batch, kind).slice(begin, size))
    assert index.keys().to_pylist() == list(dict.fromkeys(batch[begin : begin + size]))


@given(st.lists(NUMBERS, max_size=50), st.integers(1, 4))
def test_arrays_with_strides_are_read(batch: list[int], step: int) -> None:
    index = new_index("int64")
    assert index.add(int64(batch)[::-step]).tolist() == model_slots({}, batch[::-step])


@given(st.lists(NUMBERS, min_size=1, max_size=80, unique=True), st.data())
def test_keys_are_returned_by_slot(keys: list[int], data: st.DataObject) -> None:
    numbers, binaries = new_index("int64"), new_index("bytes")
    texts = [str(key) for key in keys]
    numbers.add(int64(keys))
    binaries.add(pyarrow.array(texts))
    first = data.draw(st.integers(0, len(keys)))
    assert numbers.keys(first).tolist() == keys[first:]
    assert [key.decode() for key in binaries.keys(first).to_pylist()] == texts[first:]
    slots = data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=20))
    assert numbers.keys_at(numpy.array(slots, numpy.int32)).tolist() == [keys[slot] for slot in slots]
    assert binaries.keys_at(numpy.array(slots, numpy.int64)).to_pylist() == [texts[slot].encode() for slot in slots]


def test_an_index_grows_over_many_batches() -> None:
    generator = numpy.random.default_rng(7)
    numbers, binaries = new_index("int64"), new_index("bytes")
    model = dict[Any, int]()
    for _ in range(12):
        batch = generator.integers(0, 30_000, 5_000)
        wanted = model_slots(model, batch.tolist())
        assert numbers.add(batch).tolist() == wanted
        assert binaries.add(pyarrow.array([f"key {key}" for key in batch.tolist()])).tolist() == wanted
    assert len(numbers) == len(binaries) == len(model)
    assert numbers.keys().tolist() == list(model)


def test_an_index_with_room_does_not_grow_until_it_is_full() -> None:
    keys = numpy.arange(5_000) * 7_919
    index, texts = new_index("int64", room=5_000), new_index("bytes", room=5_000)
    before = index.nbytes
    assert index.add(keys).tolist() == list(range(5_000))
    assert index.nbytes == before > new_index("int64").nbytes
    assert index.add(keys + 1).tolist() == list(range(5_000, 10_000))
    assert texts.add(pyarrow.array([f"{key}" for key in keys.tolist()])).tolist() == list(range(5_000))
    assert texts.find(pyarrow.array([f"{keys[4_999]}", "-"])).tolist() == [4_999, -1]


@pytest.mark.parametrize("kind", ["int64", "bytes"])
def test_an_index_has_no_room_for_more_keys_than_it_may_have(kind: Any) -> None:
    assert new_index(kind, slots_max=100, room=1 << 40).nbytes < 10_000


def test_keys_that_differ_in_their_high_bits_alone_are_apart() -> None:
    index = new_index("int64")
    keys = int64([number << 50 for number in range(4096)])
    assert index.add(keys).tolist() == list(range(4096))
    assert index.find(keys).tolist() == list(range(4096))


def test_a_full_index_refuses_another_key_and_goes_on() -> None:
    for index, keys in (
        (new_index("int64", slots_max=3), int64([5, 6, 5, 7, 8, 5])),
        (new_index("bytes", slots_max=3), pyarrow.array([b"5", b"6", b"5", b"7", b"8", b"5"])),
    ):
        with pytest.raises(OverflowError, match="at most 3 keys"):
            index.add(keys)
        assert index.find(keys).tolist() == [0, 1, 0, 2, -1, 0]
        assert index.add(keys[:4]).tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("slots_max", [0, 1 << 31])
def test_an_index_of_more_than_31_bits_is_refused(slots_max: int) -> None:
    with pytest.raises(ValueError, match="1 to 2147483647"):
        new_index("int64", slots_max=slots_max)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="use int64 or bytes"):
        new_index("float")  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [[1, 2], numpy.array([1.0]), numpy.array([1], numpy.int32), numpy.zeros((2, 2), int)])
def test_keys_of_another_type_than_int64_are_refused(keys: Any) -> None:
    index = new_index("int64")
    for call in (index.add, index.find):
        with pytest.raises(TypeError, match="are a numpy array of int64, not"):
            call(keys)


def test_keys_that_are_no_texts_or_null_are_refused() -> None:
    index = new_index("bytes")
    for call in (index.add, index.find):
        with pytest.raises(TypeError, match="not an Arrow array of int64"):
            call(pyarrow.array([1]))
        with pytest.raises(TypeError, match="not list"):
            call([b"a"])
        with pytest.raises(ValueError, match="1 of 2 keys are null"):
            call(pyarrow.array([b"a", None]))


@pytest.mark.parametrize("slot", [-1, 2, 1 << 31, 1 << 62])
def test_a_slot_that_is_not_in_use_is_refused(slot: int) -> None:
    numbers, binaries = new_index("int64"), new_index("bytes")
    numbers.add(int64([1, 2]))
    binaries.add(pyarrow.array([b"1", b"2"]))
    for index in (numbers, binaries):
        with pytest.raises(IndexError, match="0 to 1 are in use"):
            index.keys_at(numpy.array([0, slot]))
        if not 0 <= slot <= 2:
            with pytest.raises(IndexError, match="0 to 2 are possible"):
                index.keys(slot)
        with pytest.raises(TypeError, match="slots are a numpy array of integers"):
            index.keys_at([0])  # type: ignore[arg-type]


def test_the_memory_of_an_index_is_counted() -> None:
    for index, keys in (
        (new_index("int64"), numpy.arange(10_000)),
        (new_index("bytes"), pyarrow.array([f"{key:020}" for key in range(10_000)])),
    ):
        before = index.nbytes
        index.add(keys)
        assert index.nbytes - before > 100_000
