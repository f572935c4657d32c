"""Capture of a task's epoch: the requests of a recovery that starts nothing (protocol 6.13).

Everything since the last completed checkpoint is somewhere: the state in the store, the log and the journal in the
task's slot, the input in the in-flight logs of its senders. They are read in this order: the output, then the log, then
the input, so that the log explains the output and the input has all that the log takes.

The task goes on meanwhile. If a checkpoint completes or a view replaces an incarnation, what is read may be gone, and
the capture begins again with the later checkpoint.

A recording reads whole epochs: from one checkpoint to the next, which is complete but not announced yet
(``completed_hold``). Where they end is known before, so the order of the reading does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from clonos.core.checkpoint.checkpoint_metadata import TaskEntry
from clonos.core.log.determinants import elements_covered
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import ChannelId, LogId, SlotId, TaskId, journal_of, log_of
from clonos.core.model.plan import Channel, Plan
from clonos.core.ports.task_snapshot import SinkRows, Snapshot
from clonos.core.wire.authorization import sender_name
from clonos.core.wire.capture_messages import (
    CapturedChunk,
    CapturedElements,
    CapturedLog,
    CaptureElements,
    CaptureLog,
    decode_chunks,
)
from clonos.core.wire.control_messages import View
from clonos.core.wire.decoding import DECODE_ERRORS

PAGE_BYTES: Final = 1 << 20

CaptureRequest = CaptureLog | CaptureElements
CaptureReply = CapturedLog | CapturedElements


@dataclass(slots=True)
class LogPages:
    """Log that is being read. ``end_bytes``: where it ended when it was first asked for, or where the epoch ends."""

    log: LogId
    start_bytes: int
    data: bytearray = field(default_factory=bytearray)
    end_bytes: int | None = None
    ends_at_barrier: bool = False  # a successor that recovers may not have all of it yet
    unfinished: bytes = b""

    @property
    def next_bytes(self) -> int:
        """Offset of the next byte to ask for."""
        return self.start_bytes + len(self.data)

    @property
    def is_read(self) -> bool:
        """Whether all is there."""
        return self.end_bytes is not None and self.next_bytes >= self.end_bytes

    def end_at_barrier(self, offset_bytes: int) -> None:
        """Ends the log where its epoch ends."""
        self.end_bytes, self.ends_at_barrier = offset_bytes, True

    def take(self, sender: SlotId, reply: CapturedLog, payload: bytes) -> bool:
        """Takes the next page; returns False if the copy begins later, because a later checkpoint has completed.

        Raises: MessageMalformed: it is empty before the end.
        """
        if reply.start_bytes > self.next_bytes:
            return False
        if self.end_bytes is None:
            self.end_bytes, self.unfinished = reply.end_bytes, reply.unfinished
        room = self.end_bytes - self.next_bytes
        if room > 0 and not payload and not self.ends_at_barrier:
            raise MessageMalformed(sender_name(sender), f"an empty page of a log that ends {room} bytes later")
        self.data += payload[: max(0, room)]
        return True


@dataclass(slots=True)
class ElementPages:
    """Channel that is being read. ``end_seq``: what the log takes of an input; where the in-flight log of an output
    ended when it was first asked for."""

    channel: Channel
    next_seq: int
    has_digests: bool
    chunks: list[CapturedChunk] = field(default_factory=list)
    end_seq: int | None = None
    may_begin_later: bool = False  # of an external system, which forgets what is confirmed

    @property
    def is_read(self) -> bool:
        """Whether all is there."""
        return self.end_seq is not None and self.next_seq >= self.end_seq

    def end_at(self, seq: int) -> None:
        """Ends the channel before an element, if its end is not known yet."""
        if self.end_seq is None:
            self.end_seq = seq

    def take(self, sender: SlotId, reply: CapturedElements, payload: bytes | memoryview) -> bool:
        """Takes the next page; returns False if the in-flight log begins later, because a later checkpoint has
        completed.

        Raises: MessageMalformed: the chunks cannot be decoded, or do not follow on what is there.
        """
        if self.may_begin_later and not self.chunks:
            self.next_seq = max(self.next_seq, reply.start_seq)
        if reply.start_seq > self.next_seq:
            return False
        if self.end_seq is None:
            self.end_seq = reply.next_seq
        try:
            chunks = decode_chunks(payload)
        except DECODE_ERRORS as error:
            raise MessageMalformed(sender_name(sender), f"elements of a capture: {error}") from None
        for chunk in chunks:
            if self.is_read:
                break
            if not chunk.first_seq <= self.next_seq < chunk.first_seq + chunk.count:
                what = f"elements from {chunk.first_seq} on where {self.next_seq} comes next"
                raise MessageMalformed(sender_name(sender), what)
            self.chunks.append(chunk)
            self.next_seq = chunk.first_seq + chunk.count
        return True


class EpochEnd(NamedTuple):
    """Barrier at which an epoch ends: the offset of the log there, and the snapshot."""

    log_offset_bytes: int
    snapshot: Snapshot


class TaskCapture:
    """One attempt to read the epoch of a task since one completed checkpoint. Pure: ``requests`` says what to send.

    ``is_stale``: a later attempt has to begin again. ``is_too_large``: there is more than ``bytes_max``.
    """

    def __init__(
        self,
        plan: Plan,
        view: View,
        entry: TaskEntry,
        snapshot: Snapshot | None,
        number: int,
        bytes_max: int,
        end: EpochEnd | None = None,
    ) -> None:
        """``entry``: of the task in the completed checkpoint; ``snapshot``: the last of its objects, None at the job's
        start. ``number``: of this attempt. ``end``: of a whole epoch; None: all that there is."""
        self.plan, self.view, self.entry, self.snapshot = plan, view, entry, snapshot
        self.task, self.number, self.bytes_max = entry.task, number, bytes_max
        self.is_stale = self.is_too_large = False
        inputs = dict(snapshot.inputs) if snapshot is not None else {}
        outputs = dict(snapshot.outputs) if snapshot is not None else {}
        journal_bytes = snapshot.journal_offset_bytes if snapshot is not None else 0
        self.log = LogPages(log_of(self.task), entry.log_offset_bytes)
        self.journal = LogPages(journal_of(self.task), journal_bytes) if plan.is_journalled(self.task) else None
        self.inputs = [ElementPages(each, inputs.get(each.id, 0), False) for each in plan.inputs[self.task]]
        self.outputs = [
            ElementPages(each, outputs.get(each.id, 0), True, may_begin_later=each.receiver is None)
            for each in plan.outputs[self.task]
        ]
        self.is_whole = end is not None or entry.final
        self.sinks: tuple[SinkRows, ...] = ()  # of a whole epoch
        if end is not None:
            self._end_at(end)

    def _end_at(self, end: EpochEnd) -> None:
        self.log.end_at_barrier(end.log_offset_bytes)
        if self.journal is not None:
            self.journal.end_at_barrier(end.snapshot.journal_offset_bytes)
        seqs = dict(end.snapshot.outputs)
        self.sinks = tuple(each for each in end.snapshot.sinks if each.since == self.entry.snapshot)
        for pages in self.outputs:
            pages.end_at(seqs.get(pages.channel.id, pages.next_seq))
        if self.log.is_read:
            self._limit_inputs()

    @property
    def is_read(self) -> bool:
        """Whether all is there."""
        return not self.is_stale and not self.is_too_large and next(self._missing(), None) is None

    @property
    def size_bytes(self) -> int:
        """Bytes of the log and of the input so far."""
        logs = len(self.log.data) + (len(self.journal.data) if self.journal is not None else 0)
        return logs + sum(len(chunk.payload) for pages in self.inputs for chunk in pages.chunks)

    def _missing(self) -> Iterator[LogPages | ElementPages]:
        """Yields what is to be read next: stage after stage, the parts of a stage side by side."""
        stages: tuple[list[LogPages] | list[ElementPages], ...] = (
            self.outputs,
            [self.log],
            [self.journal] if self.journal is not None else self.inputs,
        )
        for stage in stages:
            missing = [pages for pages in stage if not pages.is_read]
            if missing:
                yield from missing
                return

    def requests(self) -> Iterator[tuple[SlotId, CaptureRequest]]:
        """Yields what is to be asked now, and of which slot; to be repeated until it is answered."""
        if self.is_stale or self.is_too_large:
            return
        for pages in self._missing():
            asked = self.task if isinstance(pages, LogPages) else pages.channel.sender
            placement = self.view.placements[asked]
            if placement.slot is None:
                continue
            head = asked, placement.incarnation
            if isinstance(pages, LogPages):
                yield placement.slot, CaptureLog(*head, pages.log, pages.next_bytes, PAGE_BYTES, self.number)
            else:
                channel, digests = pages.channel.id, pages.has_digests
                yield placement.slot, CaptureElements(channel, *head, pages.next_seq, PAGE_BYTES, digests, self.number)

    @property
    def without_slot(self) -> tuple[TaskId, ...]:
        """Tasks whose slot has something of the epoch, and that have none now."""
        needed = dict.fromkeys((self.task, *(pages.channel.sender for pages in self.inputs)))
        return tuple(task for task in needed if self.view.placements[task].slot is None)

    def on_reply(self, sender: SlotId, reply: CaptureReply, payload: bytes | memoryview) -> bool:
        """Takes a page. Returns whether it brought something, so that more can be asked for at once. The input of a
        task may not be there while its senders recover.

        Raises: MessageMalformed: the page does not fit what was asked for.
        """
        if reply.number != self.number or self.is_stale or self.is_too_large:
            return False
        if isinstance(reply, CapturedLog):
            pages = next((each for each in self._missing() if isinstance(each, LogPages)), None)
            is_news = pages is not None and reply.log == pages.log and reply.from_bytes == pages.next_bytes
            if is_news:
                assert pages is not None
                self.is_stale = not pages.take(sender, reply, bytes(payload))
                is_news = bool(payload) or pages.is_read
                if self.log.is_read:
                    self._limit_inputs()
        else:
            found = self._channel(reply.channel)
            is_news = found is not None and reply.from_seq == found.next_seq
            if is_news:
                assert found is not None
                self.is_stale = not found.take(sender, reply, payload)
                is_news = found.next_seq > reply.from_seq or found.is_read
        self.is_too_large = self.size_bytes > self.bytes_max
        return is_news

    def _limit_inputs(self) -> None:
        """Notes what the log takes of each input."""
        taken = elements_covered(bytes(self.log.data) + self.log.unfinished, len(self.inputs))
        for pages, count in zip(self.inputs, taken, strict=True):
            pages.end_at(pages.next_seq + count)

    def _channel(self, channel: ChannelId) -> ElementPages | None:
        return next(
            (each for each in self._missing() if isinstance(each, ElementPages) and each.channel.id == channel), None
        )
