"""Transport of messages between slots over ZeroMQ: typed, checked, and without waiting.

One thread calls everything except ``wake``. Each process binds two ROUTERs, data and control, and sends through
DEALERs, one per peer and plane. A message may be lost but not altered: a malformed message costs its connection.
``add_peer`` and ``retain_peers``, called with each new view, decide which peers may send.
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
from clonos.core.wire.control_messages import Completed, View
from clonos.core.wire.message_codec import encode_message
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import LogReply
from clonos.core.wire.replication_messages import StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow
from clonos.io.net.compression import Compressor, applies_between
from clonos.io.net.connection import PeerConnection
from clonos.io.net.curve import NO_KEYS, Authenticator, KeyPair
from clonos.io.net.frames import PIECE_BYTES, pack, pack_in_pieces
from clonos.io.net.listening import Binding, BindingRefused, bind_router
from clonos.io.net.message_receiver import MessageReceiver
from clonos.io.net.peers import PeerAddress, Peers, Plane
from clonos.io.net.rate_limited_log import RateLimitedLog
from clonos.io.net.transfers import COORDINATOR_HELD_BYTES_MAX, HELD_BYTES_MAX, Transfers
from clonos.io.net.wakeup import Wakeup

BULK_ANSWER_BYTES = 64 << 10
"""Bytes of log above which a ``LogReply`` is sent on the bulk connection."""

TO_ALL_SLOTS = (View, Completed)
"""Messages that the coordinator sends to all slots: they are encoded once, because they grow with the tasks."""

SOCKETS_MAX = 1 << 14
"""ZeroMQ sockets in one process; a connection to a peer takes three."""

AddressRewriter = Callable[[SlotId, str], str]
"""Function of (peer, its address) that returns the address to connect to: for proxies and address translation."""


class TransportEvents(Protocol):
    """Callbacks of a transport, called in the thread that polls it."""

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview) -> None:
        """Handles a checked message of a peer that may send."""

    def on_peer_gone(self, slot: SlotId) -> None:
        """Reports that a connection to the peer broke and no process listens at its address."""

    def on_peer_back(self, slot: SlotId) -> None:
        """Reports that all broken connections to the peer are open again; messages in flight meanwhile are lost."""


class Transport:
    """Sockets of one process. ``poll`` waits, receives and calls ``events``.

    ``silence_ms``: time without an answer to pings after which a connection counts as broken. ``admits_unknown``:
    accepts registrations of unknown slots, for the coordinator. ``compress``: which payloads are compressed.
    ``piece_bytes``: maximum length of a message or payload that is sent in one packet. ``unfinished_bytes_max``:
    maximum bytes of incomplete messages held; None for the limit of the role.
    """

    def __init__(
        self,
        identity: SlotId,
        binding: Binding,
        keys: KeyPair = NO_KEYS,
        silence_ms: int = 5_000,
        admits_unknown: bool = False,
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
        self._to_all: tuple[Message | None, bytes] = (None, b"")  # last message to all slots, and its encoding
        self._expected_keys: dict[SlotId, bytes] = {}
        self._admits_unknown = admits_unknown
        self._log = RateLimitedLog(logging.getLogger("clonos.transport"))
        self._piece_bytes = piece_bytes
        if unfinished_bytes_max is None:
            unfinished_bytes_max = COORDINATOR_HELD_BYTES_MAX if admits_unknown else HELD_BYTES_MAX
        self._transfers = Transfers(unfinished_bytes_max)
        self._wakeup = Wakeup()
        self._peers = Peers(self._connect, self._log)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.max_sockets = SOCKETS_MAX
        self._authenticator = Authenticator(self._context)
        self._authenticator.admits_unknown = admits_unknown
        self._receivers: dict[zmq.Socket[bytes], MessageReceiver] = {}
        try:
            self.control_address = self._listen(binding, "control")
            self.data_address = self._listen(binding, "data")
        except BaseException:
            self.close()
            raise
        self._poller = zmq.Poller()
        for pollable in (*self._receivers, self._authenticator.socket, self._peers.fileno(), self._wakeup.fileno()):
            self._poller.register(pollable, zmq.POLLIN)

    def _listen(self, binding: Binding, name: str) -> str:
        socket, address = bind_router(self._context, binding, name, self._keys)
        self._receivers[socket] = MessageReceiver(
            socket,
            self._expected_keys,
            self._transfers,
            self._log,
            is_encrypted=bool(self._keys.public),
            admits_unknown=self._admits_unknown,
        )
        return address

    @property
    def public_key(self) -> bytes:
        """Public key of this process; empty without CURVE."""
        return self._keys.public

    @property
    def address(self) -> PeerAddress:
        """Addresses and key of this process, as its peers need them."""
        return PeerAddress(self.identity, self.data_address, self.control_address, self.public_key)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of messages in pieces that are not complete."""
        return self._transfers.held_bytes

    # ------------------------------------------------------------------ peers

    def add_peer(self, address: PeerAddress) -> None:
        """Admits a peer, which may send and be sent to from now on. A repeated call does nothing; a new address
        reconnects."""
        replaced = self._peers.add(address)
        if applies_between(self._compress, self.data_address, address.data_address):
            self._compressors.setdefault(address.slot, Compressor())
        else:
            self._compressors.pop(address.slot, None)
        if self._expected_keys.get(address.slot) == address.public_key:
            return
        if replaced is not None:
            self._authenticator.forbid(replaced.public_key)
        self._authenticator.allow(address.public_key)
        self._expected_keys[address.slot] = address.public_key

    def retain_peers(self, slots: Collection[SlotId]) -> None:
        """Removes all other peers: closes their connections and drops their messages."""
        for address in self._peers.others_than(slots):
            self._peers.forget(address.slot)
            self._compressors.pop(address.slot, None)
            self._authenticator.forbid(address.public_key)
            del self._expected_keys[address.slot]

    def disconnect(self, slot: SlotId) -> None:
        """Closes the connections to a peer whose process has ended. If it still runs, it may send as before."""
        if self._peers.find(slot) is not None:
            self._peers.disconnect(slot)

    def _connect(self, address: PeerAddress, where: str) -> PeerConnection:
        if self._rewrite is not None:
            where = self._rewrite(address.slot, where)
        peer_key = address.public_key if self._keys.public else b""
        return PeerConnection(self._context, where, peer_key, self._keys, self._silence_ms)

    def admit_unknown(self, is_open: bool) -> None:
        """Sets whether unknown keys may connect from now on. The messages that they may send stay limited to
        ``Register``."""
        self._authenticator.admits_unknown = is_open

    # ------------------------------------------------------------------ sending and receiving

    def send(self, slot: SlotId, message: Message, payload: bytes | memoryview = b"") -> None:
        """Sends a message to a peer or to this process, without waiting. An undeliverable message is lost, which the
        protocol allows."""
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
        encoded = self._encoded_once(message) if isinstance(message, TO_ALL_SLOTS) else encode_message(message)
        if len(encoded) > self._piece_bytes or len(payload) > self._piece_bytes:
            packets = pack_in_pieces(self.identity, encoded, payload, flags, piece_bytes=self._piece_bytes)
        else:
            packets = [(pack(self.identity, encoded, payload, flags), payload)]
        self._peers.send(peer, plane_of(message), packets)

    def _encoded_once(self, message: Message) -> bytes:
        if self._to_all[0] is not message:
            self._to_all = message, encode_message(message)
        return self._to_all[1]

    def is_open(self, slot: SlotId) -> bool:
        """Returns True when the peer has been sent to and all connections to it are open."""
        peer = self._peers.find(slot)
        return peer is not None and bool(peer.connections) and peer.is_open()

    def wake(self) -> None:
        """Ends a ``poll`` that waits; any thread may call it."""
        self._wakeup.wake()

    def poll(self, timeout_ms: float, events: TransportEvents) -> None:
        """Waits for events at most ``timeout_ms`` and passes them to ``events``."""
        ready = dict(self._poller.poll(self._poll_timeout_ms(timeout_ms)))
        self._wakeup.clear()
        if self._authenticator.socket in ready:
            self._authenticator.answer()
        if self._peers.fileno() in ready:
            self._peers.read_monitors()
        if self._peers.reopens_at_ms() is not None:
            self._peers.reopen_broken(time.monotonic() * 1e3)
        while self._peers.news:
            news = self._peers.news.popleft()
            (events.on_peer_gone if news.is_gone else events.on_peer_back)(news.slot)
        for _ in range(len(self._to_self)):
            events.on_message(self.identity, *self._to_self.popleft())
        for socket, receiver in self._receivers.items():  # control first
            if socket in ready:
                receiver.receive_some(events)

    def _poll_timeout_ms(self, timeout_ms: float) -> int:
        if self._to_self or self._peers.news:
            return 0
        reopens_at_ms = self._peers.reopens_at_ms()
        if reopens_at_ms is not None:
            timeout_ms = min(timeout_ms, reopens_at_ms - time.monotonic() * 1e3)
        return max(0, math.ceil(timeout_ms))

    def tick(self) -> None:
        """Handles reset requests of peers, and discards transfers of closed connections."""
        self._peers.handle_resets()
        for receiver in self._receivers.values():
            receiver.discard_dead_transfers()
        self._log.tick()

    def close(self) -> None:
        """Closes all sockets; queued messages are lost."""
        self._log.close()
        self._peers.close()
        for socket in self._receivers:
            socket.close(0)
        self._authenticator.close()
        self._wakeup.close()
        self._context.term()


def plane_of(message: Message) -> Plane:
    """Returns the plane of a message: channel data apart from control messages, and bulk apart from both."""
    if isinstance(message, Batch | Position | ChannelHandshake | FeedShadow | FeedAck):
        return Plane.DATA
    if isinstance(message, StandbyUpdate):
        return Plane.BULK
    if isinstance(message, LogReply) and sum(len(replica.data) for replica in message.replicas) > BULK_ANSWER_BYTES:
        return Plane.BULK
    return Plane.CONTROL
