"""Narrow ints in snapshots: every array comes back as it was, and damaged bytes are refused."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.operators.state.column_spec import LEAST_BYTES, NARROWED_MIN, bytes_of, narrowed, widened

INTS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
OTHERS = ["f4", "f8", "V16", "?"]


@given(st.data(), st.sampled_from(INTS), st.integers(0, 3 * NARROWED_MIN))
def test_narrowed_ints_are_widened_to_what_they_were(data: st.DataObject, code: str, count: int) -> None:
    limits = numpy.iinfo(code)
    least = data.draw(st.integers(int(limits.min), int(limits.max)))
    most = data.draw(st.integers(least, min(int(limits.max), least + (1 << data.draw(st.integers(0, 64))))))
    drawn = data.draw(st.lists(st.integers(least, most), min_size=count, max_size=count))
    array = numpy.array(drawn, code)
    found = narrowed(array)
    again = widened(found.data, array.dtype, count)
    if again is None:
        assert found.tobytes() == array.tobytes()
    else:
        assert len(found) < array.nbytes
        assert again.dtype == array.dtype
        assert again.tolist() == drawn


@pytest.mark.parametrize(
    ("code", "above", "width"),
    [("i8", 255, 1), ("i8", 256, 2), ("u8", 65_536, 4), ("i4", 255, 1), ("i4", 65_535, 2), ("i2", 255, 1)],
)
def test_ints_have_the_bytes_that_their_range_needs(code: str, above: int, width: int) -> None:
    limits = numpy.iinfo(code)
    for least in (int(limits.min), int(limits.max) - above):
        array = numpy.full(100, least, code)
        array[7] = least + above
        assert len(narrowed(array)) == LEAST_BYTES + 100 * width


@pytest.mark.parametrize(("code", "above"), [("i8", 1 << 32), ("i4", 1 << 16), ("i2", 256), ("u1", 1)])
def test_ints_that_are_far_apart_stay_as_they_are(code: str, above: int) -> None:
    array = numpy.zeros(100, code)
    array[7] = above
    assert narrowed(array).tobytes() == array.tobytes()


@pytest.mark.parametrize("code", OTHERS)
def test_other_types_stay_as_they_are(code: str) -> None:
    array = numpy.zeros(100, code)
    assert narrowed(array).tobytes() == array.tobytes()
    assert widened(bytes_of(array).data, array.dtype, 100) is None


def test_values_of_several_columns_are_narrowed_together() -> None:
    array = numpy.arange(200).reshape(100, 2)
    again = widened(narrowed(array).data, array.dtype, 200)
    assert again is not None
    assert (again.reshape(100, 2) == array).all()


@pytest.mark.parametrize(("code", "least"), [("i4", (1 << 31) - 5), ("i8", (1 << 63) - 5), ("i4", -(1 << 31) - 1)])
def test_a_least_value_that_makes_others_too_large_is_refused(code: str, least: int) -> None:
    data = bytearray(narrowed(numpy.arange(100, dtype=code)).tobytes())
    data[:LEAST_BYTES] = least.to_bytes(LEAST_BYTES, "little", signed=True)
    with pytest.raises(ValueError, match="is beyond int"):
        widened(memoryview(data), numpy.dtype(code), 100)
