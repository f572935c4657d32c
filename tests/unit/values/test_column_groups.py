"""Key groups of columns are those of the same keys in rows, on native kernels and on their twins."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.values import ValueBeyondLimit
from clonos.core.values.column_keys import KeyGroups
from clonos.core.values.key_encoding import KeyUnsupported, encode_key
from clonos.core.values.keys import Router, key_group
from clonos.core.values.value_limits import KEY_BYTES_MAX
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

EDGES = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, -32768, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
TEXTS = st.one_of(st.text(max_size=4), st.integers(0, 300).map(lambda size: "x" * size), st.text(max_size=60))
INSTANTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(datetime.UTC))
VALUES_OF: dict[Any, st.SearchStrategy[Any]] = {
    pyarrow.int64(): st.sampled_from(EDGES) | st.integers(-(1 << 63), (1 << 63) - 1),
    pyarrow.uint64(): st.sampled_from([(1 << 64) - 1, 1 << 63]) | st.integers(0, (1 << 64) - 1),
    pyarrow.int8(): st.integers(-128, 127),
    pyarrow.uint32(): st.integers(0, (1 << 32) - 1),
    pyarrow.string(): TEXTS,
    pyarrow.large_string(): TEXTS,
    pyarrow.binary(): TEXTS.map(str.encode),
    pyarrow.string_view(): TEXTS,
    pyarrow.large_binary(): st.binary(max_size=200),
    pyarrow.bool_(): st.booleans(),
    pyarrow.date32(): st.dates(),
    pyarrow.timestamp("us", "UTC"): INSTANTS,
    pyarrow.timestamp("s", "Europe/Berlin"): INSTANTS.map(lambda instant: instant.replace(microsecond=0)),
    pyarrow.null(): st.none(),
}


@st.composite
def key_columns(draw: st.DrawFn) -> list[Any]:
    """Columns of equal length, perhaps slices, dictionaries and with nulls."""
    kinds = draw(st.lists(st.sampled_from(list(VALUES_OF)), min_size=1, max_size=3))
    rows, first = draw(st.integers(0, 20)), draw(st.integers(0, 9))
    columns = []
    for kind in kinds:
        values = VALUES_OF[kind] if draw(st.booleans()) else st.none() | VALUES_OF[kind]
        column = pyarrow.array(draw(st.lists(values, min_size=first + rows, max_size=first + rows)), kind)
        if kind in (pyarrow.string(), pyarrow.int64()) and draw(st.booleans()):
            column = column.dictionary_encode()
        columns.append(column.slice(first))
    return columns


def keys_in_rows(columns: list[Any]) -> list[Any]:
    lists = [column.to_pylist() for column in columns]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


@given(st.lists(key_columns(), min_size=1, max_size=3), st.sampled_from([1, 128, 1000]), st.sampled_from([3, 1 << 20]))
def test_a_key_in_columns_has_the_group_of_the_key_in_rows(batches: list[Any], width: int, keys_max: int) -> None:
    groups = KeyGroups(width, keys_max)
    for columns in batches:
        wanted = [key_group(encode_key(key), width) for key in keys_in_rows(columns)]
        for _ in range(2):  # the second time from what it remembers
            assert groups.of(columns).tolist() == wanted


def test_keys_of_each_length_are_hashed_as_in_rows() -> None:
    for size in (*range(18), *range(29, 35), *range(61, 67), *range(93, 99), *range(122, 132), 300):
        letter = "abcdefghijklmnopqrstuvwxyz"[size % 26]
        keys = [letter * size, "ä" * (size // 2), "".join(map(chr, range(32, 32 + size)))]
        wanted = [key_group(encode_key(key), 1 << 14) for key in keys]
        assert KeyGroups(1 << 14).of([pyarrow.array(keys)]).tolist() == wanted, size


def test_the_tasks_of_key_groups_are_those_of_a_router() -> None:
    keys = list(range(-500, 500))
    for tasks in (1, 2, 7, 128):
        router = Router(tasks, 128)
        assert router.tasks_of(KeyGroups(128).of([pyarrow.array(keys)])).tolist() == list(map(router.target, keys))


def test_a_sender_forgets_the_groups_of_many_keys(kernels: str) -> None:
    groups = KeyGroups(128, keys_max=10)
    for day in range(100):
        groups.of([pyarrow.array([day], pyarrow.date32())])
        assert len(groups) <= 10


@pytest.mark.parametrize(
    "column",
    [[1.5], [[1]], [{"a": 1}], [datetime.datetime(2024, 1, 1)], [datetime.time(1)], [datetime.timedelta(1)]],
    ids=str,
)
def test_a_value_that_cannot_be_a_key_is_refused_and_leaves_nothing(column: list[Any]) -> None:
    groups = KeyGroups(128)
    for _ in range(2):
        with pytest.raises(KeyUnsupported):
            groups.of([pyarrow.array(column)])
        with pytest.raises(KeyUnsupported):
            groups.of([pyarrow.array(["a"]), pyarrow.array(column)])


def test_a_key_beyond_the_limit_is_refused_wherever_it_is() -> None:
    groups = KeyGroups(128)
    for text in ("x" * KEY_BYTES_MAX, b"x" * KEY_BYTES_MAX):
        for _ in range(2):
            with pytest.raises(ValueBeyondLimit):
                groups.of([pyarrow.array([text[:1], text])])
