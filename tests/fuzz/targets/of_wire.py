"""Targets: frames and messages as they arrive from a socket."""

from __future__ import annotations

from random import Random
from typing import Final

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId
from clonos.core.wire.message_codec import decode_message, encode_message
from clonos.io.net.frames import HEAD_BYTES, flags_of, pack, unpack
from tests.fuzz.mutation import mutated_bytes
from tests.fuzz.target import Target, of_msgpack
from tests.unit.core.wire.test_messages import KINDS, example

PAYLOADS: Final = (b"", b"x", b"payload " * 9, bytes(40_000))


def targets() -> list[Target]:
    """Targets of this file."""
    messages = [encode_message(example(kind, Random(seed))) for kind in KINDS for seed in range(6)]
    return [
        Target(
            "messages", of_msgpack(messages), lambda data: decode_message(data, "slot 7"), (MessageMalformed,), share=60
        ),
        Target("frames", lambda random: _frame(random, messages), _unpack, (MessageMalformed,), share=20),
    ]


def _frame(random: Random, messages: list[bytes]) -> bytes:
    """The length of the payload, the payload and the frame in front of it; damaged before or after the checksum."""
    payload, message = random.choice(PAYLOADS), random.choice(messages)
    frame = pack(
        SlotId(random.choice((0, 1, 77, (1 << 63) - 1))),
        message,
        payload,
        random.randrange(4),
        random.choice((0, 1, 4095)),
    )
    if random.random() < 0.7:
        frame = mutated_bytes(random, frame)
    return len(payload).to_bytes(4, "big") + payload + frame


def _unpack(data: bytes) -> None:
    length = int.from_bytes(data[:4], "big")
    payload, frame = data[4 : 4 + length], data[4 + length :]
    flags_of(frame)
    unpack(frame, memoryview(payload))
    decode_message(memoryview(frame)[HEAD_BYTES:], "slot 7")
