"""Both ends of a channel: sessions, statements, credit, and the deltas that ride along.

A session is opened by the receiver with a ``Statement`` and resets what counts as sent, elements and deltas, to what
the statement says. Data plane: mutable, owned by the slot's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clonos.core.checkpoint.snapshot import Snapshot
from clonos.core.inflight_log import Chunk, InflightLog
from clonos.core.log.causal_log import CausalLogs
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId, ViewNumber
from clonos.core.model.plan import Channel
from clonos.core.wire.channel_messages import Batch, Position, Statement
from clonos.core.wire.log_delta import Delta, Length

MESSAGE_OVERHEAD_BYTES = 64
"""What a batch costs of its credit besides its elements."""

ELEMENT_OVERHEAD_BYTES = 16
"""What an element costs of the credit besides its bytes: in memory even the least of them is an object."""

WINDOW_BYTES_FIRST = 16 << 10
WINDOW_BYTES_MIN = 256


def cost_bytes(count: int, payload_bytes: int) -> int:
    """What a batch costs of the credit of its channel."""
    return payload_bytes + count * ELEMENT_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES


class Sending:
    """The sender's end. ``session`` is 0 while the receiver has not stated."""

    __slots__ = (
        "channel",
        "claim",
        "coverage",
        "credit_bytes",
        "cursor",
        "dirty",
        "log",
        "ordinal",
        "receiver",
        "sent_bytes",
        "session",
        "shared",
        "shipped",
        "unsent_bytes",
    )

    def __init__(
        self, channel: Channel, log: InflightLog, shared: tuple[TaskId, ...], coverage: Coverage | None = None
    ) -> None:
        self.channel = channel
        self.log = log
        self.shared = shared  # whose logs travel on this channel, where all do
        self.coverage = coverage  # else those that are not covered
        self.receiver = Incarnation(0)
        self.session = 0
        self.ordinal = 0  # of the next message of this session
        self.claim: int | None = None  # the latest one; it outlives the session
        self.cursor = log.next_seq  # number of the next element to send in this session
        self.credit_bytes = 0
        self.sent_bytes = 0
        self.unsent_bytes = 0
        self.shipped: dict[TaskId, int] = {}  # per log, up to where this session has carried it
        self.dirty: dict[TaskId, None] = {}  # logs that have grown since they were last looked at here

    def append(self, kind: int, count: int, checkpoint: CheckpointId, payload: bytes) -> None:
        """The task has produced the next elements."""
        self.log.append(kind, count, checkpoint, payload)
        if self.session and self.log.next_seq > self.cursor:
            self.unsent_bytes += len(payload)

    def meet(self, receiver: Incarnation) -> None:
        """A view names the receiver's incarnation: the session of an earlier one is over, its claim stands until a
        successor states its own."""
        if receiver != self.receiver:
            self.receiver = receiver
            self.session = 0
            self.unsent_bytes = 0

    def open(self, statement: Statement, logs: CausalLogs) -> None:
        """Takes over what the receiver states; opens a session if it is a new one.

        Raises: MessageMalformed, if it asks for what completed checkpoints have.
        """
        if statement.session < self.session:
            return
        if statement.session > self.session:
            if statement.next_seq < self.log.start_seq:
                what = f"it asks for element {statement.next_seq}, the log begins with {self.log.start_seq}"
                raise MessageMalformed(f"the receiver of channel {self.channel.id}", what)
            self.session = statement.session
            self.ordinal = 0
            self.claim = statement.claim
            self.cursor = statement.next_seq
            self.sent_bytes = 0
            self.credit_bytes = 0
            self.shipped = {length.task: length.end_bytes for length in statement.lengths}
            self.dirty = dict.fromkeys(task for task in self.shared if task in logs.replicas)
            self.unsent_bytes = self.log.bytes_from(max(self.cursor, self.log.start_seq))
        # One that was overtaken on its way takes nothing back.
        self.claim = max(self.claim or 0, statement.claim)
        self.credit_bytes = max(self.credit_bytes, statement.credit_bytes)

    def deltas(self, logs: CausalLogs) -> tuple[Delta, ...]:
        """What this session has not yet carried of the logs that it shares; counts as carried from now on."""
        if self.coverage is not None:
            return self.coverage.deltas(self.shipped, logs)
        return tuple(logs.take_unshipped(self.dirty, self.shipped)) if self.dirty else ()

    def pump(self, logs: CausalLogs, sender: Incarnation, send: Callable[[Batch, bytes], None]) -> None:
        """Sends what credit allows; one element always passes."""
        log = self.log
        if self.cursor < log.start_seq:  # a coordinator has called complete what its receiver lacks
            self.session = 0
        while self.session and self.cursor < log.next_seq and self.sent_bytes < self.credit_bytes:
            chunk = log.read(self.cursor)
            if chunk is None:
                return  # being loaded from disk
            self._account(chunk)
            send(
                Batch(
                    self.channel.id,
                    sender,
                    self.receiver,
                    self.session,
                    self.ordinal,
                    chunk.first_seq,
                    chunk.kind,
                    chunk.count,
                    chunk.checkpoint,
                    self.deltas(logs),
                ),
                chunk.payload,
            )
            self.ordinal += 1

    def _account(self, chunk: Chunk) -> None:
        self.cursor = chunk.first_seq + chunk.count
        self.sent_bytes += cost_bytes(chunk.count, len(chunk.payload))
        self.unsent_bytes = max(0, self.unsent_bytes - len(chunk.payload))

    @property
    def room_bytes(self) -> int:
        """What may be produced for a live session before its credit is used up; a step while nothing waits to be sent,
        so that the next one is there when credit comes, and barriers that take all of it starve nobody."""
        room_bytes = self.credit_bytes - self.sent_bytes - self.unsent_bytes
        return room_bytes if self.unsent_bytes else max(room_bytes, 1)

    def position(self, logs: CausalLogs, sender: Incarnation) -> Position:
        """The heartbeat: lets a lost tail be noticed, carries waiting deltas."""
        ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        head = self.channel.id, sender, self.receiver, self.session, ordinal
        return Position(*head, self.cursor, self.log.next_seq, self.deltas(logs))


class Receiving:
    """The receiver's end. A new session begins at each meeting of a sender, break of a connection, and gap."""

    __slots__ = (
        "channel",
        "freed_bytes",
        "granted_bytes",
        "is_confirmed",
        "is_quiet",
        "needed_seq",
        "next_ordinal",
        "next_seq",
        "processed_seq",
        "produced_seq",
        "queued_bytes",
        "recovered_claim",
        "sender",
        "session",
        "session_bytes",
        "stated_bytes",
        "ticks",
        "was_empty",
        "window_bytes",
        "window_bytes_max",
    )

    def __init__(self, channel: Channel, next_seq: int, claim: int, window_bytes_max: int) -> None:
        self.channel = channel
        self.next_seq = next_seq
        self.processed_seq = next_seq  # number of the next element that the task processes
        self.produced_seq: int | None = None  # what the sender of this session had produced at its last heartbeat
        self.recovered_claim = claim  # what the own log has steps for
        self.window_bytes_max = window_bytes_max
        self.window_bytes = min(WINDOW_BYTES_FIRST, window_bytes_max)
        self.freed_bytes = 0  # worked off since the window was last adapted
        self.ticks = 0  # since then
        self.was_empty = False  # the queue, at some time since then
        self.sender = Incarnation(0)
        self.session = 0
        self.next_ordinal = 0  # of the next message of this session
        self.session_bytes = 0  # received in this session
        self.queued_bytes = 0  # handed to the task, not yet processed
        self.granted_bytes = 0
        self.stated_bytes = 0
        self.needed_seq = 0  # a replaying task waits for all elements below
        self.is_confirmed = False  # something has come in this session
        self.is_quiet = True  # nothing has come since the last heartbeat

    def renew(self) -> None:
        """Begins a new session; the caller states it."""
        self.session += 1
        self.next_ordinal = 0
        self.session_bytes = 0
        self.granted_bytes = 0
        self.stated_bytes = 0
        self.is_confirmed = False
        self.produced_seq = None

    def meet(self, sender: Incarnation) -> bool:
        """A view names the sender's incarnation; whether it is another one."""
        if sender == self.sender:
            return False
        self.sender = sender
        return True

    @property
    def claim(self) -> int:
        """Up to where this receiver has received, or its own log has steps."""
        return max(self.next_seq, self.recovered_claim)

    @property
    def backlog(self) -> int | None:
        """Elements that the sender had produced, as far as it has said, and the task has not processed; None until a
        heartbeat of the sender has come in this session."""
        if self.produced_seq is None:
            return None
        return max(self.produced_seq, self.next_seq) - self.processed_seq

    def grant(self) -> bool:
        """Brings the credit up to date; whether it has grown enough to be stated at once."""
        free_bytes = self.window_bytes_max
        if self.next_seq >= self.needed_seq:
            free_bytes = max(0, self.window_bytes - self.queued_bytes)
        self.granted_bytes = max(self.granted_bytes, self.session_bytes + free_bytes)
        starved = self.stated_bytes <= self.session_bytes < self.granted_bytes
        return starved or self.granted_bytes - self.stated_bytes >= self.window_bytes // 4

    def freed(self, freed_bytes: int) -> None:
        """The task has worked something off. One that has nothing left, while its sender has no credit, could have had
        more."""
        self.queued_bytes -= freed_bytes
        self.freed_bytes += freed_bytes
        if not self.queued_bytes:
            self.was_empty = True
            if self.stated_bytes <= self.session_bytes:
                self.window_bytes = min(2 * self.window_bytes, self.window_bytes_max)

    def adapt(self, heartbeat_ms: int, delay_ms: int) -> None:
        """At the heartbeat: lets no more come than is worked off in ``delay_ms``, since a barrier waits behind it."""
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

    def statement(self, view: ViewNumber, receiver: Incarnation, lengths: Iterable[Length]) -> Statement:
        """What to tell the sender now; ``lengths`` until the session is confirmed."""
        self.grant()
        self.stated_bytes = self.granted_bytes
        return Statement(
            self.channel.id,
            view,
            receiver,
            self.sender,
            self.session,
            self.next_seq,
            self.claim,
            self.granted_bytes,
            () if self.is_confirmed else tuple(lengths),
        )

    def has_gap(self, message: Batch | Position, logs: CausalLogs) -> bool:
        """Whether a message, elements or bytes of a delta are missing: a message is accepted whole or not at all.

        A message that carried only deltas leaves no gap in the elements, and none in the deltas if nothing has grown
        since: without its ordinal, elements would be accepted without their causes.
        """
        first = message.first_seq if isinstance(message, Batch) else message.next_seq
        if message.ordinal > self.next_ordinal or first > self.next_seq:
            return True
        return bool(message.deltas) and any(map(logs.has_gap, message.deltas))

    def confirm(self, message: Batch | Position) -> None:
        """A message of this session is accepted: it has no gap."""
        self.is_confirmed = True
        self.next_ordinal = max(self.next_ordinal, message.ordinal + 1)

    def accept(self, batch: Batch, payload_bytes: int) -> int | None:
        """Moves on behind ``batch``, which has no gap; how many of its elements are known already (None: all)."""
        cost = cost_bytes(batch.count, payload_bytes)
        self.session_bytes += cost
        end = batch.first_seq + batch.count
        if end <= self.next_seq:
            return None
        skip = self.next_seq - batch.first_seq
        self.next_seq = end
        self.queued_bytes += cost
        return skip


def forget_output(sendings: dict[ChannelId, Sending], snapshot: Snapshot) -> None:
    """Nobody asks any more for what left before a snapshot that is complete."""
    for channel, before_seq in snapshot.outputs:
        if channel in sendings:
            sendings[channel].log.truncate(before_seq)


def compare_claims(
    positions: dict[ChannelId, int], sendings: dict[ChannelId, Sending], outside_claim: int | None, own_end_bytes: int
) -> tuple[tuple[ChannelId, int, int] | None, bool]:
    """What a task's output, and the copies of its own log, are behind: (channel, where it is, what the receiver has) of
    the first one whose receiver lives; and whether some receiver is being replaced, whose successor may claim less."""
    behind: tuple[ChannelId, int, int] | None = None
    is_awaiting = False
    for channel, position in sorted(positions.items()):
        sending = sendings.get(channel)
        claim = outside_claim if sending is None else sending.claim
        if sending is not None and sending.shipped.get(sending.channel.sender, 0) > own_end_bytes:
            position, claim = own_end_bytes, sending.shipped[sending.channel.sender]
        if claim is not None and position >= claim:
            continue
        if sending is not None and not sending.session:
            is_awaiting = True
        elif behind is None:
            behind = (channel, position, claim or 0)
    return behind, is_awaiting
