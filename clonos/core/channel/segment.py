"""Segment: a piece of one channel's in-flight log that was handed to disk as a whole (protocol 4).

Its chunks stay in memory until they are on disk, and come back to memory for a replay. The numbers and lengths of
chunks stay in memory all the time, 16 bytes a chunk, so that positions and sizes need no disk.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from enum import Enum, auto
from itertools import accumulate
from typing import Protocol

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId
from clonos.core.wire.decoding import DECODE_ERRORS

CHUNK_OVERHEAD_BYTES = 160
"""Bytes of memory for a chunk besides its payload: struct, number, the head of its bytes, places in two lists."""


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Consecutive elements of one kind."""

    first_seq: int
    kind: ElementKind
    count: int
    checkpoint: CheckpointId  # of a barrier, else 0
    payload: bytes


_Heads = list[tuple[int, ElementKind, int, CheckpointId]]  # (first_seq, kind, count, checkpoint) of each chunk
_encode_heads = msgspec.msgpack.Encoder().encode
_decode_heads = msgspec.msgpack.Decoder(_Heads).decode


class SegmentPhase(Enum):
    """Place of a segment's chunks."""

    WRITING = auto()  # in memory, on their way to disk
    RETAINED = auto()  # in memory, because the disk failed
    ON_DISK = auto()
    LOADING = auto()  # on disk, on their way to memory
    LOADED = auto()  # on disk and in memory
    UNREADABLE = auto()  # on disk, which does not give them back


class SpillingLog(Protocol):
    """In-flight log as its segments and the slot's budget see it."""

    channel: ChannelId
    tail_bytes: int
    writing_count: int

    def cut(self, bytes_max: int, closed_only: bool = False) -> list[Chunk]:
        """Takes the oldest chunks out of the tail."""

    def add(self, segment: Segment) -> None:
        """Continues with a segment in place of the chunks that were cut."""

    def begin_write(self) -> None:
        """Counts a segment that is on its way to disk."""

    def end_write(self) -> None:
        """Stops counting a segment as on its way to disk."""


class Segment:
    """Consecutive chunks of one log."""

    __slots__ = (
        "_ends_bytes",
        "_firsts",
        "_start",
        "chunks",
        "id",
        "log",
        "memory_bytes",
        "next_seq",
        "phase",
        "stored_bytes",
    )

    def __init__(self, number: int, log: SpillingLog, chunks: list[Chunk]) -> None:
        self.id = number
        self.log = log
        self.phase = SegmentPhase.WRITING
        self.chunks = chunks  # empty when they are not in memory
        self.next_seq = chunks[-1].first_seq + chunks[-1].count
        self.stored_bytes = 0  # on disk
        self._start = 0  # index of the oldest chunk that is still needed
        self._firsts = array("q", (chunk.first_seq for chunk in chunks))
        self._ends_bytes = array("q")
        end_bytes = 0
        for chunk in chunks:
            end_bytes += len(chunk.payload)
            self._ends_bytes.append(end_bytes)
        self.memory_bytes = end_bytes + CHUNK_OVERHEAD_BYTES * len(chunks)  # while its chunks are there

    @property
    def channel(self) -> ChannelId:
        """Channel of its elements."""
        return self.log.channel

    @property
    def is_in_memory(self) -> bool:
        """Whether the chunks can be read at once."""
        return bool(self.chunks)

    @property
    def first_seq(self) -> int:
        """Number of its first element, needed or not."""
        return self._firsts[0]

    @property
    def start_seq(self) -> int:
        """Number of the oldest element that is still needed."""
        return self._firsts[self._start]

    def index_of(self, seq: int) -> int:
        """Index of the chunk that contains element ``seq``."""
        return bisect_right(self._firsts, seq) - 1

    def is_last(self, index: int) -> bool:
        """Whether no chunk follows."""
        return index == len(self._firsts) - 1

    def bytes_from(self, seq: int) -> int:
        """Payload bytes from the chunk with element ``seq`` on; from the oldest needed chunk at least."""
        index = max(self._start, self.index_of(seq))
        return self._ends_bytes[-1] - (self._ends_bytes[index - 1] if index else 0)

    def truncate(self, before_seq: int) -> None:
        """Forgets chunks that end at or below ``before_seq``; the last chunk is still needed."""
        self._start = max(self._start, self.index_of(before_seq))

    def begin_write(self) -> None:
        """Marks the segment as on its way to disk."""
        self.phase = SegmentPhase.WRITING
        self.log.begin_write()

    def end_write(self, stored_bytes: int | None) -> None:
        """Marks the segment as on disk, or (None) as kept in memory because it could not be written."""
        self.log.end_write()
        if stored_bytes is None:
            self.phase = SegmentPhase.RETAINED
        else:
            self.stored_bytes = stored_bytes
            self.unload()

    def begin_load(self) -> None:
        """Marks the segment as on its way from disk to memory."""
        self.phase = SegmentPhase.LOADING

    def unload(self) -> None:
        """Drops the chunks in memory: they are on disk."""
        self.phase = SegmentPhase.ON_DISK
        self.chunks = []

    def fail(self) -> None:
        """Marks the segment as unreadable."""
        self.phase = SegmentPhase.UNREADABLE

    def payloads(self) -> list[bytes]:
        """Returns the parts to store: the heads of the chunks, then the payload of each."""
        heads: _Heads = [(chunk.first_seq, chunk.kind, chunk.count, chunk.checkpoint) for chunk in self.chunks]
        return [_encode_heads(heads), *(chunk.payload for chunk in self.chunks)]

    def load(self, payloads: list[bytes]) -> bool:
        """Takes the chunks back into memory; returns False where these are not what ``payloads`` gave."""
        try:
            heads = _decode_heads(b"".join(payloads[:1]))
        except DECODE_ERRORS:
            return False
        ends_bytes = list(accumulate(map(len, payloads[1:])))
        if [head[0] for head in heads] != self._firsts.tolist() or ends_bytes != self._ends_bytes.tolist():
            return False
        self.chunks = [Chunk(*head, payload) for head, payload in zip(heads, payloads[1:], strict=True)]
        self.phase = SegmentPhase.LOADED
        return True
