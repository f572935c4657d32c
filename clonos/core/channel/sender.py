"""Sending end of a channel: its session, its credit, and the log entries that it carries (protocol 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clonos.core.channel.credit import cost_bytes
from clonos.core.channel.inflight_log import InflightLog
from clonos.core.channel.repeated_rows import is_repeated
from clonos.core.log.causal_log import CausalLogs
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import EnvironmentFault, MessageMalformed
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, LogId, log_of
from clonos.core.model.plan import Channel
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Mark, Position, TakenRow
from clonos.core.wire.log_delta import Delta

HANDSHAKE_TICKS_MAX = 20
"""Heartbeats with a handshake that cannot be met, and with no other between them, after which the task fails."""


class ChannelStuck(EnvironmentFault):
    """A channel whose two ends ask and answer again and again without progress: their states do not fit together.

    ``channel``: names of the sending and the receiving task.
    """

    channel: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the channel {self.channel} makes no progress: {self.reason}. The states of the two tasks do not fit"
            " together. Restore the checkpoint store from a backup, or resume from an earlier checkpoint with --resume"
            " --checkpoint N."
        )


class ChannelSender:
    """Sender of one channel. ``session`` is 0 until the receiver has sent a handshake."""

    __slots__ = (
        "channel",
        "received_up_to",
        "coverage",
        "credit_bytes",
        "cursor",
        "dirty",
        "log",
        "mark",
        "ordinal",
        "receiver",
        "receiving_task",
        "refused",
        "refused_ticks",
        "was_refused",
        "sent_bytes",
        "session",
        "shared",
        "shipped",
        "taken",
        "unsent_bytes",
    )

    def __init__(
        self, channel: Channel, log: InflightLog, shared: tuple[LogId, ...], coverage: Coverage | None = None
    ) -> None:
        self.channel = channel
        self.receiving_task = channel.receiving_task
        self.log = log
        self.shared = shared  # the logs that travel on this channel, where all do
        self.coverage = coverage  # else those that are not covered
        self.receiver: Incarnation | None = None  # until a view has named one
        self.session = 0
        #: Invariant: a session has a receiver
        self.ordinal = 0  # of the next message of this session
        self.received_up_to: int | None = None  # the latest one; it outlives the session
        self.cursor = log.next_seq  # number of the next element to send in this session
        self.credit_bytes = 0  # granted in this session
        self.sent_bytes = 0  # in this session
        self.unsent_bytes = 0  # produced and not sent
        #: Invariant: credit_bytes, sent_bytes and unsent_bytes >= 0; without credit nothing was sent
        self.shipped: dict[LogId, int] = {}  # per log, up to where this session has carried it
        self.mark: tuple[int, Mark] | None = None  # waits for the batch with the element of this number
        self.refused = ""  # why the last handshake was refused, until one is accepted
        self.was_refused = False  # since the last heartbeat
        self.refused_ticks = 0  # heartbeats with such a handshake
        self.taken: TakenRow | None = None  # what a replay must repeat, of the latest session that said so
        self.dirty: dict[LogId, None] = {}  # logs that have grown since they were last looked at here
        #: Invariant: every dirty log is shared, and held by the task

    def append(
        self, kind: ElementKind, count: int, checkpoint: CheckpointId, payload: bytes, mark: Mark | None = None
    ) -> None:
        """Appends the next elements that the task has produced. Of several marks only the first waits, or the first
        that is traced."""
        if mark is not None and kind.is_data:
            waiting = self.mark
            if waiting is None or (mark.source is not None and waiting[1].source is None):
                self.mark = self.log.next_seq, mark
        self.log.append(kind, count, checkpoint, payload)
        if self.session and self.log.next_seq > self.cursor:
            self.unsent_bytes += len(payload)

    def apply_view(self, receiver: Incarnation) -> None:
        """Takes over the receiver's incarnation that a view names: ends the session of an earlier one, whose high-water
        mark stands until the successor has sent its own."""
        if receiver != self.receiver:
            self.receiver = receiver
            self.session = 0
            self.unsent_bytes = 0
            self.refused, self.refused_ticks = "", 0

    def open(self, handshake: ChannelHandshake, logs: CausalLogs) -> None:
        """Takes over a handshake; opens a session if it is a new one.

        Raises: MessageMalformed, if the receiver asks for elements that completed checkpoints have.
        """
        if handshake.session < self.session:
            return
        if handshake.session > self.session:
            if handshake.next_seq < self.log.start_seq:
                what = f"it asks for element {handshake.next_seq}, the log begins with {self.log.start_seq}"
                self.refused, self.was_refused = what, True
                raise MessageMalformed(f"the receiver of channel {self.channel.id}", what)
            self.session = handshake.session
            self.refused, self.refused_ticks = "", 0
            self.ordinal = 0
            self.received_up_to = handshake.received_up_to
            self.taken = handshake.taken or self.taken
            self.cursor = handshake.next_seq
            self.sent_bytes = 0
            self.credit_bytes = 0
            self.shipped = {length.log: length.end_bytes for length in handshake.lengths}
            self.dirty = dict.fromkeys(log for log in self.shared if log in logs.replicas)
            self.unsent_bytes = self.log.bytes_from(max(self.cursor, self.log.start_seq))
        # One that was overtaken on its way takes nothing back.
        self.received_up_to = max(self.received_up_to or 0, handshake.received_up_to)
        self.credit_bytes = max(self.credit_bytes, handshake.credit_bytes)

    def take_divergence(self) -> int | None:
        """Returns the number of a row that the receiver has taken, if the replay, which has ended, has made another
        row. A row that is not in memory any more is not compared.
        """
        taken, self.taken = self.taken, None
        chunk = None if taken is None else self.log.in_tail(taken.seq)
        return None if taken is None or chunk is None or is_repeated(taken, chunk) else taken.seq

    def take_stuck(self) -> str:
        """Counts at the heartbeat whether a handshake was refused; returns why, once there were too many.

        A receiver that is dead, recovering or slow sends none, and another incarnation starts the count over.
        """
        if self.was_refused:
            self.was_refused = False
            self.refused_ticks += 1
        return self.refused if self.refused_ticks >= HANDSHAKE_TICKS_MAX else ""

    def deltas(self, logs: CausalLogs) -> tuple[Delta, ...]:
        """Returns what this session has not yet carried of the shared logs; it counts as carried from now on."""
        if self.coverage is not None:
            return self.coverage.deltas(self.shipped, logs)
        return tuple(logs.take_unshipped(self.dirty, self.shipped)) if self.dirty else ()

    def pump(self, logs: CausalLogs, sender: Incarnation, send: Callable[[Batch, bytes], None]) -> None:
        """Sends what credit allows; one element always passes."""
        log, receiver = self.log, self.receiver
        if self.cursor < log.start_seq:  # a coordinator has called complete what its receiver lacks
            self.session = 0
        while self.session and self.cursor < log.next_seq and self.sent_bytes < self.credit_bytes:
            assert receiver is not None, self.channel
            chunk = log.read(self.cursor)
            if chunk is None:
                return  # being loaded from disk
            payload_bytes = len(chunk.payload)
            self.cursor = chunk.first_seq + chunk.count
            self.sent_bytes += cost_bytes(chunk.count, payload_bytes)
            self.unsent_bytes = self.unsent_bytes - payload_bytes if self.unsent_bytes > payload_bytes else 0
            send(
                Batch(
                    self.channel.id,
                    sender,
                    receiver,
                    self.session,
                    self.ordinal,
                    chunk.first_seq,
                    chunk.kind,
                    chunk.count,
                    chunk.checkpoint,
                    self.deltas(logs),
                    None if self.mark is None else self._take_mark(chunk.first_seq),
                ),
                chunk.payload,
            )
            self.ordinal += 1

    def _take_mark(self, first_seq: int) -> Mark | None:
        """Returns the mark that rides with a batch that ends before the cursor; drops one whose batch has left."""
        assert self.mark is not None, self.channel
        seq, mark = self.mark
        if seq >= self.cursor:
            return None
        self.mark = None
        return mark if seq >= first_seq else None

    @property
    def budget_bytes(self) -> int:
        """Bytes that may be produced before credit is exhausted. At least 1 while nothing is queued, so that one step
        is always ready when credit arrives and barriers that take all credit starve nobody."""
        budget_bytes = self.credit_bytes - self.sent_bytes - self.unsent_bytes
        return budget_bytes if self.unsent_bytes or budget_bytes > 1 else 1

    def validate(self, logs: CausalLogs) -> None:
        """Asserts what holds between two events."""
        assert not self.session or self.receiver is not None, self.channel
        assert min(self.credit_bytes, self.sent_bytes, self.unsent_bytes, self.ordinal) >= 0, self.channel
        assert self.credit_bytes or not self.sent_bytes, (self.channel, self.sent_bytes)
        assert all(log in self.shared and log in logs.replicas for log in self.dirty), (self.channel, self.dirty)
        self.log.validate()

    def position(self, logs: CausalLogs, sender: Incarnation) -> Position:
        """Returns the heartbeat: with it the receiver notices a lost tail; it carries waiting log entries."""
        assert self.receiver is not None, self.channel
        ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        head = self.channel.id, sender, self.receiver, self.session, ordinal
        return Position(*head, self.cursor, self.log.next_seq, self.deltas(logs))


@dataclass(frozen=True, slots=True)
class Behind:
    """Log of a task that ends at ``position``, while a receiver has the task's output up to ``received_up_to``.

    Both are sequence numbers of ``channel``; without a channel, byte offsets of the log, of which there is a longer
    copy.
    """

    channel: ChannelId | None
    position: int
    received_up_to: int


def compare_positions(
    positions: dict[ChannelId, int],
    senders: dict[ChannelId, ChannelSender],
    external_seq: int | None,
    own_end_bytes: int,
) -> tuple[Behind | None, bool]:
    """Returns how far a task's output, or its own log, is behind the first living receiver; and whether some receiver
    is being replaced, because its successor may have a lower high-water mark."""
    behind: Behind | None = None
    is_awaiting = False
    for channel, position in sorted(positions.items()):
        sender = senders.get(channel)
        received_up_to = external_seq if sender is None else sender.received_up_to
        found = Behind(channel, position, received_up_to or 0)
        shipped = 0 if sender is None else sender.shipped.get(log_of(sender.channel.sender), 0)
        if shipped > own_end_bytes:
            found = Behind(None, own_end_bytes, shipped)
        elif received_up_to is not None and position >= received_up_to:
            continue
        if sender is not None and not sender.session:
            is_awaiting = True
        elif behind is None:
            behind = found
    return behind, is_awaiting
