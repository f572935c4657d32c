"""Determinants: entries of a causal log, each for one nondeterministic choice of a task (protocol 2).

An entry is a tag byte followed by varints. The tag of a ``STEP``, the most frequent entry, contains the input itself,
so a step of 1,000 records takes three bytes. Written entries are never altered.
"""

from __future__ import annotations

from typing import Final

from clonos.core.log.asked import ASKED_BYTES
from clonos.core.model.errors import LogMalformed

READ: Final = 1  # (split, n): a source reads n records
END: Final = 2  # a source decides that its input has ended
CLOCK: Final = 3  # (delta_ns): user code or a window reads the clock; difference to the task's last timestamp
SEED: Final = 4  # (16 bytes): randomness is used for the first time in an epoch
INTENT: Final = 5  # (service, digest of the request): written before a call with an external effect
CALL: Final = 6  # (what was asked, outcome): a call returned or raised
TIMER: Final = 7  # (delta_ns): processing time advances between two steps, and due timers fire
TRIGGER: Final = 8  # (checkpoint): a source puts a barrier into its stream
COMPLETION: Final = 9  # (id, what was asked, outcome): the outcome of an asynchronous call is handed to user code
ROUTED: Final = 10  # (description): an exception of user code is routed to the error output
SPLITS: Final = 11  # (description): a source learns of new splits
LAST_TRIGGER: Final = 12  # (checkpoint): as TRIGGER, and the job stops at the barrier
DRAIN: Final = 13  # what waits in the chain leaves, because the next barrier is that of a cut
PART: Final = 14  # (id, what was asked, part): a call inside an asynchronous call is announced, or has an outcome
HELD: Final = 15  # the next barrier waits for a DRAIN, because the end of an input completes the alignment at a cut
STEP: Final = 0x80  # 0x80 | input for inputs below 127, else 0xFF and the input as varint; then n

NAMES: Final = {
    READ: "READ",
    END: "END",
    CLOCK: "CLOCK",
    SEED: "SEED",
    INTENT: "INTENT",
    CALL: "CALL",
    TIMER: "TIMER",
    TRIGGER: "TRIGGER",
    COMPLETION: "COMPLETION",
    ROUTED: "ROUTED",
    SPLITS: "SPLITS",
    LAST_TRIGGER: "LAST_TRIGGER",
    DRAIN: "DRAIN",
    PART: "PART",
    HELD: "HELD",
    STEP: "STEP",
}

SEED_BYTES: Final = 16
_INLINE_INPUTS: Final = 127


def varint(value: int) -> bytes:
    """Encodes ``value`` >= 0 in groups of seven bits, lowest first."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def step(input_index: int, count: int) -> bytes:
    """Encodes that the task processes the next ``count`` elements of its ``input_index``-th input."""
    if input_index < _INLINE_INPUTS:
        return bytes((STEP | input_index,)) + varint(count)
    return b"\xff" + varint(input_index) + varint(count)


def numbers(tag: int, *values: int) -> bytes:
    """Encodes an entry that has numbers only, or none: READ, END, CLOCK, TIMER, TRIGGER, LAST_TRIGGER, DRAIN, HELD."""
    return bytes((tag,)) + b"".join(map(varint, values))


def seed(bits: bytes) -> bytes:
    """Encodes the seed of an epoch."""
    assert len(bits) == SEED_BYTES, bits
    return bytes((SEED,)) + bits


def blob(tag: int, data: bytes) -> bytes:
    """Encodes an entry of bytes: INTENT, ROUTED, SPLITS."""
    return bytes((tag,)) + varint(len(data)) + data


def call(asked: int, outcome: bytes) -> bytes:
    """Encodes the outcome of a call. ``asked``: what it asked for (``asked_of``)."""
    return bytes((CALL,)) + asked.to_bytes(ASKED_BYTES, "big") + varint(len(outcome)) + outcome


def completion(number: int, asked: int, outcome: bytes) -> bytes:
    """Encodes that the outcome of an asynchronous call is handed to user code."""
    return _of_call(COMPLETION, number, asked, outcome)


def part(number: int, asked: int, data: bytes) -> bytes:
    """Encodes a part of an asynchronous call, as ``call_parts`` has it. ``asked``: what the call inside asked for."""
    return _of_call(PART, number, asked, data)


def _of_call(tag: int, number: int, asked: int, data: bytes) -> bytes:
    return b"".join((bytes((tag,)), varint(number), asked.to_bytes(ASKED_BYTES, "big"), varint(len(data)), data))


_TWO_NUMBERS: Final = frozenset({READ})
_ONE_NUMBER: Final = frozenset({CLOCK, TIMER, TRIGGER, LAST_TRIGGER})
_NOTHING: Final = frozenset({END, DRAIN, HELD})
_BLOBS: Final = frozenset({INTENT, ROUTED, SPLITS})

Entry = tuple[int, int, int, bytes]
"""Entry as (tag, first number or input, second number, count or what was asked, bytes), with 0 or empty for parts that
the tag lacks.
"""


def _is_step(tag: int) -> bool:
    return tag >= STEP or tag == READ


class LogReader:
    """Reader of the entries of a log, in their order. ``base_bytes`` is the absolute offset of the first byte."""

    __slots__ = ("_ahead", "_base", "_data", "_position")

    def __init__(self, data: bytes, base_bytes: int = 0) -> None:
        self._data = data
        self._position = 0
        self._base = base_bytes
        self._ahead: tuple[Entry, int] | None = None

    @property
    def offset_bytes(self) -> int:
        """Absolute offset of the next entry."""
        return self._base + self._position

    @property
    def at_end(self) -> bool:
        """Whether no entry is left."""
        return self._position >= len(self._data)

    def extend(self, data: bytes) -> None:
        """Appends further whole entries."""
        self._data = self._data[self._position :] + data
        self._base += self._position
        self._position = 0
        self._ahead = None

    def peek(self) -> Entry:
        """Returns the next entry without taking it."""
        return self._look()[0]

    @property
    def begins_with_whole_step(self) -> bool:
        """Whether the next entry is a complete step without further entries, because another step follows it."""
        data, position = self._data, self._position
        if position >= len(data) or not _is_step(data[position]):
            return False
        _, end = self._look()
        return end < len(data) and _is_step(data[end])

    def next(self) -> Entry:
        """Takes and returns the next entry."""
        entry, end = self._look()
        self._ahead = None
        self._position = end
        return entry

    def _look(self) -> tuple[Entry, int]:
        if self._ahead is None:
            self._ahead = self._parse()
        return self._ahead

    def _varint(self, at: int) -> tuple[int, int]:
        value, shift = 0, 0
        data = self._data
        while True:
            if at >= len(data):
                raise LogMalformed(self._base + at, "it ends inside a number")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
            if shift >= 70:
                raise LogMalformed(self._base + at, "a number has more than ten bytes")

    def _parse(self) -> tuple[Entry, int]:
        start = self._position
        if start >= len(self._data):
            raise LogMalformed(self.offset_bytes, "it has no further entry")
        tag = self._data[start]
        at = start + 1
        if tag >= STEP:
            index = tag & 0x7F
            if index == _INLINE_INPUTS:
                index, at = self._varint(at)
            count, at = self._varint(at)
            return (STEP, index, count, b""), at
        if tag in _ONE_NUMBER:
            first, at = self._varint(at)
            return (tag, first, 0, b""), at
        if tag in _TWO_NUMBERS:
            first, at = self._varint(at)
            second, at = self._varint(at)
            return (tag, first, second, b""), at
        if tag in _NOTHING:
            return (tag, 0, 0, b""), at
        if tag == SEED:
            return (SEED, 0, 0, self._bytes(at, SEED_BYTES)), at + SEED_BYTES
        if tag in _BLOBS:
            size, at = self._varint(at)
            return (tag, 0, 0, self._bytes(at, size)), at + size
        if tag in (CALL, COMPLETION, PART):
            first, at = (0, at) if tag == CALL else self._varint(at)
            asked = int.from_bytes(self._bytes(at, ASKED_BYTES), "big")
            size, at = self._varint(at + ASKED_BYTES)
            return (tag, first, asked, self._bytes(at, size)), at + size
        raise LogMalformed(self.offset_bytes, f"tag {tag} is unknown")

    def _bytes(self, at: int, size: int) -> bytes:
        if at + size > len(self._data):
            raise LogMalformed(self._base + at, f"it ends inside a field of {size} bytes")
        return self._data[at : at + size]


def elements_covered(log: bytes, inputs_count: int) -> list[int]:
    """Returns, per input, how many elements the steps of ``log`` cover, which its owner has therefore received.

    Raises: LogMalformed, if a step names an input that does not exist.
    """
    covered = [0] * inputs_count
    reader = LogReader(log)
    while not reader.at_end:
        tag, index, count, _ = reader.next()
        if tag == STEP:
            if index >= inputs_count:
                raise LogMalformed(reader.offset_bytes, f"a step of input {index}, but there are {inputs_count}")
            covered[index] += count
    return covered
