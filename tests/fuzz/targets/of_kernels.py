"""Target: the native kernels and packed keys, given buffers whose sizes, offsets, slots and receivers are wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import pyarrow

from clonos.kernels import choice
from clonos.kernels.packed_keys import pack, unpack
from tests.fuzz.target import Target, of_bytes

TYPES: Final = [pyarrow.int16(), pyarrow.string(), pyarrow.bool_(), pyarrow.binary()]
DECLARED: Final = (ValueError, IndexError, OverflowError)


def targets() -> list[Target]:
    """Targets of this file; without the extension only packed keys."""
    key_columns = [
        pyarrow.array([1, None, -3], pyarrow.int16()),
        pyarrow.array(["a", "straße" * 3, None]),
        pyarrow.array([True, None, False]),
        pyarrow.array([b"", b"x" * 20, b"y"]),
    ]
    packed = pack(key_columns).to_pylist()
    found = [Target("packed keys", of_bytes(packed), _unpack, (ValueError,), share=20)]
    if choice.native is not None:
        found.append(Target("native kernels", of_bytes(_samples()), _call, DECLARED, share=20))
    return found


def _unpack(data: bytes) -> None:
    for column in unpack(pyarrow.array([data, data], pyarrow.large_binary()), TYPES):
        column.validate()
        assert column[0].equals(column[1])


# ------------------------------------------------------------------ native kernels: a number, a flag, two buffers


def _samples() -> list[bytes]:
    order = struct.pack("<4q", 2, 0, 1, 2)
    offsets, large = struct.pack("<4i", 0, 3, 3, 8), struct.pack("<4q", 0, 3, 3, 8)
    return [
        *(_input(kernel, 9, struct.pack("<4q", 7, 8, 7, -1), order) for kernel in (0, 1)),
        *(_input(2, is_large, each, b"abcdefgh") for is_large, each in enumerate((offsets, large))),
        _input(3, 3, struct.pack("<4i", 2, 0, 1, 2), b""),
        *(_input(4, size, b"0123456789" * 9, order) for size in (1, 4, 8, 12)),
        _input(5, 3, b"\xa5\x5a", order),
        *(_input(6, is_large, each + b"abcdefgh", order) for is_large, each in enumerate((offsets, large))),
        _input(7, 0, struct.pack("<4i", 0, 1, 0, 1), bytes(16)),
        *(_input(8, 128 + is_large, each, b"abcdefgh") for is_large, each in enumerate((offsets, large))),
    ]


def _input(kernel: int, flag: int, first: bytes, second: bytes) -> bytes:
    return bytes([kernel, flag]) + len(first).to_bytes(2, "little") + first + second


def _call(data: bytes) -> None:
    kernel, flag, size = data[:1], data[1:2], int.from_bytes(data[2:4], "little")
    first, second = data[4 : 4 + size], data[4 + size :]
    KERNELS[int.from_bytes(kernel, "little") % len(KERNELS)](
        choice.native, int.from_bytes(flag, "little"), first, second
    )


def _index_numbers(native: Any, flag: int, first: bytes, second: bytes) -> None:
    index = native.Int64Index(1 + flag, 7)
    slots = bytearray(len(first) // 2)
    index.add(first, slots)
    found = bytearray(len(first) // 2)
    index.find(first, found)
    assert slots == found
    keys = bytearray(8 * len(index))
    index.copy_keys(0, keys)
    index.keys_at(second, bytearray(second))


def _index_overlapping(native: Any, flag: int, first: bytes, second: bytes) -> None:
    """Slots are written over the keys that are still to be read."""
    index, keys = native.Int64Index(1 + flag, 7), bytearray(first)
    index.add(keys, memoryview(keys)[: len(keys) // 2])
    index.find(first, bytearray(len(second)))


def _index_texts(native: Any, flag: int, first: bytes, second: bytes) -> None:
    index, is_large = native.BytesIndex(1 + flag, 7), bool(flag & 1)
    slots = bytearray(4 * max(0, len(first) // (8 if is_large else 4) - 1))
    index.add(first, second, is_large, slots)
    found = bytearray(slots)
    index.find(first, second, is_large, found)
    assert slots == found
    offsets, _ = index.keys_from(0)
    assert len(offsets) == 8 * len(index) + 8
    index.add(first, bytearray(second), is_large, slots)
    index.keys_at(second[: len(second) // 8 * 8])


def _order(native: Any, flag: int, first: bytes, second: bytes) -> None:
    native.partition_order(first, flag, bytearray(2 * len(first)), bytearray(8 * flag))
    native.partition_order(second, flag, bytearray(first), bytearray(8 * flag))


def _gather(native: Any, flag: int, first: bytes, second: bytes) -> None:
    assert len(native.gather(first, flag, second)) == flag * (len(second) // 8)


def _gather_bits(native: Any, flag: int, first: bytes, second: bytes) -> None:
    native.gather_bits(first, flag & 15, flag >> 4, second)


def _gather_texts(native: Any, flag: int, first: bytes, second: bytes) -> None:
    size = 8 if flag & 1 else 4
    offsets, _ = native.gather_texts(first[: 4 * size], first[4 * size :], bool(flag & 1), second)
    assert len(offsets) == size * (len(second) // 8 + 1)


def _gather_parts(native: Any, flag: int, first: bytes, second: bytes) -> None:
    numbers = bytes(len(second) // 8 * 4) if flag & 2 else first[: len(second) // 8 * 4]
    size = 8 if flag & 1 else 4
    assert len(native.gather_parts((first, second), size, numbers, second)) == size * (len(second) // 8)
    texts = (first[: 4 * size], first[4 * size :])
    offsets, _ = native.gather_text_parts((texts, texts), bool(flag & 1), numbers, second)
    assert len(offsets) == size * (len(second) // 8 + 1)


def _highest(native: Any, flag: int, first: bytes, second: bytes) -> None:
    rows = len(second) // 8
    native.highest_rows(first[: 4 * rows], second, (flag & 7) + 1, flag, bytearray(rows))


def _insert(native: Any, flag: int, first: bytes, second: bytes) -> None:
    k, rows, keys = (flag & 7) + 1, len(second) // 8, 3
    cells, counts = bytearray(8 * k * keys), bytearray(first[: 8 * keys])
    found = [bytearray(8 * rows) for _ in range(3)]
    lists = bytearray(8 * k * rows if flag & 8 else 0)
    native.insert_highest(k, cells, cells[:], counts, first[: 4 * rows], second, *found, lists)


def _run(native: Any, flag: int, first: bytes, second: bytes) -> None:
    what, rows = flag % 5, len(second) // 8
    slots, totals = first[: 4 * rows], bytearray(first[len(first) // 8 * 8 - 64 :])
    has = (bytearray(len(totals) // 8), bytearray(rows)) if what else (bytearray(), bytearray())
    native.run_values(what, slots, second, bytes([flag & 1]) * rows, totals, has[0], bytearray(8 * rows), has[1])


def _count(native: Any, flag: int, first: bytes, second: bytes) -> None:
    native.running_counts(first, bytearray(second), bytearray(2 * len(first) + (flag & 1)))


def _group(native: Any, flag: int, first: bytes, second: bytes) -> None:
    is_large = bool(flag & 1)
    rows = max(0, len(first) // (8 if is_large else 4) - 1)
    texts = ("s", first, second, is_large, None)
    native.key_groups((texts,), flag, bytearray(4 * rows))
    numbers = ("i", first, None, False, second if flag & 2 else None)
    native.key_groups((numbers, numbers), flag, bytearray(len(first) // 2))
    native.key_groups((texts, ("o", second, None, False, None)), flag, bytearray(4 * rows))


KERNELS: Final[list[Callable[[Any, int, bytes, bytes], None]]] = [
    _index_numbers,
    _index_overlapping,
    _index_texts,
    _order,
    _gather_parts,
    _highest,
    _insert,
    _run,
    _gather,
    _gather_bits,
    _gather_texts,
    _count,
    _group,
]
