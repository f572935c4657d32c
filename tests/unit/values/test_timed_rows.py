"""Rows with timestamps: what is decoded equals what was encoded, and the timestamps travel beside the rows."""

from __future__ import annotations

import sys
from array import array
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.model.element_kind import ElementKind
from clonos.core.values import (
    TimedRows,
    ValueBeyondLimit,
    ValueMalformed,
    ValueUnsupported,
    column_of,
    decode_rows,
    decode_timed_rows,
    encode_rows,
    encode_timed_rows,
)
from clonos.core.values.elements import cut_elements, decode_elements, decode_records, join_elements
from tests.unit.values.golden import TIMED
from tests.unit.values.samples import STEADY

INSTANTS = st.integers(-(1 << 63), (1 << 63) - 1)
AT_NS = 1_700_000_000_000_000_000


def sealed(times: object, rows: list[Any]) -> bytes:
    return b"\x02" + msgspec.msgpack.encode([times, column_of(rows)])


@STEADY
@given(st.lists(st.tuples(st.one_of(st.text(max_size=3), st.integers()), st.one_of(INSTANTS, st.integers()))))
def test_rows_and_timestamps_survive_the_way(records: list[tuple[Any, int]]) -> None:
    rows, times = [row for row, _ in records], [time for _, time in records]
    found = decode_timed_rows(memoryview(encode_timed_rows(rows, times)))
    assert (found.rows, list(found.times)) == (rows, times)
    assert all(type(each) is int for each in found.times)
    assert encode_timed_rows(*found) == encode_timed_rows(rows, times)


def test_timestamps_take_eight_bytes_each_and_stay_packed() -> None:
    rows, times = ["word"] * 1000, list(range(AT_NS, AT_NS + 1000))
    data = encode_timed_rows(rows, times)
    assert len(data) - len(encode_rows(rows)) <= 8 * 1000 + 20
    assert isinstance(decode_timed_rows(data).times, array)


def test_timestamps_make_no_call_per_row() -> None:
    def calls(count: int) -> int:
        made = 0

        def note(frame: FrameType, event: str, argument: object) -> None:
            nonlocal made
            made += event == "call" and "clonos" in frame.f_globals.get("__name__", "")

        earlier = sys.getprofile()
        sys.setprofile(note)
        try:
            decode_timed_rows(encode_timed_rows(["a"] * count, [AT_NS] * count))
        finally:
            sys.setprofile(earlier)
        return made

    assert calls(2) == calls(1000)


WRONG: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "begin with the byte 2"),
    "rows without timestamps": (encode_rows(["a"]), "begin with the byte 2"),
    "a timestamp too many": (sealed(bytes(16), ["a"]), "2 timestamps for 1 rows"),
    "a timestamp too few": (sealed(bytes(8), ["a", "b"]), "1 timestamps for 2 rows"),
    "a part of a timestamp": (sealed(bytes(9), ["a"]), "9 bytes of timestamps"),
    "texts as timestamps": (sealed(column_of(["x"]), ["a"]), "no int"),
    "a bool as timestamp": (sealed(column_of([True]), ["a"]), "no int"),
    "an int for the timestamps": (sealed(5, ["a"]), "."),
    "a wrong column": (b"\x02" + msgspec.msgpack.encode([bytes(8), [99]]), "."),
    "no rows": (b"\x02" + msgspec.msgpack.encode([bytes(8)]), "."),
    "no msgpack": (b"\x02\xc1", "."),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_bytes_are_malformed_with_the_reason(name: str) -> None:
    data, reason = WRONG[name]
    with pytest.raises(ValueMalformed, match=reason):
        decode_timed_rows(data)


@pytest.mark.parametrize("name", TIMED)
def test_truncated_bytes_are_malformed(name: str) -> None:
    data = encode_timed_rows(*TIMED[name])
    for length in range(len(data)):
        with pytest.raises(ValueMalformed):
            decode_timed_rows(data[:length])


def test_readers_of_rows_without_timestamps_refuse_them() -> None:
    with pytest.raises(ValueMalformed, match="begin with the byte 1"):
        decode_rows(encode_timed_rows(["a"], [AT_NS]))


def test_too_many_bytes_and_rows_without_an_encoding_are_refused() -> None:
    data = encode_timed_rows(["a"], [AT_NS])
    with pytest.raises(ValueBeyondLimit, match="bytes"):
        encode_timed_rows(["a"], [AT_NS], bytes_max=len(data) - 1)
    with pytest.raises(ValueMalformed, match="limit"):
        decode_timed_rows(data, bytes_max=len(data) - 1)
    with pytest.raises(ValueUnsupported) as caught:
        encode_timed_rows([("a", 1), ("b", object())], [AT_NS, AT_NS])
    assert caught.value.path == "rows[1][1]"


@STEADY
@given(st.lists(st.lists(INSTANTS, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 8), st.data())
def test_batches_with_timestamps_are_joined_and_cut_like_lists(
    batches: list[list[int]], start: int, data: st.DataObject
) -> None:
    far = data.draw(st.sampled_from([[], [1 << 70]]))  # a timestamp that is not packed
    batches = [*batches, far] if far else batches
    parts = [decode_elements(ElementKind.ROWS, encode_timed_rows(list(map(str, each)), each)) for each in batches]
    joined = join_elements(ElementKind.ROWS, parts)
    times = [time for each in batches for time in each]
    assert (joined.rows, list(joined.times)) == (list(map(str, times)), times)
    count = data.draw(st.integers(0, 8))
    cut = cut_elements(ElementKind.ROWS, joined, start, count)
    assert isinstance(cut, TimedRows)
    assert (cut.rows, list(cut.times)) == (joined.rows[start : start + count], times[start : start + count])


def test_a_channel_with_timestamps_on_some_rows_only_is_malformed() -> None:
    timed = decode_elements(ElementKind.ROWS, encode_timed_rows(["a"], [AT_NS]))
    with pytest.raises(ValueMalformed, match="with timestamps and without"):
        join_elements(ElementKind.ROWS, [timed, ["b"]])


def test_records_are_rows_without_their_timestamps() -> None:
    assert decode_records(ElementKind.ROWS, encode_timed_rows(["a", 1], [AT_NS, 0])) == ["a", 1]
