"""Mutation of valid samples into fuzzed inputs, the same for the same random numbers.

Bytes are cut, copied, spliced and overwritten. What is msgpack is mutated as a tree too, so that an input gets through
the decoder of the outermost layer and reaches what reads its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec

NUMBERS: Final = (
    *(0, 1, 2, 3, 7, 8, 16, 31, 32, 63, 64, 100, 127, 128, 255, 256, 1_000, 4_096, 65_535, 65_536, 1 << 24),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 53, (1 << 62) - 1, 1 << 62),
    *((1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -2, -3, -128, -(1 << 31), -(1 << 63)),
)
"""Where limits, signs and widths of integers lie."""

ATOMS: Final[tuple[Any, ...]] = (
    *(None, True, False, 0.0, -1.5, 1e308, float("inf"), float("nan")),
    *("", "a", "../../x", "/etc/passwd", "a/../b", "\x00", "\n", "ä" * 9, "punycode", "x" * 300),
    *(b"", b"\x00", b"\xff" * 9, b"x" * 300, [], {}, [[]], {"a": 1}, [0] * 40),
)
"""Values of each type that msgpack has."""

KEYS: Final = ("", "a", "../x", 1, -1, None, b"a", 1.5)
"""Keys of maps."""

DEEP: Final = tuple(
    msgspec.Raw(head * 3_000 + b"\xc0") for head in (b"\x91", b"\x81\x00", b"\x92\x0d", b"\x92\x00", b"\x92\x01")
)
"""Containers within each other, deeper than any recursion may go."""

UNHASHABLE: Final = (msgspec.Raw(b"\x81\x90\x00"), msgspec.Raw(b"\x81\x80\x00"))
"""Maps whose key is an array or a map."""

OVERSIZED: Final = tuple(
    msgspec.Raw(head) for head in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6")
)
"""Claims of more items than there are bytes."""

EXTENSIONS: Final = (
    *(msgspec.Raw(b"\xd6\xff\xff\xff\xff\xff"), msgspec.Raw(b"\xd7\xff" + b"\xff" * 8)),
    *(msgspec.Raw(b"\xc7\x0c\xff" + b"\x7f" * 12), msgspec.Raw(b"\xd4\x05\x00")),
)
"""Instants out of range, and a type that nobody knows."""

CHANGES_MAX: Final = 6
NODES_MAX: Final = 400
"""Nodes of a tree that are looked at for one mutation."""

Bytes = bytes | bytearray


def count_of_changes(random: Random) -> int:
    """Mostly one: an input that differs in one place gets furthest."""
    return 1 if random.random() < 0.6 else random.randint(2, CHANGES_MAX)


# ------------------------------------------------------------------ bytes


def mutated_bytes(random: Random, sample: bytes, others: Sequence[bytes] = (), words: Sequence[bytes] = ()) -> bytes:
    """The sample after some changes; ``others`` are spliced in, ``words`` inserted."""
    data = bytearray(sample)
    for _ in range(count_of_changes(random)):
        random.choice(BYTE_CHANGES)(random, data, others, words)
    return bytes(data)


def _place(random: Random, data: bytearray) -> int:
    return random.randrange(len(data) + 1)


def _span(random: Random, data: bytearray) -> tuple[int, int]:
    """Mostly short."""
    start = _place(random, data)
    length = random.randint(0, 8) if random.random() < 0.7 else random.randint(0, len(data))
    return start, min(start + length, len(data))


def _flip(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, random.randrange(256)))


def _put_number(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    width = random.choice((1, 2, 4, 8))
    number = (random.choice(NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, random.choice(("little", "big")))
    at = _place(random, data)
    data[at : at + width] = number


def _delete(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    start, end = _span(random, data)
    del data[start:end]


def _repeat(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    start, end = _span(random, data)
    data[start:start] = data[start:end] * random.choice((1, 1, 2, 9))


def _insert(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = _place(random, data)
    data[at:at] = random.choice(words) if words and random.random() < 0.7 else random.randbytes(random.randint(1, 8))


def _cut(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    del data[_place(random, data) :]


def _splice(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    other = random.choice(others) if others else bytes(data)
    at = _place(random, data)
    data[at:] = other[random.randrange(len(other) + 1) :]


def _swap(random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    start, end = _span(random, data)
    moved = bytes(data[start:end])
    del data[start:end]
    at = _place(random, data)
    data[at:at] = moved


BYTE_CHANGES: Final[tuple[Callable[[Random, bytearray, Sequence[bytes], Sequence[bytes]], None], ...]] = (
    _flip,
    _flip,
    _overwrite,
    _overwrite,
    _put_number,
    _put_number,
    _delete,
    _repeat,
    _insert,
    _cut,
    _splice,
    _swap,
)


# ------------------------------------------------------------------ msgpack as a tree

Path = tuple[Any, ...]


def mutated_msgpack(random: Random, sample: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The sample with nodes of its tree changed; now and then bytes of the encoding too."""
    try:
        tree = msgspec.msgpack.decode(sample)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError):
        return mutated_bytes(random, sample, others)
    for _ in range(count_of_changes(random)):
        tree = mutated_tree(random, tree, others)
    try:
        data = msgspec.msgpack.encode(tree)
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError):
        return mutated_bytes(random, sample, others)
    return mutated_bytes(random, data, others) if random.random() < 0.1 else data


def mutated_json(random: Random, sample: bytes, others: Sequence[bytes] = (), words: Sequence[bytes] = ()) -> bytes:
    """Mutates a sample that is JSON."""
    tree = msgspec.json.decode(sample)
    for _ in range(count_of_changes(random)):
        tree = mutated_tree(random, tree)
    try:
        data = msgspec.json.encode(tree)
    except (TypeError, OverflowError, ValueError, RecursionError):
        data = sample
    return mutated_bytes(random, data, others, words) if random.random() < 0.3 else data


def mutated_tree(random: Random, tree: Any, others: Sequence[bytes] = ()) -> Any:
    """The tree with one node changed."""
    paths: list[Path] = []
    _collect(tree, (), paths)
    return _with(tree, random.choice(paths), lambda node: _changed(random, node, others))


def _collect(node: Any, path: Path, found: list[Path]) -> None:
    if len(found) >= NODES_MAX:
        return
    found.append(path)
    if type(node) is list:
        for place, item in enumerate(node):
            _collect(item, (*path, place), found)
    elif type(node) is dict:
        for key, item in node.items():
            _collect(item, (*path, key), found)


def _with(node: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy of the containers on the way to the changed node; the rest is shared."""
    if not path:
        return change(node)
    copied = node.copy()
    copied[path[0]] = _with(node[path[0]], path[1:], change)
    return copied


def _changed(random: Random, node: Any, others: Sequence[bytes]) -> Any:
    if random.random() < 0.12:
        return _any_node(random, others)
    match node:
        case bool():
            return not node
        case int():
            return _number(random, node)
        case bytes():
            return _bytes(random, node, others)
        case str():
            return _text(random, node)
        case list():
            return _list(random, node, others)
        case dict():
            return _dict(random, node, others)
    return _any_node(random, others)


def _any_node(random: Random, others: Sequence[bytes]) -> Any:
    kind = random.random()
    if kind < 0.35:
        return random.choice(NUMBERS)
    if kind < 0.8:
        return random.choice(ATOMS)
    if kind < 0.9 and others:
        return random.choice(others)
    return random.choice(random.choice((DEEP, UNHASHABLE, OVERSIZED, EXTENSIONS)))


def _number(random: Random, node: int) -> int:
    return random.choice((node + 1, node - 1, -node, 2 * node, random.choice(NUMBERS), random.choice(NUMBERS)))


def _bytes(random: Random, node: bytes, others: Sequence[bytes]) -> bytes:
    """Mutates bytes that are msgpack themselves."""
    if node and random.random() < 0.5:
        return mutated_msgpack(random, node, others)
    return mutated_bytes(random, node, others)


def _text(random: Random, node: str) -> Any:
    words = [atom for atom in ATOMS if type(atom) is str]
    made = mutated_bytes(random, node.encode(), (), [word.encode() for word in words])
    if random.random() < 0.2:  # msgpack of bytes that are no text
        return msgspec.Raw(b"\xdb" + len(made).to_bytes(4, "big") + made)
    return made.decode("utf-8", "replace")


def _list(random: Random, node: list[Any], others: Sequence[bytes]) -> Any:
    copied = node.copy()
    at = random.randrange(len(node) + 1)
    kind = random.randrange(6)
    if kind == 0 or not node:
        copied.insert(at, _any_node(random, others))
    elif kind == 1:
        del copied[at - 1]
    elif kind == 2:
        copied.insert(at, random.choice(node))
    elif kind == 3:
        other = random.randrange(len(node))
        copied[at - 1], copied[other] = copied[other], copied[at - 1]
    elif kind == 4:
        copied[at:] = []
    else:
        return [copied]
    return copied


def _dict(random: Random, node: dict[Any, Any], others: Sequence[bytes]) -> Any:
    copied = node.copy()
    if node and random.random() < 0.5:
        key = random.choice(list(node))
        if random.random() < 0.5:
            del copied[key]
        else:
            copied[random.choice((*KEYS, f"{key}x"))] = node[key]
    else:
        copied[random.choice(KEYS)] = _any_node(random, others)
    return copied
