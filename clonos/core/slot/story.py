"""Story of a slot: its last events, of each task apart, as they come by protocol 3 to 9.

An entry is a format and its values: sizes instead of bytes, so that no payload is kept alive. It becomes text only when
the story is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import merge
from operator import itemgetter
from typing import Any

from clonos.core.checkpoint.pending_snapshots import task_of_object
from clonos.core.model.ids import COORDINATOR, ChannelId, TaskId
from clonos.core.model.plan import Plan
from clonos.core.slot.slot_events import (
    Event,
    HeartbeatDue,
    MessageReceived,
    PartFailed,
    ProducerDataRead,
    SegmentLoaded,
    SnapshotsRead,
    SnapshotWritten,
    StepEmitted,
    ThreadRaised,
    WholeStateWritten,
)
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import Completed, View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import LogReply
from clonos.core.wire.replication_messages import AppendLog
from clonos.core.wire.shadow_messages import FeedShadow

STORY_EVENTS_MAX = 50
"""Events that are remembered of each task, and of those that concern no task of the job."""

STORY_LINES_MAX = 200
"""Lines of a story that is told, the latest ones."""

STORY_LINE_CHARACTERS_MAX = 400

Note = tuple[Any, ...]
"""A format, and the values for it."""

Entry = tuple[Any, ...]
"""Number of the event, time of the latest heartbeat before it (monotonic ns), then a note of what it was."""

_BATCH = "batch from slot {:x} on channel {}, session {}, message {}: {} elements from {}, {} bytes, {} deltas"
_STEP = "step of thread {}: {} bytes of log, {} outputs, consumed {}, snapshot {}"

_number = itemgetter(0)


class Story:
    """Rings of entries, made with the first one: of the tasks of a large job only a few concern a slot. Memory is
    bounded: by ``STORY_EVENTS_MAX`` for each task of the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._of_none: deque[Entry] = deque(maxlen=STORY_EVENTS_MAX)  # what names a task that is not there, too
        self._rings: dict[TaskId | None, deque[Entry]] = {None: self._of_none}
        self._of_receivers: dict[ChannelId, deque[Entry]] = {}
        self._number = 0
        self._now_ns = 0

    def _of(self, task: TaskId | None) -> deque[Entry]:
        ring = self._rings.get(task)
        if ring is None:
            if task not in range(len(self._plan.tasks)):  # None, or what a message calls its task
                return self._of_none
            ring = self._rings[task] = deque(maxlen=STORY_EVENTS_MAX)
        return ring

    def _of_receiver(self, channel: ChannelId) -> deque[Entry]:
        ring = self._of_receivers.get(channel)
        if ring is None:
            if not self._has(channel):
                return self._of_none
            ring = self._of_receivers[channel] = self._of(self._plan.channels[channel].receiver)
        return ring

    def _of_sender(self, channel: ChannelId) -> deque[Entry]:
        return self._of(self._plan.channels[channel].sender) if self._has(channel) else self._of_none

    def _has(self, channel: ChannelId) -> bool:
        return 0 <= channel < len(self._plan.channels)

    def note(self, event: Event) -> None:
        """Adds an event, before it is handled. Batches and steps come first: there are many of them."""
        self._number = number = self._number + 1
        if type(event) is MessageReceived:
            message = event.message
            if type(message) is Batch:
                self._of_receiver(message.channel).append(
                    (
                        number,
                        self._now_ns,
                        _BATCH,
                        event.sender,
                        message.channel,
                        message.session,
                        message.ordinal,
                        message.count,
                        message.first_seq,
                        len(event.payload),
                        len(message.deltas),
                    )
                )
                return
            ring, note = self._message(event)
        elif type(event) is StepEmitted:
            done = event.emission
            checkpoint = None if done.snapshot is None else done.snapshot.checkpoint
            log_bytes, outputs = len(done.log), len(done.outputs)
            self._of(event.task).append(
                (number, self._now_ns, _STEP, event.thread, log_bytes, outputs, done.consumed, checkpoint)
            )
            return
        else:
            ring, note = self._other(event)
        ring.append((number, self._now_ns, *note))

    def _message(self, event: MessageReceived) -> tuple[deque[Entry], Note]:
        message = event.message
        find = _MESSAGES.get(type(message))
        what = find(message) if find is not None else ("{}", message)
        sender = "the coordinator" if event.sender == COORDINATOR else f"slot {event.sender:x}"
        note = ("{} from {}: " + what[0], type(message).__name__, sender, *what[1:])
        if isinstance(message, Position):
            return self._of_receiver(message.channel), note
        if isinstance(message, ChannelHandshake):
            return self._of_sender(message.channel), note
        return self._of(getattr(message, "task", None)), note

    def _other(self, event: Event) -> tuple[deque[Entry], Note]:
        if isinstance(event, HeartbeatDue):
            self._now_ns = event.now_ns
        if isinstance(event, ThreadRaised | PartFailed):
            failed = event.failed
            return self._of(failed.task), ("{}: {}", type(event).__name__, failed.error)
        find = _EVENTS.get(type(event))
        task = getattr(event, "task", None)
        if isinstance(event, SnapshotWritten | WholeStateWritten):
            task = task_of_object(event.name)
        note: Note = ("{}", event) if find is None else find(event)
        return self._of(task), note

    # ------------------------------------------------------------------ telling it

    def lines(self, task: TaskId | None = None) -> list[str]:
        """Returns the story as text, oldest first: of all, or of one task."""
        rings = self._rings.values() if task is None else [self._of(task)]
        return [self._line(entry) for entry in list(merge(*rings, key=_number))[-STORY_LINES_MAX:]]

    def _line(self, entry: Entry) -> str:
        number, recorded_ns, form, *values = entry
        age_s = (self._now_ns - recorded_ns) / 1e9
        return f"#{number}, {age_s:.1f} s ago: {form.format(*values)}"[:STORY_LINE_CHARACTERS_MAX]

    def __str__(self) -> str:
        return "\n".join(["The last events of this slot, oldest first:", *self.lines()])


def _deltas(deltas: Iterable[Delta]) -> list[tuple[int, int, int]]:
    """Log, offset and size of each."""
    return [(delta.log, delta.offset_bytes, len(delta.data)) for delta in deltas]


_MESSAGES: dict[type, Callable[[Any], Note]] = {
    Position: lambda m: (
        "channel {}, session {}, message {}, next {}, deltas {}",
        *(m.channel, m.session, m.ordinal, m.next_seq, _deltas(m.deltas)),
    ),
    LogReply: lambda m: ("log of {} for {:x} from holder {}: {}", m.task, m.incarnation, m.holder, _deltas(m.replicas)),
    AppendLog: lambda m: ("log of {} by {:x}: {}", m.task, m.incarnation, _deltas(m.deltas)),
    FeedShadow: lambda m: (
        "session {}, message {}, {} elements from {} of channel {}, deltas {}",
        *(m.session, m.ordinal, m.count, m.first_seq, m.channel, _deltas(m.deltas)),
    ),
    View: lambda m: ("view {:x} of generation {:x}, {} slots", m.number, m.generation, len(m.slots)),
    Completed: lambda m: ("checkpoint {} of generation {:x}", m.checkpoint, m.generation),
}
"""Of messages that hold bytes, or much else; the others are kept as they are."""

_EVENTS: dict[type, Callable[[Any], Note]] = {
    ProducerDataRead: lambda e: ("{} bytes from the producer for {:x}", len(e.data), e.incarnation),
    SnapshotWritten: lambda e: (
        "snapshot {} written, {} bytes for standbys, error {!r}",
        e.name,
        len(e.payload),
        e.error,
    ),
    SnapshotsRead: lambda e: (
        "snapshots read for {}: {}, error {!r}",
        *(e.purpose, None if e.restored is None else e.restored.snapshot.checkpoint, e.error),
    ),
    SegmentLoaded: lambda e: (
        "segment {} loaded: {} payloads, error {!r}",
        *(e.segment, None if e.payloads is None else len(e.payloads), e.error),
    ),
}
