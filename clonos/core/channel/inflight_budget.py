"""Memory and disk that the in-flight logs of one slot use together: which log spills, and when (protocol 4).

    WRITING ──durable──▶ ON_DISK ──requested──▶ LOADING ──there──▶ LOADED ──read to its end──▶ ON_DISK
       │  ▲
       ▼  │ at a heartbeat
      RETAINED (the disk failed: the chunks stay in memory)

A chunk can be read from memory until its segment is on disk. Nothing here waits: a log that wants a segment is told
when it is there, and one log's disk never holds another up, but for memory: see ``limits``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from sys import maxsize

from clonos.core.channel.segment import Chunk, Segment, SegmentPhase, SpillingLog
from clonos.core.model.options import Options, SpillPolicy
from clonos.core.ports.effect_collector import SpillStore

SPILL_PERCENT = 50
"""Percentage of the memory budget at which it is short of memory for tails; the rest is for what is being written."""

CROWDED_PERCENT = 75
"""Percentage of the memory budget beyond which policy ``epoch`` does not wait for a barrier."""

LOADED_PERCENT = 20
"""Percentage of the memory budget for what was loaded from disk; one segment is always allowed."""

SEGMENT_BYTES_MAX = 1 << 20
"""Bytes of a segment with several chunks, in memory; at most an eighth of the memory budget."""

READ_AHEAD_SEGMENTS = 2
"""Segments that are loaded before they are asked for, while the budget for them lasts."""

LOADS_MAX = 2
"""Segments that are loaded from disk at once; others wait, those that are read ahead longest."""

NEVER = maxsize

_tail_bytes = attrgetter("tail_bytes")


class InflightBudget:
    """Memory and disk that all in-flight logs of a slot share."""

    def __init__(self, options: Options, store: SpillStore) -> None:
        memory_bytes = options.inflight_memory_bytes
        self.tail_bytes = 0  # in memory, in no segment
        #: Invariant: tail_bytes is the sum of the tails of all logs
        self.segment_bytes = 0  # in memory, in segments
        self.disk_bytes = 0
        #: Invariant: segment_bytes and disk_bytes are the sums over all segments
        self.failure = ""  # why the disk cannot be written; empty when it can
        self.failures = 0  # how often it could not, so far
        self._store = store
        self._segment_bytes_max = max(1, min(SEGMENT_BYTES_MAX, memory_bytes // 8))
        self._short_bytes = max(1, memory_bytes * SPILL_PERCENT // 100)
        self._crowded_bytes = max(1, memory_bytes * CROWDED_PERCENT // 100)
        self._loaded_bytes_max = memory_bytes * LOADED_PERCENT // 100
        self._is_eager = options.spill_policy is SpillPolicy.EAGER
        self._is_by_epoch = options.spill_policy is SpillPolicy.EPOCH
        self._has_disk = options.inflight_disk_bytes > 0
        self._relieve: Callable[[SpillingLog], None] = {
            SpillPolicy.EAGER: self._spill_at_once,
            SpillPolicy.AVAILABILITY: self._spill_oldest,
            SpillPolicy.EPOCH: self._spill_epochs,
        }[options.spill_policy]
        self.spill_at_bytes = self._usual_bytes()  # of the tails: a log that appends beyond it calls ``relieve``
        self._numbers = 0
        self._logs: dict[SpillingLog, None] = {}
        self._segments: dict[int, Segment] = {}
        self._retained: dict[int, Segment] = {}
        self._wanted: dict[int, Segment] = {}  # some channel waits for them
        self._ahead: dict[int, Segment] = {}
        self._loading: dict[int, Segment] = {}
        self._loaded: dict[int, Segment] = {}  # oldest first
        self._loaded_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """Memory in use, with the overhead of each chunk."""
        return self.tail_bytes + self.segment_bytes

    def grow(self, tail_bytes: int) -> None:
        """Counts what the tail of some log has grown by, or has given back."""
        self.tail_bytes += tail_bytes

    def join(self, log: SpillingLog) -> None:
        """Counts a log that begins."""
        self._logs[log] = None

    def leave(self, log: SpillingLog) -> None:
        """Stops counting a log, which has given back all that it had."""
        del self._logs[log]

    def validate(self) -> None:
        """Asserts what holds between two events."""
        assert self.tail_bytes == sum([log.tail_bytes for log in self._logs]), self.tail_bytes
        segments = self._segments.values()
        in_memory = sum([segment.memory_bytes for segment in segments if segment.is_in_memory])
        assert self.segment_bytes == in_memory, (self.segment_bytes, in_memory)
        assert self.disk_bytes == sum([segment.stored_bytes for segment in segments]), self.disk_bytes
        assert 0 <= self._loaded_bytes <= self.segment_bytes, (self._loaded_bytes, self.segment_bytes)
        assert len(self._loading) <= LOADS_MAX, self._loading

    # ------------------------------------------------------------------ to disk

    def relieve(self, log: SpillingLog) -> None:
        """Hands chunks to disk, because memory is short by the policy; ``log`` was appended to."""
        self._relieve(log)

    def close_epoch(self) -> None:
        """Notes that a barrier was appended to some log."""
        if self._is_by_epoch and not self.failure and self._has_disk:
            self.spill_at_bytes = self._short_bytes

    def _usual_bytes(self) -> int:
        if not self._has_disk:
            return NEVER
        return 0 if self._is_eager else self._short_bytes

    def _spill_at_once(self, log: SpillingLog) -> None:
        # What is appended while a segment is being written makes the next one: a slow disk gets large segments.
        if not log.writing_count and log.tail_bytes:
            self._spill(log, log.cut(self._segment_bytes_max))

    def _spill_oldest(self, _log: SpillingLog) -> None:
        """Spills the oldest chunks of the largest logs, a segment each, until an eighth of the budget is free."""
        enough_bytes = self.spill_at_bytes - self.spill_at_bytes // 8
        while self.tail_bytes >= enough_bytes:
            for log in sorted(self._logs, key=_tail_bytes, reverse=True):
                if self.tail_bytes < enough_bytes or not log.tail_bytes:
                    break
                self._spill(log, log.cut(self._segment_bytes_max))

    def _spill_epochs(self, log: SpillingLog) -> None:
        """Spills all epochs that are closed; an open one only when it is too large to wait for its end."""
        for other in self._logs:
            while chunks := other.cut(self._segment_bytes_max, closed_only=True):
                self._spill(other, chunks)
        if self.tail_bytes >= self._crowded_bytes:
            self._spill_oldest(log)
        elif self.tail_bytes >= self._short_bytes:
            self.spill_at_bytes = self._crowded_bytes  # until the next barrier

    def _spill(self, log: SpillingLog, chunks: list[Chunk]) -> None:
        self._numbers += 1
        segment = self._segments[self._numbers] = Segment(self._numbers, log, chunks)
        log.add(segment)
        self.segment_bytes += segment.memory_bytes
        self._write(segment)

    def _write(self, segment: Segment) -> None:
        segment.begin_write()
        self._store.write_segment(segment.id, segment.payloads())

    def spilled(self, number: int, stored_bytes: int, error: str) -> bool:
        """Takes over that a segment is on disk, or could not be written; returns whether the disk has just begun to
        fail."""
        segment = self._segments.get(number)
        if segment is None or segment.phase is not SegmentPhase.WRITING:
            return False  # not needed any more
        if error:
            return self._keep(segment, error)
        segment.end_write(stored_bytes)
        self.disk_bytes += stored_bytes
        self.segment_bytes -= segment.memory_bytes
        if self.failure:
            self._recover()
        if self._is_eager:
            self._spill_at_once(segment.log)
        return False

    def _recover(self) -> None:
        self.failure = ""
        self.spill_at_bytes = self._usual_bytes()
        self._write_retained()

    def _keep(self, segment: Segment, error: str) -> bool:
        is_first = not self.failure
        segment.end_write(None)
        self._retained[segment.id] = segment
        self.failure = error
        self.failures += 1
        self.spill_at_bytes = NEVER
        return is_first

    def _write_retained(self, count: int = NEVER) -> None:
        for segment in list(islice(self._retained.values(), count)):
            del self._retained[segment.id]
            self._write(segment)

    def try_again(self) -> None:
        """Writes one segment at a heartbeat, to see whether a disk that has failed works again."""
        if not self.failure or any(log.writing_count for log in self._logs):
            return
        if self._retained:
            self._write_retained(1)
        else:  # what could not be written is not needed any more
            self._recover()

    # ------------------------------------------------------------------ from disk

    def read(self, segments: list[Segment], at: int, seq: int) -> Chunk | None:
        """Returns the chunk of ``segments[at]`` that contains element ``seq``, if it is in memory; otherwise loads the
        segment and reads those that follow it ahead."""
        segment = segments[at]
        if segment.phase in (SegmentPhase.WRITING, SegmentPhase.RETAINED):
            return segment.chunks[segment.index_of(seq)]
        chunk = None
        if segment.phase is SegmentPhase.LOADED:
            index = segment.index_of(seq)
            chunk = segment.chunks[index]
            if segment.is_last(index):
                self._unload(segment)
        elif segment.phase is SegmentPhase.ON_DISK:
            self._ahead.pop(segment.id, None)
            self._wanted[segment.id] = segment
        for following in segments[at + 1 : at + 1 + READ_AHEAD_SEGMENTS]:
            if following.phase is SegmentPhase.ON_DISK and following.id not in self._wanted:
                self._ahead[following.id] = following
        self._load_next()
        return chunk

    def _load_next(self) -> None:
        while len(self._loading) < LOADS_MAX:
            if self._wanted:
                segment = self._wanted.pop(next(iter(self._wanted)))
            elif self._ahead:
                segment = self._ahead.pop(next(iter(self._ahead)))
                coming_bytes = sum(other.memory_bytes for other in self._loading.values())
                if self._loaded_bytes + coming_bytes + segment.memory_bytes > self._loaded_bytes_max:
                    continue  # it is asked for again when it is needed
            else:
                return
            segment.begin_load()
            self._loading[segment.id] = segment
            self._store.load(segment.id)

    def loaded(self, number: int, payloads: list[bytes] | None) -> Segment | None:
        """Takes a segment from disk, or (None) that it cannot be read; returns it if it is still needed.

        A segment that holds other chunks than were stored is unreadable as well.
        """
        segment = self._loading.pop(number, None)
        if segment is not None:
            if payloads is None or not segment.load(payloads):
                segment.fail()
            else:
                self._loaded[number] = segment
                self._loaded_bytes += segment.memory_bytes
                self.segment_bytes += segment.memory_bytes
                while self._loaded_bytes > self._loaded_bytes_max and len(self._loaded) > 1:
                    self._unload(next(iter(self._loaded.values())))
        self._load_next()
        return segment

    def _unload(self, segment: Segment) -> None:
        del self._loaded[segment.id]
        self._loaded_bytes -= segment.memory_bytes
        self.segment_bytes -= segment.memory_bytes
        segment.unload()

    # ------------------------------------------------------------------ the end of a segment

    def forget(self, segment: Segment) -> None:
        """Drops a segment, because a checkpoint covers it or its log has ended."""
        number = segment.id
        del self._segments[number]
        if segment.phase is SegmentPhase.LOADED:
            self._unload(segment)
        elif segment.phase is SegmentPhase.WRITING:
            segment.log.end_write()
        if segment.is_in_memory:
            self.segment_bytes -= segment.memory_bytes
        for waiting in (self._retained, self._wanted, self._ahead, self._loading):
            waiting.pop(number, None)
        if segment.phase is not SegmentPhase.RETAINED:
            self.disk_bytes -= segment.stored_bytes
            self._store.delete(number)
