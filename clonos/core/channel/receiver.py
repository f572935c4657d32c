"""Receiving end of a channel: what it accepts, and what its handshake contains (protocol 4)."""

from __future__ import annotations

from collections.abc import Iterable

from clonos.core.channel.credit import cost_bytes
from clonos.core.channel.repeated_rows import LastBatch
from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import Incarnation, ViewNumber
from clonos.core.model.plan import Channel
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.log_delta import Length

WINDOW_BYTES_FIRST = 16 << 10
"""Credit window of a new receiver, before it is adapted."""

WINDOW_BYTES_MIN = 256
"""Credit window of a receiver that hardly works anything off."""


class ChannelReceiver:
    """Receiver of one channel. It begins a new session with each new sender, after a lost connection and at a gap."""

    __slots__ = (
        "channel",
        "freed_bytes",
        "gap_ticks",
        "granted_bytes",
        "had_gap",
        "is_confirmed",
        "is_quiet",
        "last_batch",
        "needed_seq",
        "next_ordinal",
        "next_seq",
        "processed_seq",
        "produced_seq",
        "queued_bytes",
        "recovered_up_to",
        "sender",
        "session",
        "session_bytes",
        "announced_credit_bytes",
        "ticks",
        "was_empty",
        "window_bytes",
        "window_bytes_max",
    )

    def __init__(self, channel: Channel, next_seq: int, received_up_to: int, window_bytes_max: int) -> None:
        self.channel = channel
        self.next_seq = next_seq  # number of the next element to be received
        self.processed_seq = next_seq  # number of the next element that the task processes
        #: Invariant: 0 <= processed_seq <= next_seq
        self.produced_seq: int | None = None  # what the sender of this session had produced at its last heartbeat
        self.recovered_up_to = received_up_to  # what the own log has steps for
        self.window_bytes_max = window_bytes_max
        self.window_bytes = min(WINDOW_BYTES_FIRST, window_bytes_max)
        #: Invariant: 0 < window_bytes <= window_bytes_max
        self.freed_bytes = 0  # worked off since the window was last adapted
        self.ticks = 0  # since then
        self.was_empty = False  # the queue, at some time since then
        self.sender: Incarnation | None = None  # until a view has named one
        self.session = 0
        self.next_ordinal = 0  # of the next message of this session
        self.session_bytes = 0  # received in this session
        self.queued_bytes = 0  # handed to the task, not yet processed
        #: Invariant: queued_bytes >= 0, and 0 if all that was received has been processed
        self.granted_bytes = 0  # credit of this session
        self.announced_credit_bytes = 0  # credit that the sender was sent
        #: Invariant: 0 <= announced_credit_bytes <= granted_bytes
        self.needed_seq = 0  # a replaying task waits for all elements below
        self.is_confirmed = False  # something has come in this session
        self.is_quiet = True  # nothing has come since the last heartbeat
        self.had_gap = False  # a message with a gap has come since then
        self.gap_ticks = 0  # heartbeats with one, since a message without one has come
        self.last_batch: LastBatch | None = None  # of rows

    def renew(self) -> None:
        """Begins a new session; the caller sends its handshake."""
        self.session += 1
        self.next_ordinal = 0
        self.session_bytes = 0
        self.granted_bytes = 0
        self.announced_credit_bytes = 0
        self.is_confirmed = False
        self.produced_seq = None

    def apply_view(self, sender: Incarnation) -> bool:
        """Takes over the sender's incarnation that a view names; returns whether it is another one."""
        if sender == self.sender:
            return False
        self.sender = sender
        self.had_gap, self.gap_ticks = False, 0
        return True

    @property
    def received_up_to(self) -> int:
        """High-water mark: the number up to which this receiver has received, or its own log has steps."""
        return max(self.next_seq, self.recovered_up_to)

    @property
    def backlog(self) -> int | None:
        """Elements that the sender had produced at its last heartbeat and the task has not processed; None before the
        first heartbeat of the session."""
        if self.produced_seq is None:
            return None
        return max(self.produced_seq, self.next_seq) - self.processed_seq

    def grant(self) -> bool:
        """Brings the credit up to date; returns whether it has grown enough for a handshake at once."""
        session_bytes, announced_bytes = self.session_bytes, self.announced_credit_bytes
        granted_bytes = self.granted_bytes
        free_bytes = self.window_bytes - self.queued_bytes
        if self.next_seq < self.needed_seq:
            free_bytes = self.window_bytes_max
        up_to_bytes = session_bytes + free_bytes if free_bytes > 0 else session_bytes  # all that has come is granted
        if up_to_bytes > granted_bytes:
            self.granted_bytes = granted_bytes = up_to_bytes
        starved = announced_bytes <= session_bytes < granted_bytes
        return starved or granted_bytes - announced_bytes >= self.window_bytes // 4

    def need(self, next_seq: int) -> None:
        """Records that a replaying task waits for all elements below ``next_seq``."""
        self.needed_seq = max(self.needed_seq, next_seq)

    def note_traffic(self) -> None:
        """Records that a batch of this session has come."""
        self.is_quiet = False

    def take_quiet(self) -> bool:
        """Returns whether no batch has come since the last call, which the heartbeat makes."""
        was_quiet, self.is_quiet = self.is_quiet, True
        return was_quiet

    def note_produced(self, produced_seq: int) -> None:
        """Records what the sender had produced at its heartbeat."""
        self.produced_seq = produced_seq

    def processed(self, next_seq: int, freed_bytes: int) -> None:
        """Records that the task has processed all elements below ``next_seq``, and gives back their credit.

        Doubles the window of a receiver that has nothing left while its sender has no credit: it could have had more.
        """
        self.processed_seq = next_seq
        self.queued_bytes -= freed_bytes
        self.freed_bytes += freed_bytes
        if not self.queued_bytes:
            self.was_empty = True
            if self.announced_credit_bytes <= self.session_bytes:
                self.window_bytes = min(2 * self.window_bytes, self.window_bytes_max)

    def give(self, next_seq: int, cost: int) -> None:
        """Records that a shadow was given all elements below ``next_seq``, for ``cost`` bytes."""
        self.next_seq = next_seq
        self.queued_bytes += cost

    def take_over(self, shadows: ChannelReceiver, needed_seq: int) -> None:
        """Continues after what a shadow was given and has processed."""
        self.next_seq, self.queued_bytes = shadows.next_seq, shadows.queued_bytes
        self.processed_seq, self.needed_seq = shadows.processed_seq, needed_seq

    def adapt(self, heartbeat_ms: int, delay_ms: int) -> None:
        """Adapts the window at the heartbeat to the work of ``delay_ms``, because a barrier waits behind it."""
        self.ticks += 1
        if not self.freed_bytes:
            return
        fair_bytes = self.freed_bytes * delay_ms // (self.ticks * heartbeat_ms)
        if self.was_empty:  # it could have worked off more
            wanted_bytes = max(self.window_bytes, fair_bytes)
        else:
            wanted_bytes = max(WINDOW_BYTES_MIN, (self.window_bytes + fair_bytes) // 2)
        self.window_bytes = min(wanted_bytes, self.window_bytes_max)
        self.freed_bytes = self.ticks = 0
        self.was_empty = not self.queued_bytes

    def validate(self) -> None:
        """Asserts what holds between two events."""
        assert 0 <= self.processed_seq <= self.next_seq, (self.channel, self.processed_seq, self.next_seq)
        assert 0 < self.window_bytes <= self.window_bytes_max, (self.channel, self.window_bytes)
        assert self.queued_bytes >= 0, (self.channel, self.queued_bytes)
        assert self.processed_seq < self.next_seq or not self.queued_bytes, (self.channel, self.queued_bytes)
        assert 0 <= self.announced_credit_bytes <= self.granted_bytes, (
            self.channel,
            self.announced_credit_bytes,
            self.granted_bytes,
        )
        assert self.session_bytes >= 0 and self.next_ordinal >= 0, (self.channel, self.session)

    def handshake(self, view: ViewNumber, receiver: Incarnation, lengths: Iterable[Length]) -> ChannelHandshake:
        """Returns the handshake to send now; ``lengths`` are in it until the session is confirmed."""
        assert self.sender is not None, self.channel
        self.grant()
        self.announced_credit_bytes = self.granted_bytes
        return ChannelHandshake(
            self.channel.id,
            view,
            receiver,
            self.sender,
            self.session,
            self.next_seq,
            self.received_up_to,
            self.granted_bytes,
            () if self.is_confirmed else tuple(lengths),
            None if self.is_confirmed or self.last_batch is None else self.last_batch.taken_from_other(self.sender),
        )

    def has_gap(self, message: Batch | Position, logs: CausalLogs) -> bool:
        """Whether a message, elements or bytes of a delta are missing before this message, which is then refused whole.

        A message that carried only deltas leaves no gap in the elements, and none in the deltas if nothing has grown
        since: without its ordinal, elements would be accepted without their causes.
        """
        first = message.first_seq if isinstance(message, Batch) else message.next_seq
        if message.ordinal > self.next_ordinal or first > self.next_seq:
            return True
        return bool(message.deltas) and any(map(logs.has_gap, message.deltas))

    def note_gap(self) -> None:
        """Records that a message had a gap."""
        self.had_gap = True

    def take_gap_ticks(self) -> int:
        """Counts at the heartbeat whether a message had a gap; returns in how many heartbeats, without a message that
        had none."""
        if self.had_gap:
            self.had_gap = False
            self.gap_ticks += 1
        return self.gap_ticks

    def confirm(self, message: Batch | Position) -> None:
        """Counts a message of this session that has no gap."""
        self.is_confirmed = True
        self.gap_ticks = 0
        if message.ordinal >= self.next_ordinal:
            self.next_ordinal = message.ordinal + 1

    def keep_last(self, batch: Batch, payload: bytes | memoryview) -> None:
        """Keeps an accepted batch if it has rows: the next incarnation of the sender must repeat its last one."""
        if batch.kind is ElementKind.ROWS:
            self.last_batch = LastBatch(batch.sender, batch.first_seq, batch.count, payload)

    def accept(self, batch: Batch, payload_bytes: int) -> int | None:
        """Moves on after ``batch``, which has no gap; returns how many of its elements are known (None: all)."""
        cost = cost_bytes(batch.count, payload_bytes)
        self.session_bytes += cost
        end = batch.first_seq + batch.count
        if end <= self.next_seq:
            return None
        skip = self.next_seq - batch.first_seq
        self.next_seq = end
        self.queued_bytes += cost
        return skip
