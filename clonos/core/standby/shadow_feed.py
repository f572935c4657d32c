"""Task's end of hot standbys: what the task has taken in and decided goes to each, in one order (protocol 6.10).

Rules:

- A session begins at a barrier that the task passes live, with the snapshot of that barrier.
- Each message has the deltas of every log that the task holds before the elements that depend on them: a shadow that
  has an entry of this task's log has its causes, as any receiver has.
- The own log is sent only up to the last completed step: a step that kills the process must not kill the shadow too.
- A shadow holds nobody up: a shadow that lags too far behind is dropped, and asks for another session.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from clonos.core.channel.credit import cost_bytes
from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, LogId, SlotId, TaskId, log_of
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.task_port import TaskEmission
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.authorization import sender_name
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow

LAG_PERCENT = 25
"""Percentage of the memory budget for in-flight logs that may be on its way to a shadow, or wait there."""


class FedElements(NamedTuple):
    """Elements that the task has taken in, and may not have worked off. The first ``skip`` it had before."""

    channel: ChannelId
    first_seq: int
    kind: ElementKind
    length: int
    skip: int
    checkpoint: CheckpointId
    payload: bytes | memoryview

    @property
    def next_seq(self) -> int:
        """Number of the element after them."""
        return self.first_seq + self.length


NOTHING = FedElements(ChannelId(0), 0, ElementKind.ROWS, 0, 0, CheckpointId(0), b"")


class ShadowFeed:
    """Session with one hot standby. It has begun when ``base`` is not 0."""

    __slots__ = ("base", "dirty", "is_dropped", "ordinal", "sent_bytes", "session", "shipped", "slot", "worked_bytes")

    def __init__(self, slot: SlotId, session: int) -> None:
        self.slot, self.session = slot, session
        self.base = CheckpointId(0)
        self.ordinal = 0  # of the next message
        self.sent_bytes = 0
        self.worked_bytes = 0
        #: Invariant: 0 <= worked_bytes <= sent_bytes; nothing is sent before the session has a base
        self.shipped: dict[LogId, int] = {}
        self.dirty: dict[LogId, None] = {}  # logs that have grown since they were last looked at here
        self.is_dropped = False

    def mark(self, log: LogId) -> None:
        """Marks a log that has grown: it is sent with the next message."""
        self.dirty[log] = None

    def begin(self, base: CheckpointId, logs: CausalLogs) -> None:
        """Begins at the barrier of ``base``, with all logs whole."""
        self.base = base
        self.dirty = dict.fromkeys(logs.replicas)

    def on_ack(self, worked_bytes: int) -> None:
        """Takes over how much the shadow has worked off."""
        self.worked_bytes = max(self.worked_bytes, worked_bytes)

    def deltas(self, own_log: LogId, logs: CausalLogs, done_bytes: int) -> tuple[Delta, ...]:
        """Returns what this session has not carried; of the own log up to ``done_bytes``."""
        found = []
        for log in self.dirty:
            is_own = log == own_log
            end = done_bytes if is_own else logs.end_bytes(log)
            shipped = self.shipped.get(log, -1)
            if end > shipped:
                delta = logs.delta(log, max(shipped, 0))
                if is_own:
                    data = delta.data[: end - delta.offset_bytes]
                    delta = Delta(log, delta.offset_bytes, delta.restart, data)
                found.append(delta)
                self.shipped[log] = end
        self.dirty.clear()
        return tuple(found)

    def on_sent(self, cost: int, lag_bytes_max: int) -> None:
        """Counts a message that was sent, and drops the shadow that lags by more than ``lag_bytes_max``."""
        self.ordinal += 1
        self.sent_bytes += cost
        if self.sent_bytes - self.worked_bytes > lag_bytes_max:
            self.is_dropped = True

    def skip_ordinal_if_dropped(self) -> None:
        """Leaves a number out for a shadow that was dropped: to it, something seems to be lost, and it begins anew."""
        self.ordinal += self.is_dropped


class ShadowFeeds:
    """Sessions of one incarnation with its hot standbys."""

    def __init__(
        self,
        task: TaskId,
        incarnation: Incarnation,
        is_hot: bool,
        logs: CausalLogs,
        shell: EffectCollector,
        inflight_memory_bytes: int,
    ) -> None:
        self.task, self.incarnation, self.is_hot = task, incarnation, is_hot
        self.own_log = log_of(task)
        self.logs, self.shell = logs, shell
        self.lag_bytes_max = inflight_memory_bytes * LAG_PERCENT // 100
        self.standbys: tuple[SlotId, ...] = ()
        self.feeds: dict[SlotId, ShadowFeed] = {}
        self._taken: dict[ChannelId, deque[FedElements]] = {}  # not worked off yet, per input channel
        self._done_bytes = 0  # end of the own log after the last step that the task has completed
        #: Invariant: _done_bytes <= end of the own log; no session has shipped more of it

    def on_feed_ack(self, message: FeedAck) -> None:
        """Takes a hot standby's request for a session, or how far it is.

        Raises: MessageMalformed, if it acknowledges more bytes than the session has carried.
        """
        if not self.is_hot or message.slot not in self.standbys:
            return
        feed = self.feeds.get(message.slot)
        if feed is None or message.session > feed.session:
            self.feeds[message.slot] = ShadowFeed(message.slot, message.session)
        elif message.session == feed.session:
            if message.worked_bytes > feed.sent_bytes:
                what = f"it acknowledges {message.worked_bytes} bytes of a session that has carried {feed.sent_bytes}"
                raise MessageMalformed(sender_name(message.slot), what)
            feed.on_ack(message.worked_bytes)

    def apply_view(self, standbys: tuple[SlotId, ...]) -> None:
        """Takes over which slots have a standby of the task."""
        self.standbys = standbys
        self.feeds = {slot: feed for slot, feed in self.feeds.items() if slot in standbys}

    def grown(self, log: LogId) -> None:
        """Marks a log that has grown."""
        for feed in self.feeds.values():
            feed.mark(log)

    def took(self, batch: Batch, skip: int, payload: bytes | memoryview) -> None:
        """Feeds elements that were accepted, their causes before them."""
        if not self.is_hot:
            return
        taken = FedElements(batch.channel, batch.first_seq, batch.kind, batch.count, skip, batch.checkpoint, payload)
        self._taken.setdefault(batch.channel, deque()).append(taken)
        for feed in self.feeds.values():
            if feed.base and not feed.is_dropped:
                self._send(feed, taken)

    def on_emission(self, emission: TaskEmission, received: dict[ChannelId, int] | None) -> None:
        """Feeds a step that the task has completed; nothing in the middle of a step.

        ``received``: at a barrier that a live task passes, the number of the next element of each input.
        """
        if not self.is_hot:
            return
        for channel, next_seq, _ in emission.consumed:
            taken = self._taken.get(channel)
            while taken and taken[0].next_seq <= next_seq:
                taken.popleft()
        snapshot = emission.snapshot
        if not emission.records_in and snapshot is None:
            return
        self._done_bytes = self.logs.end_bytes(self.own_log)
        for feed in self.feeds.values():
            if feed.base:
                feed.mark(self.own_log)
                if not feed.is_dropped and feed.shipped.get(self.own_log, -1) < self._done_bytes:
                    self._send(feed, NOTHING)
            elif snapshot is not None and received is not None and self._may_begin(snapshot, received):
                self._begin(feed, snapshot.checkpoint, dict(snapshot.inputs))

    def _may_begin(self, snapshot: Snapshot, received: dict[ChannelId, int]) -> bool:
        """Whether all that has come after the barrier is still here: a task that began as a shadow lacks some."""
        if snapshot.final:
            return False
        for channel, next_seq in snapshot.inputs:
            taken = self._taken.get(channel)
            first_seq = taken[0].first_seq if taken else received[channel]
            if first_seq > next_seq:
                return False
        return True

    def _begin(self, feed: ShadowFeed, base: CheckpointId, nexts: dict[ChannelId, int]) -> None:
        """Sends whole logs first, then what has come after the barrier ``base``."""
        feed.begin(base, self.logs)
        self._send(feed, NOTHING)
        for channel, waiting in sorted(self._taken.items()):
            for taken in waiting:
                self._send(feed, taken._replace(skip=max(taken.skip, nexts[channel] - taken.first_seq)))

    def _send(self, feed: ShadowFeed, taken: FedElements) -> None:
        deltas = feed.deltas(self.own_log, self.logs, self._done_bytes)
        message = FeedShadow(
            self.task,
            self.incarnation,
            feed.session,
            feed.ordinal,
            feed.base,
            taken.channel,
            taken.first_seq,
            taken.kind,
            taken.length,
            taken.skip,
            taken.checkpoint,
            deltas,
        )
        self.shell.send(feed.slot, message, taken.payload)
        feed.on_sent(cost_bytes(taken.length, len(taken.payload)) if taken.length else 0, self.lag_bytes_max)

    def validate(self) -> None:
        """Asserts what holds between two events."""
        assert self._done_bytes <= self.logs.end_bytes(self.own_log), (self.task, self._done_bytes)
        for slot, feed in self.feeds.items():
            assert slot in self.standbys, (self.task, slot)
            assert feed.base or not feed.sent_bytes, (self.task, slot)
            assert 0 <= feed.worked_bytes <= feed.sent_bytes, (self.task, feed.worked_bytes, feed.sent_bytes)
            assert feed.shipped.get(self.own_log, 0) <= self._done_bytes, (self.task, feed.shipped)

    def tick(self) -> None:
        """Repeats the position of each session at the heartbeat, so that a lost tail is noticed."""
        for feed in self.feeds.values():
            if feed.base:
                feed.skip_ordinal_if_dropped()
                self._send(feed, NOTHING)
