"""The task's end of hot standbys: what it has taken in and decided goes to each, in one order.

Rules:

- A session begins at a barrier that the task passes live, with the snapshot of that barrier.
- Each message has the deltas of every log that the task holds before the elements that depend on them: whoever has an
  entry of this task's log from here has its causes, as any receiver has.
- Of the own log goes only what the task is through with, so that a step that its process dies of is nobody else's.
- A shadow holds nobody up: one that lags too far behind is let go, and asks for another session.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from clonos.core.channel.credit import cost_bytes
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, LogId, SlotId
from clonos.core.ports.task_port import Emission
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.recovery.recovery_machine import Live
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow

if TYPE_CHECKING:
    from clonos.core.slot.hosted_task import HostedTask

LAG_PERCENT = 25
"""Of the memory budget for in-flight logs: so much may be on its way to a shadow, or wait there to be worked off."""


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
        """Number of the element behind them."""
        return self.first_seq + self.length


NOTHING = FedElements(ChannelId(0), 0, ElementKind.ROWS, 0, 0, CheckpointId(0), b"")


class ShadowFeed:
    """One session with one hot standby. It has begun when ``base`` is not 0."""

    __slots__ = ("base", "dirty", "is_let_go", "ordinal", "sent_bytes", "session", "shipped", "slot", "worked_bytes")

    def __init__(self, slot: SlotId, session: int) -> None:
        self.slot, self.session = slot, session
        self.base = CheckpointId(0)
        self.ordinal = 0  # of the next message
        self.sent_bytes = 0
        self.worked_bytes = 0
        self.shipped: dict[LogId, int] = {}
        self.dirty: dict[LogId, None] = {}  # logs that have grown since they were last looked at here
        self.is_let_go = False

    def deltas(self, hosted: HostedTask, done_bytes: int) -> tuple[Delta, ...]:
        """What this session has not carried; of the own log up to ``done_bytes``."""
        found = []
        for log in self.dirty:
            is_own = log == hosted.own_log
            end = done_bytes if is_own else hosted.logs.end_bytes(log)
            shipped = self.shipped.get(log, -1)
            if end > shipped:
                delta = hosted.logs.delta(log, max(shipped, 0))
                if is_own:
                    data = delta.data[: end - delta.offset_bytes]
                    delta = Delta(log, delta.offset_bytes, delta.restart, data)
                found.append(delta)
                self.shipped[log] = end
        self.dirty.clear()
        return tuple(found)


class ShadowFeeds:
    """All sessions of one incarnation with its hot standbys."""

    def __init__(self, hosted: HostedTask) -> None:
        self.hosted = hosted
        self.shadow_feeds: dict[SlotId, ShadowFeed] = {}
        self.is_hot = hosted.task in hosted.plan.hot
        self._taken: dict[ChannelId, deque[FedElements]] = {}  # not worked off yet, per input channel
        self._done_bytes = 0  # end of the own log behind the last step that the task is through with

    def on_feed_ack(self, message: FeedAck) -> None:
        """A hot standby asks for a session, or says how far it is."""
        if not self.is_hot or message.slot not in self.hosted.placement.standbys:
            return
        lead = self.shadow_feeds.get(message.slot)
        if lead is None or message.session > lead.session:
            self.shadow_feeds[message.slot] = ShadowFeed(message.slot, message.session)
        elif message.session == lead.session:
            lead.worked_bytes = max(lead.worked_bytes, message.worked_bytes)

    def apply_view(self, standbys: tuple[SlotId, ...]) -> None:
        """A view names the standbys."""
        self.shadow_feeds = {slot: lead for slot, lead in self.shadow_feeds.items() if slot in standbys}

    def grown(self, log: LogId) -> None:
        """A log that the task holds has grown."""
        for lead in self.shadow_feeds.values():
            lead.dirty[log] = None

    def took(self, batch: Batch, skip: int, payload: bytes | memoryview) -> None:
        """Elements were accepted, their causes before them."""
        if not self.is_hot:
            return
        taken = FedElements(batch.channel, batch.first_seq, batch.kind, batch.count, skip, batch.checkpoint, payload)
        self._taken.setdefault(batch.channel, deque()).append(taken)
        for lead in self.shadow_feeds.values():
            if lead.base and not lead.is_let_go:
                self._send(lead, taken)

    def on_emission(self, emission: Emission) -> None:
        """The task is through with a step, or in the middle of one."""
        if not self.is_hot:
            return
        for channel, next_seq, _ in emission.consumed:
            taken = self._taken.get(channel)
            while taken and taken[0].next_seq <= next_seq:
                taken.popleft()
        snapshot = emission.snapshot
        if not emission.records_in and snapshot is None:
            return  # in mid-step
        hosted = self.hosted
        self._done_bytes = hosted.logs.end_bytes(hosted.own_log)
        for lead in self.shadow_feeds.values():
            if lead.base:
                lead.dirty[hosted.own_log] = None
                if not lead.is_let_go and lead.shipped.get(hosted.own_log, -1) < self._done_bytes:
                    self._send(lead, NOTHING)
            elif snapshot is not None and self._may_begin(snapshot):
                self._begin(lead, snapshot.checkpoint, dict(snapshot.inputs))

    def _may_begin(self, snapshot: Snapshot) -> bool:
        """Live, and all that has come behind the barrier is still here: to a shadow that took over some came before."""
        if snapshot.final or not isinstance(self.hosted.state, Live):
            return False
        for channel, next_seq in snapshot.inputs:
            taken = self._taken.get(channel)
            first_seq = taken[0].first_seq if taken else self.hosted.inputs.receivings[channel].next_seq
            if first_seq > next_seq:
                return False
        return True

    def _begin(self, lead: ShadowFeed, base: CheckpointId, nexts: dict[ChannelId, int]) -> None:
        """From the barrier ``base`` on: whole logs first, then what has come behind it."""
        lead.base = base
        lead.dirty = dict.fromkeys(self.hosted.logs.replicas)
        self._send(lead, NOTHING)
        for channel, waiting in sorted(self._taken.items()):
            for taken in waiting:
                self._send(lead, taken._replace(skip=max(taken.skip, nexts[channel] - taken.first_seq)))

    def _send(self, lead: ShadowFeed, taken: FedElements) -> None:
        hosted = self.hosted
        deltas = lead.deltas(hosted, self._done_bytes)
        message = FeedShadow(
            hosted.task,
            hosted.incarnation,
            lead.session,
            lead.ordinal,
            lead.base,
            taken.channel,
            taken.first_seq,
            taken.kind,
            taken.length,
            taken.skip,
            taken.checkpoint,
            deltas,
        )
        hosted.shell.send(lead.slot, message, taken.payload)
        lead.ordinal += 1
        if taken.length:
            lead.sent_bytes += cost_bytes(taken.length, len(taken.payload))
        budget_bytes = hosted.slot.options.inflight_memory_bytes
        if lead.sent_bytes - lead.worked_bytes > budget_bytes * LAG_PERCENT // 100:
            lead.is_let_go = True

    def tick(self) -> None:
        """At the heartbeat: a lost tail is noticed. To one that was let go it looks as if something had been lost."""
        for lead in self.shadow_feeds.values():
            if lead.base:
                lead.ordinal += lead.is_let_go
                self._send(lead, NOTHING)
