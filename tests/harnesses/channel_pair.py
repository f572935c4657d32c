"""Both real ends of one channel, and a network between them that the test controls message by message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from clonos.core.channel.credit import cost_bytes
from clonos.core.channel.inflight_budget import InflightBudget
from clonos.core.channel.inflight_log import InflightLog
from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.channel.sender import ChannelSender
from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId, log_of
from clonos.core.model.options import Options
from clonos.core.model.plan import Channel
from clonos.core.ports.effect_collector import SpillStore
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from tests.harnesses.sample_plans import number

SENDER, RECEIVER = TaskId(0), TaskId(1)
SENDERS_LOG = log_of(SENDER)
CHANNEL = Channel(ChannelId(0), 0, SENDER, RECEIVER)
Packet = tuple[Batch | Position, bytes]


class NoDisk(SpillStore):
    """A disk that fails the test when it is used."""

    def write_segment(self, segment: int, payloads: list[bytes]) -> None:
        raise AssertionError(segment)

    def load(self, segment: int) -> None:
        raise AssertionError(segment)

    def delete(self, segment: int) -> None:
        raise AssertionError(segment)


def in_memory_budget() -> InflightBudget:
    """A budget that no test here exhausts."""
    return InflightBudget(Options(), NoDisk())


def inflight_log(next_seq: int = 0, channel: int = 0) -> InflightLog:
    """An in-flight log that stays in memory."""
    return InflightLog(ChannelId(channel), next_seq, in_memory_budget())


class ChannelPair:
    """``forward``: batches and positions on their way; ``back``: handshakes. A message that is removed instead of
    delivered is lost."""

    def __init__(self, window_bytes: int = 1000, next_seq: int = 0, received_up_to: int = 0) -> None:
        self.window_bytes = window_bytes
        self.incarnations = [0, 0]
        self.forward: deque[Packet] = deque()
        self.back: deque[ChannelHandshake] = deque()
        self.accepted: list[bytes] = []  # one item an element
        self.unconsumed: deque[int] = deque()
        self.renewals = 0
        self.new_sender(next_seq)
        self.new_receiver(next_seq, received_up_to)

    # ------------------------------------------------------------------ incarnations

    def new_sender(self, next_seq: int, log: bytes = b"") -> None:
        """A new incarnation of the sending task, restored with output from ``next_seq`` on."""
        self.incarnations[0] += 1
        self.sender_logs = CausalLogs()
        self.sender_logs.begin(SENDERS_LOG, 0, log)
        self.sender = ChannelSender(CHANNEL, inflight_log(next_seq), (SENDERS_LOG,))
        self.forward.clear()
        if hasattr(self, "receiver"):
            self.apply_view()

    def new_receiver(self, next_seq: int, received_up_to: int = 0) -> None:
        """A new incarnation of the receiving task, restored with input from ``next_seq`` on."""
        self.incarnations[1] += 1
        self.receiver_logs = CausalLogs()
        self.receiver = ChannelReceiver(CHANNEL, next_seq, received_up_to, self.window_bytes)
        self.accepted = self.accepted[:next_seq]
        self.unconsumed.clear()
        self.back.clear()
        self.apply_view()

    def apply_view(self) -> None:
        """Installs a view in both ends: they know each other's incarnation."""
        self.sender.apply_view(Incarnation(self.incarnations[1]))
        if self.receiver.apply_view(Incarnation(self.incarnations[0])):
            self.renew()

    # ------------------------------------------------------------------ the sending end

    def produce(self, *payloads: bytes, kind: ElementKind = ElementKind.ROWS, log: bytes = b"", count: int = 1) -> None:
        """Performs a step of the sender: its log grows, then ``count`` elements for each payload are sent."""
        if log:
            self.grow(log)
        for payload in payloads:
            checkpoint = CheckpointId(1 if kind is ElementKind.BARRIER else 0)
            self.sender.append(kind, count, checkpoint, payload)
        self.pump()

    def grow(self, log: bytes) -> None:
        """Lets the sender's log grow in the middle of a step."""
        self.sender_logs.append(SENDERS_LOG, log)
        self.sender.dirty[SENDERS_LOG] = None

    def pump(self) -> None:
        self.sender.pump(self.sender_logs, Incarnation(self.incarnations[0]), self._put)

    def _put(self, batch: Batch, payload: bytes) -> None:
        self.forward.append((batch, payload))

    def heartbeat(self) -> None:
        """Sends the sender's position, as at each heartbeat."""
        if self.sender.session:
            position = self.sender.position(self.sender_logs, Incarnation(self.incarnations[0]))
            self.forward.append((position, b""))

    def deliver_handshake(self) -> None:
        """Delivers the oldest handshake."""
        self.accept(self.back.popleft())

    def accept(self, handshake: ChannelHandshake) -> None:
        self.sender.open(handshake, self.sender_logs)
        self.pump()

    # ------------------------------------------------------------------ the receiving end

    def renew(self) -> None:
        self.renewals += 1
        self.receiver.renew()
        self.state()

    def state(self) -> None:
        """Sends a handshake with the present state, as at a heartbeat."""
        self.back.append(
            self.receiver.handshake(number(1), Incarnation(self.incarnations[1]), self.receiver_logs.lengths())
        )

    def deliver(self, count: int = 1) -> None:
        """Delivers the oldest messages."""
        for _ in range(count):
            self.arrive(*self.forward.popleft())

    def arrive(self, message: Batch | Position, payload: bytes) -> bool:
        """Handles a message of this channel as a slot does; returns whether it was accepted."""
        receiver = self.receiver
        if message.session != receiver.session:
            return False
        if receiver.has_gap(message, self.receiver_logs):
            self.renew()
            return False
        receiver.confirm(message)
        for delta in message.deltas:
            self.receiver_logs.receive(delta)
        if isinstance(message, Batch):
            skip = receiver.accept(message, len(payload))
            if skip is not None:
                receiver.keep_last(message, payload)
                self.accepted += [payload] * (message.count - skip)
                self.unconsumed.append(cost_bytes(message.count, len(payload)))
            if receiver.grant():
                self.state()
        return True

    def consume(self, count: int = 1) -> None:
        """Lets the task process the oldest batches."""
        for _ in range(count):
            self.receiver.processed(self.receiver.processed_seq, self.unconsumed.popleft())
            if self.receiver.grant():
                self.state()

    def settle(self, step: Callable[[], None] = lambda: None) -> None:
        """Delivers everything without loss, until all of it is processed."""
        for _ in range(10_000):
            step()
            while self.back:
                self.deliver_handshake()
            while self.forward:
                self.deliver()
            self.consume(len(self.unconsumed))
            if not (self.back or self.forward):
                return
        raise AssertionError("the channel does not settle")

    @property
    def known_log(self) -> bytes:
        """The receiver's replica of the sender's log."""
        replica = self.receiver_logs.replicas.get(SENDERS_LOG)
        return b"" if replica is None else bytes(replica.data)
