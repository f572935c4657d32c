"""The in-flight log of a channel: every element since the last completed checkpoint, as the frames that were sent."""

from __future__ import annotations

from bisect import bisect_right
import msgspec

from clonos.core.ids import ChannelId, CheckpointId


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Consecutive elements of one kind."""

    first_seq: int
    kind: int
    count: int
    checkpoint: CheckpointId  # of a barrier, else 0
    payload: bytes


class InflightBudget:
    """Memory and disk that the in-flight logs of one slot may use together."""

    __slots__ = ("memory_bytes",)

    def __init__(self) -> None:
        self.memory_bytes = 0


class InflightLog:
    """Elements ``start_seq .. next_seq - 1`` of one channel, in chunks."""

    __slots__ = ("_chunks", "_firsts", "budget", "channel", "memory_bytes", "next_seq")

    def __init__(self, channel: ChannelId, next_seq: int, budget: InflightBudget) -> None:
        self.channel = channel
        self.next_seq = next_seq
        self.budget = budget
        self.memory_bytes = 0
        self._chunks: list[Chunk] = []
        self._firsts: list[int] = []

    @property
    def start_seq(self) -> int:
        """Number of the oldest element that is kept."""
        return self._firsts[0] if self._firsts else self.next_seq

    def append(self, kind: int, count: int, checkpoint: CheckpointId, payload: bytes) -> None:
        """The next ``count`` elements."""
        self._firsts.append(self.next_seq)
        self._chunks.append(Chunk(self.next_seq, kind, count, checkpoint, payload))
        self.next_seq += count
        self.memory_bytes += len(payload)
        self.budget.memory_bytes += len(payload)

    def truncate(self, before_seq: int) -> None:
        """Drops whole chunks that end at or below ``before_seq``."""
        at = bisect_right(self._firsts, before_seq) - 1
        if at >= 0 and self._chunks[at].first_seq + self._chunks[at].count <= before_seq:
            at += 1
        if at > 0:
            freed = sum(len(chunk.payload) for chunk in self._chunks[:at])
            self.memory_bytes -= freed
            self.budget.memory_bytes -= freed
            del self._chunks[:at]
            del self._firsts[:at]

    def read(self, seq: int) -> Chunk | None:
        """The chunk that contains element ``seq``; None while it is being loaded from disk."""
        assert self.start_seq <= seq < self.next_seq, (self.channel, self.start_seq, seq, self.next_seq)
        return self._chunks[bisect_right(self._firsts, seq) - 1]

    def bytes_from(self, seq: int) -> int:
        """Payload bytes of the chunks from the one that contains ``seq`` on."""
        if seq >= self.next_seq:
            return 0
        at = max(0, bisect_right(self._firsts, seq) - 1)
        return sum(len(chunk.payload) for chunk in self._chunks[at:])

    def close(self) -> None:
        """The incarnation ends: gives the budget back."""
        self.budget.memory_bytes -= self.memory_bytes
        self.memory_bytes = 0
        self._chunks.clear()
        self._firsts.clear()
