"""Messages of a lying peer: decodable, and close to what the machine expects at that moment."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from clonos.core.model.errors import MessageMalformed
from clonos.core.wire.message_codec import decode_message, encode_message
from clonos.core.wire.messages import Message
from tests.fuzz.mutation import count_of_changes, mutated_bytes

SMALL: Final = (0, 1, 2, 3, 4, 5, 7, 9)
LARGE: Final = (
    127,
    128,
    1_000,
    65_536,
    (1 << 31) - 1,
    1 << 32,
    (1 << 32) + 1,
    (1 << 32) + 2,
    1 << 33,
    1 << 53,
    (1 << 62) - 1,
)
WRONG: Final = (-1, -2, -3, -4, -(1 << 31), -(1 << 63), 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
ATTEMPTS_MAX: Final = 4

Sent = tuple[int, bytes, bytes]
"""Sender, encoded message, payload."""


def hostile(random: Random, samples: Sequence[Sent], senders: Sequence[int]) -> Sent:
    """A sample with some fields changed, usually still decodable, from a random sender."""
    sender, data, payload = random.choice(samples)
    for _ in range(ATTEMPTS_MAX):
        tree = msgspec.msgpack.decode(data)
        for _ in range(count_of_changes(random) if random.random() < 0.95 else 0):
            tree = _changed(random, tree, samples)
        if random.random() < 0.2:
            sender = random.choice(senders)
        if payload and random.random() < 0.1:
            payload = mutated_bytes(random, payload)
        try:
            made = msgspec.msgpack.encode(tree)
            decode_message(made, "slot 7")
        except (MessageMalformed, OverflowError):
            continue
        return sender, made, payload
    return sender, data, payload


def _changed(random: Random, tree: list[Any], samples: Sequence[Sent]) -> list[Any]:
    """Changes one field after the tag, or a part of it."""
    if len(tree) < 2:
        return tree
    copied = tree.copy()
    at = random.randrange(1, len(tree))
    copied[at] = _part(random, tree[at], samples)
    return copied


def _part(random: Random, part: Any, samples: Sequence[Sent]) -> Any:
    match part:
        case bool():
            return not part
        case int():
            return _number(random, part)
        case str():
            return random.choice(("", part + "x", part[:-1], "../x", "live", "lost", "x" * 1_025))
        case bytes():
            return mutated_bytes(random, part, [sent[1] for sent in samples[:20]])
        case list():
            return _list(random, part, samples)
    return part


def _number(random: Random, number: int) -> int:
    kind = random.random()
    if kind < 0.35:
        return number + random.choice((-2, -1, 1, 1, 2))
    if kind < 0.65:
        return random.choice(SMALL)
    if kind < 0.75:
        return number ^ 1 << random.randrange(34)
    return random.choice(LARGE) if kind < 0.88 else random.choice(WRONG)


def _list(random: Random, part: list[Any], samples: Sequence[Sent]) -> list[Any]:
    copied = part.copy()
    kind = random.random()
    if not part:
        return random.choice(
            (
                part,
                [random.choice(SMALL)],
                [[random.choice(SMALL), random.choice(SMALL), True, b"\x80\x01"]],
                [[0, 7]],
                ["a"],
            )
        )
    at = random.randrange(len(part))
    if kind < 0.5:
        copied[at] = _part(random, part[at], samples)
    elif kind < 0.65:
        del copied[at]
    elif kind < 0.8:
        copied.insert(at, part[random.randrange(len(part))])
    elif kind < 0.9:
        random.shuffle(copied)
    else:
        copied = []
    return copied


def as_sent(sender: int, message: Message, payload: bytes | memoryview) -> Sent:
    """A message as a sample."""
    return sender, encode_message(message), bytes(payload)


def message_of(sent: Sent) -> Message | None:
    """The message, if it can be decoded."""
    try:
        return decode_message(sent[1], f"slot {sent[0]}")
    except MessageMalformed:
        return None
