"""Wrong bytes raise the malformed error only: no other error, no class and no call of the sender's choice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos.core.values import ValueMalformed, decode_rows, decode_value, encode_rows, encode_value, value_limits
from clonos.core.values.key_encoding import decode_key
from clonos.core.values.rows import DICTS, INT, RECORDS, TUPLES, Column
from clonos.core.values.tree import DICT, LIST, MEMBER, RECORD, SET
from tests.unit.values.golden import KEYS, ROWS, VALUES, lines
from tests.unit.values.samples import STEADY

GOLDEN = {name: bytes.fromhex(data) for name, data in lines().items()}


@st.composite
def damaged(draw: st.DrawFn, names: list[str]) -> bytes:
    """Golden bytes with a piece cut out, changed, doubled or put in."""
    data = GOLDEN[draw(st.sampled_from(names))]
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + 4)))
    piece = draw(st.one_of(st.just(b""), st.binary(min_size=1, max_size=4), st.just(data[start:end] * 2)))
    return data[:start] + piece + data[end:]


@STEADY
@given(st.one_of(st.binary(max_size=40), damaged(list(VALUES))))
def test_damaged_bytes_of_a_value_are_malformed_or_another_value(data: bytes) -> None:
    try:
        value = decode_value(data)
    except ValueMalformed:
        return
    encode_value(value)


@STEADY
@given(st.one_of(st.binary(max_size=40).map(b"\x01".__add__), damaged(list(ROWS))))
def test_damaged_bytes_of_a_batch_are_malformed_or_another_batch(data: bytes) -> None:
    try:
        rows = decode_rows(data)
    except ValueMalformed:
        return
    assert isinstance(rows, list)
    encode_rows(rows)


@STEADY
@given(st.one_of(st.binary(max_size=20), damaged(list(KEYS))))
@example(b"t\xff\xff\xff\xff")
@example(b"d\xff\xff\xff")
def test_damaged_bytes_of_a_key_are_malformed_or_another_key(data: bytes) -> None:
    try:
        decode_key(data)
    except ValueMalformed:
        return


def test_truncated_bytes_are_malformed() -> None:  # but those of a key: a shorter text is another key
    for name in (*VALUES, *ROWS):
        decode = decode_value if name in VALUES else decode_rows
        for length in range(len(GOLDEN[name])):
            with pytest.raises(ValueMalformed):
                decode(GOLDEN[name][:length])


TREES: dict[str, tuple[Any, str]] = {
    "an unknown kind": ([99], "kind 99"),
    "no kind": ([], "without the number of a kind"),
    "a kind that is no int": (["os.system", "true"], "without the number of a kind"),
    "a map": ({"a": 1}, "dict"),
    "an extension": (msgspec.msgpack.Ext(5, b"x"), "Ext"),
    "an unknown class": ([RECORD, "os.system", "command", "true"], "no class is registered as 'os.system'"),
    "a class for an enum": ([MEMBER, "samples.Point", "RED"], "no class is registered"),
    "a member that is not there": ([MEMBER, "samples.Color", "BLUE"], "BLUE"),
    "other fields": ([RECORD, "samples.Point", "x weight", 1, 2], "fields"),
    "too few fields": ([RECORD, "samples.Point", "x label", 1], "."),
    "a key twice": ([DICT, 1, 2, 1, 3], "twice"),
    "a key without value": ([DICT, 1], "."),
    "an unhashable key": ([DICT, [LIST], 1], "unhashable"),
    "an item twice": ([SET, 1, 1], "twice"),
    "a text as decimal": ([11, "one"], "."),
    "a code for a code point": ([6, "text"], "bytes"),
    "month 13": ([8, 2024, 13, 1], "month"),
    "an unknown zone": ([7, 2024, 1, 1, 0, 0, 0, 0, 0, "No/Where"], "No/Where"),
    "a path as zone": ([7, 2024, 1, 1, 0, 0, 0, 0, 0, "../../etc/passwd"], "."),
}


@pytest.mark.parametrize("name", TREES)
def test_wrong_trees_are_malformed_with_the_reason(name: str) -> None:
    tree, reason = TREES[name]
    with pytest.raises(ValueMalformed, match=reason):
        decode_value(msgspec.msgpack.encode(tree))


ONES = msgspec.msgpack.encode([1, 1])
COLUMNS: dict[str, Column] = {
    "an unknown kind": Column(99, parts=(Column(INT, data=ONES),)),
    "no parts": Column(TUPLES),
    "columns of different lengths": Column(TUPLES, parts=(Column(INT, data=ONES), Column(INT, data=b"\x91\x01"))),
    "text among ints": Column(INT, data=msgspec.msgpack.encode([1, "x"])),
    "a list among ints": Column(INT, data=msgspec.msgpack.encode([1, [0]])),
    "a key twice": Column(DICTS, ("k", "k"), parts=(Column(INT, data=ONES), Column(INT, data=ONES))),
    "a key too many": Column(DICTS, ("k", "l"), parts=(Column(INT, data=ONES),)),
    "an unknown class": Column(RECORDS, ("os.system", "command"), parts=(Column(INT, data=ONES),)),
    "other fields": Column(RECORDS, ("samples.Frozen", "command"), parts=(Column(INT, data=ONES),)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_wrong_columns_are_malformed(name: str) -> None:
    with pytest.raises(ValueMalformed):
        decode_rows(b"\x01" + msgspec.msgpack.encode(COLUMNS[name]))


def test_fields_in_another_order_are_matched_by_name() -> None:
    tree = [RECORD, "samples.Point", "label x", "here", 1]
    value: Any = decode_value(msgspec.msgpack.encode(tree))
    assert (value.x, value.label) == (1, "here")
    column = Column(
        RECORDS,
        ("samples.Point", "label", "x"),
        parts=(Column(INT, data=ONES), Column(TUPLES, parts=(Column(INT, data=ONES),))),
    )
    rows: list[Any] = decode_rows(b"\x01" + msgspec.msgpack.encode(column))
    assert [(row.x, row.label) for row in rows] == [((1,), 1), ((1,), 1)]


@pytest.mark.parametrize("depth", [value_limits.VALUE_DEPTH_MAX + 1, 1000, 100_000])
def test_trees_that_are_too_deep_are_malformed(depth: int) -> None:
    with pytest.raises(ValueMalformed):
        decode_value(b"\x92\x00" * depth + b"\xc0")
    with pytest.raises(ValueMalformed):
        decode_rows(b"\x01" + b"\x94\x07\x90\xc4\x00\x91" * depth)


@pytest.mark.parametrize("data", [b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xdd\x7f\xff\xff\xff" * 500])
def test_a_false_length_allocates_no_memory(data: bytes) -> None:
    with pytest.raises(ValueMalformed):
        decode_value(data)


def test_more_bytes_than_the_limit_are_refused_unread() -> None:
    with pytest.raises(ValueMalformed, match="limit"):
        decode_value(b"\xa3abc", bytes_max=3)
