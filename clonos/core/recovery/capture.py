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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from clonos.core.checkpoint.checkpoint_metadata import TaskEntry
from clonos.core.log.determinants import elements_covered
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import ChannelId, Incarnation, LogId, SlotId, TaskId, journal_of, log_of
from clonos.core.model.plan import Channel, Plan
from clonos.core.ports.task_snapshot import SinkRows, Snapshot
from clonos.core.wire.authorization import sender_name
from clonos.core.wire.capture_messages import (
    CapturedElements,
    CapturedLog,
    CaptureElements,
    CaptureLog,
    Elements,
    decode_page,
    with_digests,
)
from clonos.core.wire.control_messages import View
from clonos.core.wire.decoding import DECODE_ERRORS

PAGE_BYTES: Final = 1 << 20
FILE_PAGE_BYTES: Final = 4 << 20
"""Bytes of a page that its slot writes to a file."""

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
    ended when it was first asked for.

    ``file``: for pages that a slot of this machine writes itself; "": none. What it writes comes first, and is in
    ``chunks`` with digests. The rest of the input is sent.
    """

    channel: Channel
    next_seq: int
    has_digests: bool
    file: str = ""
    chunks: list[Elements] = field(default_factory=list)
    #: Invariant: the first ``saved_count`` chunks are in the first ``saved_bytes`` of the file
    saved_count: int = 0
    saved_bytes: int = 0
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

        Raises: MessageMalformed: the chunks cannot be decoded, do not follow on what is there, or are in no file.
        """
        if self.may_begin_later and not self.chunks:
            self.next_seq = max(self.next_seq, reply.start_seq)
        if reply.start_seq > self.next_seq:
            return False
        if self.end_seq is None:
            self.end_seq = reply.next_seq
        try:
            chunks = decode_page(payload)
        except DECODE_ERRORS as error:
            raise MessageMalformed(sender_name(sender), f"elements of a capture: {error}") from None
        place = self.file, self.saved_bytes
        if reply.saved_bytes and (not self.is_saved or (reply.file, reply.offset_bytes) != place):
            raise MessageMalformed(sender_name(sender), f"elements in {reply.file!r:.100}, which was not asked for")
        for chunk in chunks:
            if self.is_read:
                break
            if not self.append(chunk):
                what = f"elements from {chunk.first_seq} on where {self.next_seq} comes next"
                raise MessageMalformed(sender_name(sender), what)
        if reply.saved_bytes:
            self.saved_count, self.saved_bytes = len(self.chunks), self.saved_bytes + reply.saved_bytes
        return True

    def append(self, chunk: Elements) -> bool:
        """Appends the next chunk; returns False for another one."""
        if not chunk.first_seq <= self.next_seq < chunk.first_seq + chunk.count:
            return False
        self.chunks.append(chunk)
        self.next_seq = chunk.first_seq + chunk.count
        return True

    @property
    def is_saved(self) -> bool:
        """Whether all that was read is in the file, so that more can follow there."""
        return bool(self.file) and self.saved_count == len(self.chunks)

    @property
    def sent(self) -> list[Elements]:
        """Chunks that are not in the file."""
        return self.chunks[self.saved_count :]

    @property
    def size_bytes(self) -> int:
        """Bytes of what was read."""
        return self.saved_bytes + sum(len(chunk.payload) for chunk in self.sent)

    def digests(self) -> list[Elements]:
        """Returns the chunks of an input as its sender's output has them: with the digest of each payload."""
        return self.chunks[: self.saved_count] + with_digests(self.sent)


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
        files: Mapping[ChannelId, str] = MappingProxyType({}),
    ) -> None:
        """``entry``: of the task in the completed checkpoint; ``snapshot``: the last of its objects, None at the job's
        start. ``number``: of this attempt. ``end``: of a whole epoch; None: all that there is. ``files``: empty ones,
        for inputs that slots of this machine can write themselves."""
        self.plan, self.view, self.entry, self.snapshot = plan, view, entry, snapshot
        self.task, self.number, self.bytes_max = entry.task, number, bytes_max
        self.is_stale = self.is_too_large = False
        inputs = dict(snapshot.inputs) if snapshot is not None else {}
        outputs = dict(snapshot.outputs) if snapshot is not None else {}
        journal_bytes = snapshot.journal_offset_bytes if snapshot is not None else 0
        self.log = LogPages(log_of(self.task), entry.log_offset_bytes)
        self.journal = LogPages(journal_of(self.task), journal_bytes) if plan.is_journalled(self.task) else None
        self.inputs = [
            ElementPages(each, inputs.get(each.id, 0), False, files.get(each.id, "")) for each in plan.inputs[self.task]
        ]
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

    def take_outputs(self, known: Mapping[ChannelId, Sequence[Elements]]) -> None:
        """Takes digests of outputs that were read for their receivers. What they lack is asked for."""
        for pages in self.outputs:
            for chunk in known.get(pages.channel.id, ()):
                if not pages.is_read:
                    pages.append(chunk)

    @property
    def is_read(self) -> bool:
        """Whether all is there."""
        return not self.is_stale and not self.is_too_large and next(self._missing(), None) is None

    @property
    def size_bytes(self) -> int:
        """Bytes of the log and of the input so far."""
        logs = len(self.log.data) + (len(self.journal.data) if self.journal is not None else 0)
        return logs + sum(pages.size_bytes for pages in self.inputs)

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
                yield placement.slot, self._request(pages, head)

    def _request(self, pages: ElementPages, head: tuple[TaskId, Incarnation]) -> CaptureElements:
        page_bytes, file, offset_bytes = PAGE_BYTES, "", 0
        if pages.is_saved:
            page_bytes, file, offset_bytes = FILE_PAGE_BYTES, pages.file, pages.saved_bytes
        return CaptureElements(
            pages.channel.id,
            *head,
            pages.next_seq,
            page_bytes,
            pages.has_digests,
            self.number,
            until_seq=pages.end_seq or 0,
            file=file,
            offset_bytes=offset_bytes,
        )

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
