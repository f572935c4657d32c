"""In-flight log of a channel: every element since the last completed checkpoint, as frames that were sent (protocol 4).

The newest chunks are its tail, in memory. Older ones may have been handed to disk in segments by the slot's
``InflightBudget``. The phase of a segment makes no difference to callers, except that ``read`` returns None while the
chunk is being loaded.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from clonos.core.channel.inflight_budget import InflightBudget
from clonos.core.channel.segment import CHUNK_OVERHEAD_BYTES, Chunk, Segment
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId

_first_seq = attrgetter("first_seq")


class InflightLog:
    """Elements ``start_seq .. next_seq - 1`` of one channel, in chunks."""

    __slots__ = (
        "_closed_count",
        "_firsts",
        "_tail",
        "budget",
        "channel",
        "next_seq",
        "segments",
        "tail_bytes",
        "writing_count",
    )

    def __init__(self, channel: ChannelId, next_seq: int, budget: InflightBudget) -> None:
        self.channel = channel
        self.next_seq = next_seq
        self.budget = budget
        self.tail_bytes = 0  # with the overhead of each chunk
        self.writing_count = 0  # segments on their way to disk
        self.segments: list[Segment] = []  # older than the tail, in order, without a gap
        self._tail: list[Chunk] = []
        self._firsts: list[int] = []  # number of the first element of each chunk of the tail
        #: Invariant: segments and chunks are contiguous, up to next_seq
        self._closed_count = 0  # chunks of the tail up to its last barrier
        #: Invariant: 0 <= _closed_count <= chunks of the tail
        budget.join(self)

    @property
    def start_seq(self) -> int:
        """Number of the oldest element that is kept."""
        if self.segments:
            return self.segments[0].start_seq
        return self._firsts[0] if self._firsts else self.next_seq

    @property
    def memory_bytes(self) -> int:
        """Memory in use, with the overhead of each chunk."""
        if not self.segments:
            return self.tail_bytes
        return self.tail_bytes + sum(segment.memory_bytes for segment in self.segments if segment.is_in_memory)

    @property
    def disk_bytes(self) -> int:
        """Disk in use."""
        return sum(segment.stored_bytes for segment in self.segments) if self.segments else 0

    def append(self, kind: ElementKind, count: int, checkpoint: CheckpointId, payload: bytes) -> None:
        """Appends the next ``count`` elements."""
        self._firsts.append(self.next_seq)
        self._tail.append(Chunk(self.next_seq, kind, count, checkpoint, payload))
        self.next_seq += count
        cost_bytes = len(payload) + CHUNK_OVERHEAD_BYTES
        self.tail_bytes += cost_bytes
        budget = self.budget
        budget.grow(cost_bytes)
        if checkpoint:
            self._closed_count = len(self._tail)
            budget.close_epoch()
        if budget.tail_bytes >= budget.spill_at_bytes:
            budget.relieve(self)

    def add(self, segment: Segment) -> None:
        """Continues with a segment in place of the chunks that were cut."""
        self.segments.append(segment)

    def begin_write(self) -> None:
        """Counts a segment that is on its way to disk."""
        self.writing_count += 1

    def end_write(self) -> None:
        """Stops counting a segment as on its way to disk."""
        self.writing_count -= 1

    def cut(self, bytes_max: int, closed_only: bool = False) -> list[Chunk]:
        """Takes the oldest chunks out of the tail: at least one if there is one, others up to ``bytes_max``.
        ``closed_only``: only of epochs whose barrier is there."""
        limit = self._closed_count if closed_only else len(self._tail)
        count = cut_bytes = 0
        while count < limit:
            cost_bytes = len(self._tail[count].payload) + CHUNK_OVERHEAD_BYTES
            if count and cut_bytes + cost_bytes > bytes_max:
                break
            cut_bytes += cost_bytes
            count += 1
        return self._take(count)

    def _take(self, count: int) -> list[Chunk]:
        if not count:
            return []
        taken = self._tail[:count]
        freed_bytes = sum(len(chunk.payload) for chunk in taken) + CHUNK_OVERHEAD_BYTES * count
        self.tail_bytes -= freed_bytes
        self.budget.grow(-freed_bytes)
        self._closed_count = max(0, self._closed_count - count)
        del self._tail[:count]
        del self._firsts[:count]
        return taken

    def truncate(self, before_seq: int) -> None:
        """Drops whole chunks that end at or below ``before_seq``."""
        over = 0
        while over < len(self.segments) and self.segments[over].next_seq <= before_seq:
            self.budget.forget(self.segments[over])
            over += 1
        del self.segments[:over]
        if self.segments:
            self.segments[0].truncate(before_seq)
        elif before_seq >= self.next_seq:
            self._take(len(self._tail))
        else:
            self._take(max(0, bisect_right(self._firsts, before_seq) - 1))

    def read(self, seq: int) -> Chunk | None:
        """Returns the chunk that contains element ``seq``; None while it is being loaded from disk."""
        firsts = self._firsts
        if firsts and firsts[0] <= seq < self.next_seq:
            return self._tail[bisect_right(firsts, seq) - 1]
        assert self.start_seq <= seq < self.next_seq, (self.channel, self.start_seq, seq, self.next_seq)
        at = bisect_right(self.segments, seq, key=_first_seq) - 1
        return self.budget.read(self.segments, at, seq)

    def in_tail(self, seq: int) -> Chunk | None:
        """Returns the chunk that contains element ``seq``, if that is in the tail."""
        firsts = self._firsts
        is_there = bool(firsts) and firsts[0] <= seq < self.next_seq
        return self._tail[bisect_right(firsts, seq) - 1] if is_there else None

    def bytes_from(self, seq: int) -> int:
        """Payload bytes from the chunk with element ``seq`` on. Nothing is loaded for it."""
        if seq >= self.next_seq:
            return 0
        tail = self._tail[max(0, bisect_right(self._firsts, seq) - 1) :]
        found_bytes = sum(len(chunk.payload) for chunk in tail)
        at = max(0, bisect_right(self.segments, seq, key=_first_seq) - 1)
        return found_bytes + sum(segment.bytes_from(seq) for segment in self.segments[at:] if segment.next_seq > seq)

    def validate(self) -> None:
        """Asserts what holds between two events; of the chunks it looks at the first and the last."""
        assert self.start_seq <= self.next_seq, (self.channel, self.start_seq, self.next_seq)
        assert len(self._firsts) == len(self._tail) >= self._closed_count >= 0, self.channel
        assert self.tail_bytes >= 0 and self.writing_count >= 0, (self.channel, self.tail_bytes, self.writing_count)
        end_seq = self.next_seq
        if self._tail:
            last = self._tail[-1]
            assert last.first_seq + last.count == end_seq, (self.channel, last.first_seq, last.count, end_seq)
            end_seq = self._firsts[0]
        for segment in reversed(self.segments):
            assert segment.next_seq == end_seq, (self.channel, segment.id, segment.next_seq, end_seq)
            end_seq = segment.first_seq

    def close(self) -> None:
        """Gives memory and disk back, because the incarnation has ended."""
        for segment in self.segments:
            self.budget.forget(segment)
        self.segments.clear()
        self._take(len(self._tail))
        self.budget.leave(self)


__all__ = ["Chunk", "InflightLog"]
