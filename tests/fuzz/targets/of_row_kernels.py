"""Target: the native kernels over rows, given wrong bytes, counts and receivers, and functions that change lists."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime, timedelta
from itertools import count, product
from typing import Any, Final

import msgspec

from clonos.core.values.rows import SCALAR_DECODERS, TUPLES
from clonos.kernels import choice
from clonos.kernels.records import END_US, FIRST_US
from tests.fuzz.target import Target, of_bytes

KINDS: Final = (1, 2, 3)
"""Kinds of columns that the kernels know: texts, ints and floats."""

EPOCH: Final = datetime(1970, 1, 1)

TAGS: Final = [bytes([tag]) for tag in (0x9F, 0xCB, 0xCC, 0xCF, 0xD3, 0xD9, 0xDA, 0xDB, 0xDC, 0xDD)]
"""Tags of msgpack after which bytes follow, for inputs that end there."""


class Refused(Exception):
    """A function of the user has failed."""


DECLARED: Final = (ValueError, IndexError, TypeError, OverflowError, Refused)


def targets() -> list[Target]:
    """Targets of this file; none without the extension."""
    if choice.native is None:
        return []
    return [Target("native kernels of rows", of_bytes(_samples(), TAGS), _call, DECLARED, share=20)]


def _samples() -> list[bytes]:
    encode = msgspec.msgpack.encode
    texts, ints, floats = (
        ["a", "", "straße" * 9, "x" * 300],
        [1, -1, 300, -(1 << 40), (1 << 64) - 1],
        [0.5, -0.0, 1e300],
    )
    packed = [encode(each) for each in (texts, ints, floats, list(range(20)))]
    rows = [encode([["a", 1, 2.5], ["b", -7, 0.0]]), encode([[1, [2]], [3, [4]]]), encode([[1], [2, 3]])]
    order = struct.pack("<6b", 0, 1, 0, 2, 1, 0)
    return [
        *(_input(0, 6 * kind, each, packed[0]) for kind in range(4) for each in packed),
        *(_input(0, 6 * kind, b"\x92\x01" + tag, b"") for kind, tag in product((1, 2, 3), TAGS)),
        *(_input(1, 0, each, b"") for each in (*packed, *rows)),
        *(_input(2, flag, order, order) for flag in (0, 1, 2, 4, 8)),
        *(_input(3, flag, struct.pack("<6b", 0, 2, 1, 3, 5, 1), b"abcdef") for flag in (3, 4, 6)),
        *(_input(4, flag, order, bytes(range(7))) for flag in (0, 1, 2)),
        *(_input(5, flag, struct.pack("<4q", 0, -1, FIRST_US, END_US - 1), b"") for flag in (0, 1, 2)),
        *(_input(6, flag, b"abc", b"abcdef") for flag in (0, 1, 2, 16)),
        *(_input(7, flag, b"abcab", second) for flag, second in ((0, b""), (1, b"a"), (128, b""), (0, b"c"))),
    ]


def _input(kernel: int, flag: int, first: bytes, second: bytes) -> bytes:
    return bytes([kernel, flag]) + len(first).to_bytes(2, "little") + first + second


def _call(data: bytes) -> None:
    kernel, flag, size = data[:1], data[1:2], int.from_bytes(data[2:4], "little")
    first, second = data[4 : 4 + size], data[4 + size :]
    KERNELS[int.from_bytes(kernel, "little") % len(KERNELS)](
        choice.native, int.from_bytes(flag, "little"), first, second
    )


def _unpack(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """What the kernel reads, msgspec reads too."""
    one, other = flag % 5, flag // 5 % 5  # kinds of columns, with some that do not exist
    parts = ((one, first), (TUPLES, ((one, first), (other, second if flag & 128 else first))))
    opened = native.open_rows((TUPLES, parts))
    if opened is None:
        return
    reader, count = opened
    cut = min(flag & 15, count)
    pieces = [native.next_rows(reader, each) for each in (cut, count - cut)]
    if None in pieces:
        assert pieces[1] is None
        return
    rows = [row for piece in pieces for row in piece]
    try:
        columns = [SCALAR_DECODERS[kind].decode(each) for kind, each in ((one, first), parts[1][1][1])]
    except msgspec.MsgspecError as error:
        raise AssertionError("the kernel has read what msgspec refuses") from error
    wanted = [(cell, (cell, beside)) for cell, beside in zip(*columns, strict=True)]
    assert repr(rows) == repr(wanted)  # as texts, because no nan equals itself


def _pack(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """What the kernel packs has the cells that it was given."""
    cells = msgspec.msgpack.decode(first)
    _check_packed(native.pack_cells(cells), cells)
    if isinstance(cells, list):
        rows = [tuple(each) if isinstance(each, list) else each for each in cells]
        columns = native.pack_tuples(rows)
        for place, column in enumerate(columns or ()):
            _check_packed(column, [row[place] for row in rows])


def _check_packed(found: Any, cells: Any) -> None:
    if isinstance(found, tuple):
        kind, data = found
        assert kind in KINDS
        assert repr(SCALAR_DECODERS[kind].decode(data)) == repr(cells)
    else:
        assert found is None or found == cells or repr(found) == repr(cells)


TASKS = array("i", [each % 4 for each in range(128)])


class Key:
    """Key that empties lists while it is compared."""

    def __init__(self, number: int, lists: list[list[Any]]) -> None:
        self.number, self.lists = number, lists

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        for each in self.lists:
            each.clear()
        return True


def _split(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """Each row goes to one receiver, in its order."""
    rows: list[Any] = list(second)
    receivers: list[Any] = [[] for _ in range(flag & 3)] + [()] * (flag >> 7)
    lists = [rows, receivers] if flag & 8 else [rows]
    keys: list[Any] = [Key(each, lists) if flag & 4 else each if flag & 2 else bytes([each]) for each in first]
    begin = flag >> 4 & 3
    targets: dict[Any, int] = {each if flag & 4 else bytes([each]): each % 4 for each in first[:6]}
    end = native.split_rows(keys, (rows,), begin, TASKS, targets, (receivers,))
    if not flag & 4:
        assert sum(map(len, receivers)) == max(0, end - begin)


def _take(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """Rows are moved, and none twice."""
    lists = [list(second), [object() for _ in second]]
    counts = struct.unpack(f"<{len(first) // 2 * 2}b", first[: len(first) // 2 * 2])
    pieces: list[Any] = [(lists[place & 1], *counts[place : place + 2]) for place in range(0, len(counts), 2)]
    pieces += [None] * (flag >> 7)
    assert len(native.take_rows(pieces, flag & 127)) == flag & 127


def _fold(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """Each record has a result, unless the function fails."""
    keys = [first[place : place + 1 + flag % 3] for place in range(len(first))]
    rows: list[Any] = [(key, second[place % len(second)] if second else 0) for place, key in enumerate(keys)]
    if flag & 128:
        rows.append(object())
    count = len(rows)
    entries: dict[Any, Any] = dict.fromkeys(keys[::2], (1, 2.0))
    results: list[Any] = []

    def function(key: Any, state: Any, value: int) -> Any:
        what = value % 12
        if what == 0:
            return None, value  # the state is removed
        if what == 1:
            rows.clear()
        elif what == 2:
            entries.clear()
        elif what == 3:
            return [state, value]  # a pair that is no tuple
        elif what == 4:
            return value  # no pair
        elif what == 5:
            raise Refused
        elif what == 6:
            return {}, value  # a state that may change
        return (value, *(state or ())[:3]), value

    def remove(key: Any) -> None:
        entries.pop(key, None)

    is_done = native.fold_rows(iter(rows), rows, function, entries, {}, results, remove, _pair_of, _beside)
    assert len(results) == (count if is_done and rows else len(results))


def _count(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """Keys are counted, unless one of them or a counter is none."""
    keys: list[Any] = [first[place : place + 1 + flag % 3] for place in range(len(first))]
    keys += [None] * (flag >> 7)
    counters: dict[Any, Any] = {key: count(place) for place, key in enumerate(keys)}
    counters.update({bytes([each]): each for each in second[:1]})
    twin = {key: copy(counter) for key, counter in counters.items()}
    found = native.count_keys(keys, counters)
    assert found == (None if flag >> 7 else [(key, next(twin[key])) for key in keys])


def _datetimes(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """Datetimes are those that Python computes, and become the same numbers."""
    zone = (None, UTC, second)[flag % 3]
    found = native.datetimes(first, zone)
    wanted = [EPOCH + timedelta(microseconds=each) for (each,) in struct.iter_unpack("<q", first)]
    assert found == [each.replace(tzinfo=UTC if zone else None) for each in wanted]
    assert native.walls(found) == [each for (each,) in struct.iter_unpack("<q", first)]
    assert native.walls([*found, second]) is None


def _dicts(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """Each row has the values of its columns."""
    columns: list[Any] = [list(second[place:]) if flag & 1 else list(second) for place in range(len(first))]
    columns[1:2] = [None] * (flag >> 4 & 1)
    names = [chr(each) for each in first]
    found = native.dicts(tuple(names), tuple(columns), len(second) + (flag >> 1 & 1))
    assert found == [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or not names


def _pair_of(found: Any) -> tuple[Any, Any]:
    state, result = found
    return state, result


def _beside(state: Any, result: Any) -> Any:
    return result


KERNELS: Final[list[Callable[[Any, int, bytes, bytes], None]]] = [
    _unpack,
    _pack,
    _split,
    _take,
    _fold,
    _datetimes,
    _dicts,
    _count,
]
