"""Kernels over rows: the same bytes, parts, states and errors as without them."""

from __future__ import annotations

import gc
import itertools
import math
import sys
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.values import Column, ValueMalformed, decode_rows, encode_rows, rows_of
from clonos.core.values.key_encoding import encode_key
from clonos.core.values.keys import Router, key_group, split_rows
from clonos.core.values.rows import LazyRows, column_of, key_place, take_rows
from clonos.kernels import choice
from clonos.operators.kinds.object_pane_batch import by_pane
from clonos.operators.state.keyed_state import Table
from clonos.operators.steps.keyed import beside, pair_of
from clonos.operators.windows.grid import UtcGrid

INTS, TUPLES, PLACE = 2, 7, 14
EDGES = [edge + step for edge in (0, 32, 128, 1 << 8, 1 << 16, 1 << 32, 1 << 63, 1 << 64) for step in (-1, 0, 1)]

cells = st.one_of(
    st.sampled_from([*EDGES, *(-edge for edge in EDGES)]),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.just("\ud800"),
    st.none(),
    st.booleans(),
    st.binary(max_size=3),
)
columns = st.one_of(*(st.lists(each, max_size=20) for each in (st.integers(), st.floats(), st.text(), cells)))


@pytest.fixture(autouse=True)
def native() -> Any:
    """The extension."""
    if choice.native is None:
        pytest.skip("the native kernels were not built, or CLONOS_KERNELS is numpy")
    return choice.native


def with_and_without(call: Callable[[], Any]) -> tuple[Any, Any]:
    """Returns what a call gives on the kernels, and without them: a result, or the text of an error."""
    found = []
    for native in (choice.native, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choice, "native", native)
            try:
                found.append(call())
            except Exception as error:  # noqa: BLE001  compared
                found.append(f"{type(error).__name__}: {error}")
    return found[0], found[1]


@given(columns, st.lists(columns, max_size=4), st.booleans())
def test_rows_have_the_same_bytes(first: list[Any], others: list[list[Any]], is_nested: bool) -> None:
    rows: list[Any] = list(zip(first, *others, strict=False)) if others else first
    if is_nested:
        rows = list(zip(rows, rows, strict=True))
    on_kernels, without = with_and_without(lambda: encode_rows(rows))
    assert on_kernels == without
    if isinstance(on_kernels, bytes):
        assert repr(decode_rows(on_kernels)) == repr(rows)


small = st.one_of(st.integers(0, 255), st.sampled_from([0x90, 0x91, 0xC0, 0xCB, 0xCF, 0xD3, 0xD9, 0xDB, 0xDC, 0xDD]))
leaves = st.builds(Column, st.sampled_from([0, 1, 2, 3, 6]), data=st.lists(small, max_size=12).map(bytes))


@given(st.recursive(leaves, lambda parts: st.builds(Column, st.just(7), parts=st.lists(parts, max_size=3).map(tuple))))
def test_wrong_columns_give_the_same_rows_or_the_same_error(column: Column) -> None:
    on_kernels, without = with_and_without(lambda: rows_of(column))
    assert repr(on_kernels) == repr(without)


@given(
    st.one_of(columns, st.lists(st.tuples(st.integers(), st.text(), st.floats(allow_nan=False)), max_size=20)),
    st.data(),
)
def test_rows_that_are_taken_in_pieces_are_those_that_are_made_at_once(rows: list[Any], data: st.DataObject) -> None:
    column = column_of(rows)

    def pieces() -> list[list[Any]]:
        lazy, left = LazyRows(column), len(rows)
        found = []
        for count in counts:
            found.append(lazy.take(min(count, left)))
            left -= len(found[-1])
        return [*found, lazy.take(left)]

    counts = data.draw(st.lists(st.integers(0, 9), max_size=4))
    on_kernels, without = with_and_without(pieces)
    assert repr(on_kernels) == repr(without)
    assert repr([row for piece in on_kernels for row in piece]) == repr(rows)  # no nan equals itself


@pytest.mark.parametrize("data", [b"\x94\x01\x02\x03\xc0", b"\x94\x01\x02\x03\x04\x05"])
def test_a_malformed_row_is_found_where_it_is_made(data: bytes) -> None:
    reader = LazyRows(Column(TUPLES, parts=(Column(INTS, data=data),)))
    assert reader.take(3) == [(1,), (2,), (3,)]
    for _ in range(2):
        with pytest.raises(ValueMalformed):
            reader.take(1)


@pytest.mark.parametrize(
    "place", [b"", b"\xc0", b"\x01\x01", b"\xcf" + b"\xff" * 8], ids=["none", "nil", "two", "large"]
)
def test_a_malformed_place_of_keys_is_a_malformed_batch(place: bytes) -> None:
    beside = Column(TUPLES, parts=(Column(INTS, data=b"\x91\x01"),))
    with pytest.raises(ValueMalformed):
        LazyRows(Column(TUPLES, parts=(Column(PLACE, data=place), beside)))


def test_no_more_rows_are_made_than_there_are(native: Any) -> None:
    reader, count = native.open_rows((INTS, b"\x92\x07\x08"))
    assert count == 2
    for wrong in (3, -1):
        with pytest.raises(IndexError):
            native.next_rows(reader, wrong)
    assert native.next_rows(reader, 2) == [7, 8]
    assert native.next_rows(reader, 0) == []
    with pytest.raises(ValueError, match="PyCapsule"):
        native.next_rows(7, 0)


def test_decoded_rows_are_not_shared() -> None:
    data = encode_rows([((1, "a"), 2.5), ((300, "b"), 1.5)])
    first, second = decode_rows(data), decode_rows(data)
    assert first == second == [((1, "a"), 2.5), ((300, "b"), 1.5)]
    assert first is not second


def test_texts_that_come_again_are_those_that_a_decoder_makes() -> None:
    texts = [f"{number % 300}{'é' * (number % 7 == 0)}{'x' * (number % 50)}" for number in range(2_000)]
    data = encode_rows(texts)
    for _ in range(3):
        assert decode_rows(data) == texts
    others = [text.upper() + "?" for text in texts]  # at the places of known ones
    assert decode_rows(encode_rows(list(zip(others, texts, strict=True)))) == list(zip(others, texts, strict=True))


@pytest.mark.parametrize("given", [(7,), 7, (7, ()), (7, []), (2, "text"), (9, b""), ("a", b""), (7, ((2, b""),) * 99)])
def test_a_specification_of_another_form_is_refused(native: Any, given: Any) -> None:
    try:
        assert native.open_rows(given) is None
    except TypeError:
        assert given == ("a", b"")


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
@pytest.mark.parametrize("cell", [7, -1, 1.5, "a", "é", "a" * 31, "a" * 32, "a" * 255, "a" * 256])
def test_long_columns_have_the_same_bytes(cell: object, count: int) -> None:
    on_kernels, without = with_and_without(lambda: encode_rows([cell] * count))
    assert on_kernels == without


def test_texts_beyond_two_bytes_of_length_have_the_same_bytes() -> None:
    on_kernels, without = with_and_without(lambda: encode_rows(["a" * 65_535, "é" * 65_536, "b"]))
    assert on_kernels == without


def test_tuples_of_different_lengths_have_the_same_bytes() -> None:
    kinds: list[list[Any]]
    kinds = [[(1, 2), (3,)], [(1, 2), [3, 4]], [()], [(1,), 2], [(1, "a"), ("b", 2)], [(None, 1), (None, 2)]]
    for rows in kinds:
        on_kernels, without = with_and_without(partial(encode_rows, rows))
        assert on_kernels == without


@given(st.lists(st.one_of(st.integers(-5, 5), st.booleans(), st.sampled_from("abc")), max_size=60), st.integers(1, 4))
def test_rows_go_to_the_same_receivers(keys: list[Any], width: int) -> None:
    rows = [(key, index) for index, key in enumerate(keys)]
    on_kernels, without = with_and_without(lambda: Router(width, 128, 3).split(keys, rows))
    assert on_kernels == without
    timed, without_kernels = with_and_without(lambda: Router(width, 128, 3).split(keys, rows, list(range(len(rows)))))
    assert timed == without_kernels == (*on_kernels, [[index for _, index in part] for part in on_kernels[0]])


TASKS = array("i", [0])


@pytest.mark.parametrize("receiver", [2, -1, 1 << 70])
def test_a_receiver_that_does_not_exist_is_refused(native: Any, receiver: int) -> None:
    with pytest.raises((IndexError, OverflowError)):
        native.split_rows([b"a"], ([1],), 0, TASKS, {b"a": receiver}, ([[], []],))


@pytest.mark.parametrize("tasks", [array("i"), array("i", [2]), array("i", [-1])])
def test_a_receiver_of_a_key_group_that_does_not_exist_is_refused(native: Any, tasks: Any) -> None:
    with pytest.raises((IndexError, ValueError)):
        native.split_rows(["a"], ([1],), 0, tasks, {}, ([[], []],))


@given(
    st.lists(st.one_of(st.integers(), st.sampled_from(EDGES), st.text(max_size=200)), max_size=20), st.integers(1, 200)
)
def test_a_key_has_the_group_of_its_bytes(keys: list[Any], groups: int) -> None:
    parts = Router(groups, groups).split(keys, keys)[0]
    assert all(key in parts[key_group(encode_key(key), groups)] for key in keys)


def test_numbers_of_keys_and_rows_are_compared(native: Any) -> None:
    for keys, rows, first in ((["a"], [], 0), ([], [1], 0), (["a"], [1], -1)):
        with pytest.raises(ValueError, match="keys of"):
            native.split_rows(keys, (rows,), first, TASKS, {}, ([[]],))


@given(
    st.lists(st.one_of(st.integers(-50, 50), st.sampled_from([-(1 << 63), (1 << 63) - 1])), min_size=1, max_size=60),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_rows_come_to_the_same_panes_in_the_same_order(instants: list[int], pane_ns: int, offset_ns: int) -> None:
    grid, rows = UtcGrid(pane_ns, offset_ns), list(range(len(instants)))
    on_kernels, without = with_and_without(lambda: list(by_pane(grid, rows, array("q", instants)).items()))
    assert on_kernels == without == list(by_pane(grid, rows, instants).items())


@pytest.mark.parametrize(
    ("columns", "parts"),
    [((), ()), (([1],), ()), (([1], [2, 3]), ([[]], [[]])), (([1], (2,)), ([[]], [[]])), (([1],), ((),))],
)
def test_columns_and_their_parts_are_lists_of_one_length(native: Any, columns: Any, parts: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        native.split_rows(["a"], columns, 0, TASKS, {}, parts)


CELLS = st.one_of(
    st.sampled_from([0, 1, True, 1.0, "1", None, 300, -1, 1 << 70, "ab", math.nan]), st.integers(), st.text()
)


@given(st.data(), st.integers(0, 3), st.booleans())
def test_pairs_are_encoded_the_same_with_their_keys_in_the_rows(data: Any, width: int, are_dicts: bool) -> None:
    values = data.draw(st.lists(st.tuples(*[CELLS] * (width + 1)), max_size=5))
    place = data.draw(st.integers(0, width))
    names = ["b", "a", "d", "c"]
    rows: list[Any] = [dict(zip(names, row, strict=False)) for row in values] if are_dicts else values
    keys = [row[place] for row in values]
    on_kernels, without = with_and_without(lambda: encode_rows(rows, keys))
    assert on_kernels == without
    expected = repr(list(zip(keys, rows, strict=True)))
    assert with_and_without(lambda: repr(decode_rows(on_kernels))) == (expected, expected)


@pytest.mark.parametrize("key", [7, 1 << 70, "text", "\ud800"])
@pytest.mark.parametrize(
    "make", [lambda key: (None, key, key), lambda key: {1.5: "a", "key": key}], ids=["tuples", "dicts"]
)
def test_keys_that_are_in_their_rows_are_not_sent_again(key: Any, make: Any) -> None:
    rows = [make(key), make(key * 2)]
    keys = [key, key * 2]
    assert key_place(keys, rows) == 1
    assert len(encode_rows(rows, keys)) <= len(encode_rows(list(zip(keys, rows, strict=True))))
    assert repr(decode_rows(encode_rows(rows, keys))) == repr(list(zip(keys, rows, strict=True)))


class Word(str):
    """Text of a type of the user."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("keys", "rows"),
    [
        ([True, True], [(True,), (True,)]),
        ([1, 1], [(True,), (1,)]),
        ([1, 1], [(1.0,), (1.0,)]),
        (["a", "b"], [("a",), (Word("b"),)]),
        ([Word("a")], [(Word("a"),)]),
        ([None, None], [(None,), (None,)]),
        ([1, 2], [(2, 1), (1, 3)]),
        ([1, 2], [(), ()]),
        ([1, 2], [[1], [2]]),
        ([1, 2], [{"a": 1}, {"a": 3}]),
    ],
)
def test_a_key_is_in_its_row_only_with_its_own_type_and_in_every_row(native: Any, keys: Any, rows: Any) -> None:
    assert native.key_place(keys, rows) is None


def test_a_place_of_keys_keeps_what_it_returns_alive() -> None:
    rows = [("key " + str(number), number) for number in range(100)]
    pairs = decode_rows(encode_rows(rows, [key for key, _ in rows]))
    gc.collect()
    counts = {sys.getrefcount(key) for key, _ in pairs}
    assert len(counts) == 1
    assert all(key is row[0] for key, row in pairs)
    del rows
    assert [key for key, _ in pairs] == ["key " + str(number) for number in range(100)]


@pytest.mark.parametrize(
    "given",
    [
        (PLACE, 0),
        (TUPLES, ((PLACE, 0),)),
        (TUPLES, ((PLACE, 0), (INTS, b"\x91\x07"))),
        (TUPLES, ((PLACE, 1), (TUPLES, ((INTS, b"\x91\x07"),)))),
        (TUPLES, ((PLACE, -2), (TUPLES, ((INTS, b"\x91\x07"),)))),
        (TUPLES, ((INTS, b"\x91\x07"), (PLACE, 0))),
        (TUPLES, ((PLACE, 0), (PLACE, 0))),
        (TUPLES, ((PLACE, 0), (TUPLES, ((PLACE, 0), (PLACE, 0))))),
        (TUPLES, ((PLACE, 0), (TUPLES, ((INTS, b"\x91\x07"),)), (INTS, b"\x91\x07"))),
    ],
)
def test_a_place_of_keys_that_is_not_beside_its_rows_is_malformed(native: Any, given: Any) -> None:
    assert native.open_rows(given) is None

    def column_of(each: Any) -> Column:
        kind, content = each
        if kind == PLACE:
            return Column(kind, data=msgspec.msgpack.encode(content))
        return Column(kind, data=content) if kind == INTS else Column(kind, parts=tuple(map(column_of, content)))

    for found in with_and_without(lambda: rows_of(column_of(given))):
        assert found.startswith(ValueMalformed.__name__)


def test_spans_and_times_of_other_lengths_are_refused(native: Any) -> None:
    for rows, times, starts in (([1], [], [0]), ([], [1], [0]), ([1], [1], [])):
        with pytest.raises(ValueError, match=r"needed|at least one"):
            native.split_by_time(rows, array("q", times), array("q", starts))
    with pytest.raises(ValueError, match="no time"):
        native.bounds(array("q"))


class Shrinking:
    """Key that empties the lists while it is looked up."""

    def __init__(self, *lists: list[Any]) -> None:
        self._lists = lists

    def __hash__(self) -> int:
        for each in self._lists:
            each.clear()
        return 1


def test_lists_may_change_while_a_key_is_looked_up(native: Any) -> None:
    keys: list[Any] = []
    rows = [1, 2]
    keys += [Shrinking(keys, rows), "a"]
    assert native.split_rows(keys, (rows,), 0, TASKS, {"a": 0}, ([[]],)) == 0
    assert split_rows(["a"], ([1],), 0, TASKS, {"a": 0}, ([[]],)) == 1


class Dropping:
    """Key with the hash of a text, which drops the rows when it is compared with it."""

    def __init__(self, text: str, rows: list[Any], *, is_equal: bool) -> None:
        self._text, self._rows, self._is_equal = text, rows, is_equal

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        self._rows.clear()
        return self._is_equal and other == self._text


def made(text: str) -> str:
    """Returns an equal text, with no other reference to it."""
    return "".join(list(text))


@pytest.mark.parametrize("is_state", [True, False])
def test_rows_may_be_dropped_while_their_keys_are_compared(native: Any, is_state: bool) -> None:
    rows: list[Any] = []
    stored: dict[Any, Any] = {Dropping("key of a row", rows, is_equal=is_equal): 7 for is_equal in (False, True)}
    rows.append((made("key of a row"), 1))
    entries, changed = (stored, {}) if is_state else ({}, stored)
    results: list[Any] = []
    records = iter([("other key", 5)])
    assert native.fold_rows(
        records, rows, lambda _key, _state, value: (value, value), entries, changed, results, *[None] * 3
    )
    assert (rows, results, entries["other key"]) == ([], [5], 5)


class Ending:
    """Key that empties the table of receivers when it ends."""

    def __init__(self, targets: dict[Any, int], keys: list[Any]) -> None:
        self._targets, self._keys = targets, keys

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        self._keys.clear()
        return True

    def __del__(self) -> None:
        self._targets.clear()


def test_a_receiver_may_be_dropped_with_its_key(native: Any) -> None:
    targets: dict[Any, int] = {1: int("1" + "0" * 9)}  # the key of the row equals it
    keys: list[Any] = []
    keys.append(Ending(targets, keys))
    with pytest.raises(IndexError, match="receiver 1000000000 was given"):
        native.split_rows(keys, (["row"],), 0, TASKS, targets, ([[]],))


def by_hand(records: Iterator[Any], function: Any, table: Table, results: list[Any]) -> None:
    """Does what the kernel does."""
    for key, value in records:
        state, result = pair_of(function(key, table.entries.get(key), value))
        if state is None:
            table.delete(key)
        else:
            table.set(key, state)
        results.append(beside(state, result))


def folded(rows: list[Any], function: Any, native: Any, before: dict[Any, Any]) -> tuple[Any, ...]:
    """Returns results, table and the rows that were not taken, with a kernel or without one."""
    table, error = Table(dict(before)), ""
    results: list[Any] = []
    records: Any = iter(rows)
    try:
        if native is None:
            by_hand(records, function, table, results)
        else:
            places = table.entries, table.changed, results
            assert native.fold_rows(records, rows, function, *places, table.delete, pair_of, beside)
    except Exception as raised:  # noqa: BLE001  compared
        error = f"{type(raised).__name__}: {raised}"
    tables = list(table.entries.items()), list(table.changed), list(table.deleted)
    return results, *tables, records.__length_hint__(), error


def listed(key: Any, state: Any, value: Any) -> Any:
    """Keeps a list, a number or nothing; some values are errors."""
    if value == "raise":
        raise RuntimeError(key)
    if value == "none":
        return None, state
    if value == "one":
        return (1,)
    if value == "list":
        return [state, value]
    if value == "number":
        return 1
    if value == "dict":
        return {"state": 1, "result": 2}
    new_state = [*(state if isinstance(state, list) else []), value] if value % 2 else (state, value)
    return new_state, new_state


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=5))
def test_rows_are_moved_out_of_pieces(cuts: list[tuple[int, int]]) -> None:
    rows = [object() for _ in range(10)]
    lists = [list(rows) for _ in cuts]
    pieces = [(each, first, count) for each, (first, count) in zip(lists, cuts, strict=True)]
    assert take_rows(pieces) == [row for first, count in cuts for row in rows[first : first + count]]
    for each, (first, count) in zip(lists, cuts, strict=True):
        assert each == [*rows[:first], *[None] * count, *rows[first + count :]]


@pytest.mark.parametrize(
    "piece", [([1], 0, 2), ([1], 2, 0), ([1], -1, 1), ([1], 0, -1), ([1], 1 << 62, 1 << 62), 5, ()]
)
def test_rows_beyond_a_piece_are_refused(native: Any, piece: Any) -> None:
    for count in (0, 1, 2):
        with pytest.raises((IndexError, TypeError)):
            native.take_rows([piece], count)
    for count in (1, 3):
        with pytest.raises((IndexError, ValueError)):
            native.take_rows([([1, 2], 0, 2)], count)
    with pytest.raises(ValueError, match="-1 rows"):
        native.take_rows([], -1)


class DroppingPieces:
    """Place in a piece that drops all pieces, with their lists, when it is read."""

    def __init__(self, pieces: list[Any]) -> None:
        self._pieces = pieces

    def __index__(self) -> int:
        self._pieces.clear()
        return 0


def test_a_piece_may_be_dropped_while_its_places_are_read(native: Any) -> None:
    pieces: list[Any] = []
    pieces.append(([made("row")], DroppingPieces(pieces), 1))
    assert native.take_rows(pieces, 1) == ["row"]


def test_records_that_are_no_iterator_are_refused(native: Any) -> None:
    with pytest.raises(TypeError, match=r"\[\] is no iterator"):
        native.fold_rows([], [], listed, {}, {}, [], *[None] * 3)


values = st.one_of(st.integers(0, 9), st.just("none"), st.sampled_from(["raise", "one", "list", "number", "dict"]))


@given(
    st.lists(st.tuples(st.one_of(st.integers(0, 4), st.sampled_from("ab"), st.just(b"a")), values), max_size=30),
    st.dictionaries(st.integers(0, 4), st.integers(0, 9), max_size=3),
)
def test_a_function_with_state_does_the_same(rows: list[Any], before: dict[Any, Any]) -> None:
    on_kernel = folded(rows, listed, choice.native, before)
    assert on_kernel == folded(rows, listed, None, before)
    new_state = dict(on_kernel[1])
    for result in on_kernel[0]:
        assert not any(result is state for state in new_state.values() if isinstance(state, list))


@pytest.mark.parametrize("rows", [[(1, 2), (True, 1)], [(1, 2), (("a",), 1)], [(1, 2, 3)], [[1, 2]], [1]])
def test_rows_whose_keys_do_not_represent_themselves_are_left_alone(native: Any, rows: list[Any]) -> None:
    table = Table({})
    results: list[Any] = []
    records = iter(rows)
    places = table.entries, table.changed, results
    assert not native.fold_rows(records, rows, listed, *places, table.delete, pair_of, beside)
    assert (results, table.entries, list(records)) == ([], {}, rows)


class Numbers(dict[Any, Any]):
    """Counters, as the operator that counts has them: it makes those that are missing."""

    def __missing__(self, key: Any) -> Any:
        counter = self[key] = itertools.count(10)
        return counter


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(), st.sampled_from(["a", "b", b"a"])), max_size=40))
def test_keys_are_counted_as_without_the_kernel(keys: list[Any]) -> None:
    counters, twin = Numbers(), Numbers()
    assert choice.native is not None
    assert choice.native.count_keys(keys, counters) == [(key, next(twin[key])) for key in keys]
    assert repr(counters) == repr(twin)


@pytest.mark.parametrize("key", [True, 1.5, None, ("a",), [1]])
def test_keys_that_do_not_represent_themselves_are_not_counted(native: Any, key: Any) -> None:
    counters = Numbers()
    assert native.count_keys([1, key], counters) is None
    assert not counters


def test_keys_may_be_dropped_while_they_are_counted(native: Any) -> None:
    keys: list[Any] = []
    counters = {Dropping("key", keys, is_equal=True): itertools.count(5)}
    keys += [made("key"), made("other")]
    with pytest.raises(ValueError, match="keys became fewer"):
        native.count_keys(keys, counters)
    keys.append(made("key"))
    assert native.count_keys(keys, counters) == [("key", 6)]


@pytest.mark.parametrize("counter", [5, "text", iter(())])
def test_a_counter_without_a_next_number_is_refused(native: Any, counter: Any) -> None:
    with pytest.raises(TypeError, match="has no next number"):
        native.count_keys(["a"], {"a": counter})
    with pytest.raises(KeyError):
        native.count_keys(["b"], {"a": counter})
