"""Messages between slots over ZeroMQ: typed, checked, and never waited for.

One thread calls everything here but ``wake``. Each process binds two ROUTERs, data and control; what it sends goes
through DEALERs, one per peer and plane. A message may be lost, never altered: one that is malformed costs its
connection. Who may speak is told by ``add_peer`` and ``retain_peers``, fed from the views.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

import zmq

from clonos.core.model.ids import SlotId
from clonos.core.model.options import Compression
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.codec import encode_message
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import LogReply
from clonos.core.wire.replication_messages import StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow
from clonos.io.net.binding import Binding, BindingRefused, bind_router
from clonos.io.net.compression import Compressor, applies_between
from clonos.io.net.connection import PeerConnection
from clonos.io.net.curve import NO_KEYS, Gatekeeper, KeyPair
from clonos.io.net.frames import PIECE_BYTES, pack, pack_in_pieces
from clonos.io.net.message_receiver import MessageReceiver
from clonos.io.net.peers import PeerAddress, Peers, Plane
from clonos.io.net.rate_limited_log import RateLimitedLog
from clonos.io.net.transfers import COORDINATOR_HELD_BYTES_MAX, HELD_BYTES_MAX, Transfers
from clonos.io.net.wakeup import Wakeup

BULK_ANSWER_BYTES = 64 << 10
"""An answer with more log than this goes over the bulk connection."""

SOCKETS_MAX = 1 << 14
"""Of ZeroMQ in one process; a connection to a peer takes three."""

AddressRewriter = Callable[[SlotId, str], str]
"""(peer, its address) to the address to connect to: for proxies and for networks that are seen differently."""


class TransportEvents(Protocol):
    """What a transport tells its owner, in the thread that polls it."""

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview) -> None:
        """A message that was checked, from a peer that is allowed to send it."""

    def on_peer_gone(self, slot: SlotId) -> None:
        """A connection to it broke and nobody listens there any more."""

    def on_peer_back(self, slot: SlotId) -> None:
        """All connections to it that broke are open again; what was on its way meanwhile is lost."""


class Transport:
    """All sockets of one process. ``poll`` waits, receives and calls ``events``.

    ``silence_ms``: a connection on which the other end does not even answer pings for so long counts as broken.
    ``admits_strangers``: the coordinator's, which takes registrations from slots that it has not met. ``compress``: to
    which peers elements are compressed. ``piece_bytes``: the longest message and payload that are sent in one piece.
    ``unfinished_bytes_max``: bytes of incomplete messages that are held at most; None takes the limit of the role.
    """

    def __init__(
        self,
        identity: SlotId,
        binding: Binding,
        keys: KeyPair = NO_KEYS,
        silence_ms: int = 5_000,
        admits_strangers: bool = False,
        address_rewriter: AddressRewriter | None = None,
        compress: Compression = Compression.NEVER,
        *,
        piece_bytes: int = PIECE_BYTES,
        unfinished_bytes_max: int | None = None,
    ) -> None:
        if binding.is_encrypted and not keys.public:
            raise BindingRefused(binding.host, "an encrypted transport needs a key pair")
        self.identity = identity
        self._keys = keys if binding.is_encrypted else NO_KEYS
        self._silence_ms = silence_ms
        self._rewrite = address_rewriter
        self._compress = compress
        self._compressors: dict[SlotId, Compressor] = {}  # of the peers whose payloads are compressed
        self._to_self: deque[tuple[Message, bytes | memoryview]] = deque()
        self._expected_keys: dict[SlotId, bytes] = {}
        self._admits_strangers = admits_strangers
        self._log = RateLimitedLog(logging.getLogger("clonos.transport"))
        self._piece_bytes = piece_bytes
        if unfinished_bytes_max is None:
            unfinished_bytes_max = COORDINATOR_HELD_BYTES_MAX if admits_strangers else HELD_BYTES_MAX
        self._transfers = Transfers(unfinished_bytes_max)
        self._wakeup = Wakeup()
        self._peers = Peers(self._connect, self._log)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.max_sockets = SOCKETS_MAX
        self._gatekeeper = Gatekeeper(self._context)
        self._gatekeeper.admits_strangers = admits_strangers
        self._intakes: dict[zmq.Socket[bytes], MessageReceiver] = {}
        try:
            self.control_address = self._listen(binding, "control")
            self.data_address = self._listen(binding, "data")
        except BaseException:
            self.close()
            raise
        self._poller = zmq.Poller()
        for pollable in (*self._intakes, self._gatekeeper.socket, self._peers.fileno(), self._wakeup.fileno()):
            self._poller.register(pollable, zmq.POLLIN)

    def _listen(self, binding: Binding, name: str) -> str:
        socket, address = bind_router(self._context, binding, name, self._keys)
        self._intakes[socket] = MessageReceiver(
            socket,
            self._expected_keys,
            self._transfers,
            self._log,
            is_encrypted=bool(self._keys.public),
            admits_strangers=self._admits_strangers,
        )
        return address

    @property
    def public_key(self) -> bytes:
        """What peers must expect; empty without CURVE."""
        return self._keys.public

    @property
    def address(self) -> PeerAddress:
        """This process as its peers know it."""
        return PeerAddress(self.identity, self.data_address, self.control_address, self.public_key)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of messages in pieces that have not come whole."""
        return self._transfers.held_bytes

    # ------------------------------------------------------------------ peers

    def add_peer(self, address: PeerAddress) -> None:
        """It may send to us from now on, and we can send to it. Repeating it is free; another address reconnects."""
        replaced = self._peers.add(address)
        if applies_between(self._compress, self.data_address, address.data_address):
            self._compressors.setdefault(address.slot, Compressor())
        else:
            self._compressors.pop(address.slot, None)
        if self._expected_keys.get(address.slot) == address.public_key:
            return
        if replaced is not None:
            self._gatekeeper.forbid(replaced.public_key)
        self._gatekeeper.allow(address.public_key)
        self._expected_keys[address.slot] = address.public_key

    def retain_peers(self, slots: Collection[SlotId]) -> None:
        """Forgets all others: their connections close, their messages are dropped."""
        for address in self._peers.strangers_to(slots):
            self._peers.forget(address.slot)
            self._compressors.pop(address.slot, None)
            self._gatekeeper.forbid(address.public_key)
            del self._expected_keys[address.slot]

    def disconnect(self, slot: SlotId) -> None:
        """Closes the connections to a peer whose process has ended. Should it live after all, it may send as before."""
        if self._peers.find(slot) is not None:
            self._peers.disconnect(slot)

    def _connect(self, address: PeerAddress, where: str) -> PeerConnection:
        if self._rewrite is not None:
            where = self._rewrite(address.slot, where)
        peer_key = address.public_key if self._keys.public else b""
        return PeerConnection(self._context, where, peer_key, self._keys, self._silence_ms)

    def let_strangers_in(self, is_open: bool) -> None:
        """Whether keys that nobody has named may connect from now on. What they may send is another question."""
        self._gatekeeper.admits_strangers = is_open

    # ------------------------------------------------------------------ sending and receiving

    def send(self, slot: SlotId, message: Message, payload: bytes | memoryview = b"") -> None:
        """To a peer or to itself, without waiting. What cannot be delivered is lost, as the protocol allows."""
        if slot == self.identity:
            self._to_self.append((message, payload))
            return
        peer = self._peers.find(slot)
        if peer is None:
            return
        flags = 0
        if (
            payload
            and (compressor := self._compressors.get(slot)) is not None
            and isinstance(message, Batch | FeedShadow)
        ):
            payload, flags = compressor.compress(payload)
        encoded = encode_message(message)
        if len(encoded) > self._piece_bytes or len(payload) > self._piece_bytes:
            packets = pack_in_pieces(self.identity, encoded, payload, flags, piece_bytes=self._piece_bytes)
        else:
            packets = [(pack(self.identity, encoded, payload, flags), payload)]
        self._peers.send(peer, plane_of(message), packets)

    def is_open(self, slot: SlotId) -> bool:
        """Whether all connections to it that were needed are open: its process lives and can be reached."""
        peer = self._peers.find(slot)
        return peer is not None and bool(peer.connections) and peer.is_open()

    def wake(self) -> None:
        """Ends a ``poll`` that waits; any thread may call it."""
        self._wakeup.wake()

    def poll(self, timeout_ms: float, events: TransportEvents) -> None:
        """Waits for something to happen and tells ``events``; returns at the latest after ``timeout_ms``."""
        ready = dict(self._poller.poll(self._patience_ms(timeout_ms)))
        self._wakeup.clear()
        if self._gatekeeper.socket in ready:
            self._gatekeeper.answer()
        if self._peers.fileno() in ready:
            self._peers.read_monitors()
        if self._peers.reopens_at_ms() is not None:
            self._peers.reopen_broken(time.monotonic() * 1e3)
        while self._peers.news:
            news = self._peers.news.popleft()
            (events.on_peer_gone if news.is_gone else events.on_peer_back)(news.slot)
        for _ in range(len(self._to_self)):
            events.on_message(self.identity, *self._to_self.popleft())
        for socket, intake in self._intakes.items():  # control first
            if socket in ready:
                intake.receive_some(events)

    def _patience_ms(self, timeout_ms: float) -> int:
        if self._to_self or self._peers.news:
            return 0
        reopens_at_ms = self._peers.reopens_at_ms()
        if reopens_at_ms is not None:
            timeout_ms = min(timeout_ms, reopens_at_ms - time.monotonic() * 1e3)
        return max(0, math.ceil(timeout_ms))

    def tick(self) -> None:
        """Looks for connections that a peer wants to have anew, and for transfers whose connection has ended."""
        self._peers.look_for_resets()
        for intake in self._intakes.values():
            intake.look_for_ends()
        self._log.tick()

    def close(self) -> None:
        """Closes all sockets; what waits in them is lost."""
        self._log.close()
        self._peers.close()
        for socket in self._intakes:
            socket.close(0)
        self._gatekeeper.close()
        self._wakeup.close()
        self._context.term()


def plane_of(message: Message) -> Plane:
    """Where a message travels: channels apart from control, and what is large apart from both."""
    if isinstance(message, Batch | Position | ChannelHandshake | FeedShadow | FeedAck):
        return Plane.DATA
    if isinstance(message, StandbyUpdate):
        return Plane.BULK
    if isinstance(message, LogReply) and sum(len(replica.data) for replica in message.replicas) > BULK_ANSWER_BYTES:
        return Plane.BULK
    return Plane.CONTROL
