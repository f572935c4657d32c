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
from clonos.core.model.ids import COORDINATOR, TaskId
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
    """Rings of entries. Memory is bounded: by ``STORY_EVENTS_MAX`` for each task of the plan."""

    def __init__(self, plan: Plan) -> None:
        self._rings: dict[TaskId | None, deque[Entry]] = {
            task: deque(maxlen=STORY_EVENTS_MAX) for task in (None, *plan.tasks)
        }
        self._of_receivers = {channel.id: self._rings[channel.receiver] for channel in plan.channels}
        self._of_senders = {channel.id: self._rings[channel.sender] for channel in plan.channels}
        self._of_none = self._rings[None]  # what names a task or a channel that is not there, too
        self._number = 0
        self._now_ns = 0

    def note(self, event: Event) -> None:
        """Adds an event, before it is handled. Batches and steps come first: there are many of them."""
        self._number = number = self._number + 1
        if type(event) is MessageReceived:
            message = event.message
            if type(message) is Batch:
                self._of_receivers.get(message.channel, self._of_none).append(
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
            self._rings.get(event.task, self._of_none).append(
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
            return self._of_receivers.get(message.channel, self._of_none), note
        if isinstance(message, ChannelHandshake):
            return self._of_senders.get(message.channel, self._of_none), note
        return self._rings.get(getattr(message, "task", None), self._of_none), note

    def _other(self, event: Event) -> tuple[deque[Entry], Note]:
        if isinstance(event, HeartbeatDue):
            self._now_ns = event.now_ns
        if isinstance(event, ThreadRaised | PartFailed):
            failed = event.failed
            return self._rings.get(failed.task, self._of_none), ("{}: {}", type(event).__name__, failed.error)
        find = _EVENTS.get(type(event))
        task = getattr(event, "task", None)
        if isinstance(event, SnapshotWritten | WholeStateWritten):
            task = task_of_object(event.name)
        note: Note = ("{}", event) if find is None else find(event)
        return self._rings.get(task, self._of_none), note

    # ------------------------------------------------------------------ telling it

    def lines(self, task: TaskId | None = None) -> list[str]:
        """Returns the story as text, oldest first: of all, or of one task."""
        rings = self._rings.values() if task is None else [self._rings[task]]
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
