"""What comes in by one listening socket: who speaks on each of its connections, and what is taken from them.

A connection belongs to the slot that its first message names, proven by its key where there is CURVE. Of a sender that
is not known nothing is kept. A malformed message costs its connection: nothing more is taken from it, and its other end
is told to open a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import zmq

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId
from clonos.core.wire.codec import decode_message
from clonos.core.wire.control_messages import Register
from clonos.core.wire.messages import Message
from clonos.io.net.compression import IS_COMPRESSED, decompress
from clonos.io.net.connection import PROBE
from clonos.io.net.frames import HAS_LARGE_PAYLOAD, HEAD_BYTES, IS_PIECE, Head, flags_of, slot_name, unpack
from clonos.io.net.rate_limited_log import RateLimitedLog
from clonos.io.net.transfers import Transfer, Transfers

DRAIN_MESSAGES_MAX = 64
"""Received from one plane before the other plane and the caller get their turn."""

CONNECTIONS_MAX = 1 << 14
"""Connections that are remembered, and as many that nothing is taken from. An older one is checked anew."""

REGISTER_BYTES_MAX = 64 << 10
"""Longest message that is read from a sender that is not known."""

RESET = b"reset"


class Taker(Protocol):
    """Where a checked message goes."""

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview) -> None:
        """Takes a message from a peer that may send.

        Raises: MessageMalformed, if that peer may not send this one.
        """


@dataclass(slots=True)
class _Route:
    """One incoming connection of a known sender, and the message in pieces that is under way on it."""

    sender: SlotId
    public_key: bytes
    transfer: Transfer | None = None


class MessageReceiver:
    """Receives from one ROUTER. ``expected_keys``: who may send, with the key that proves it (empty: none is needed).

    ``admits_strangers``: ``Register`` is taken from anybody; nothing else is.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        expected_keys: Mapping[SlotId, bytes],
        transfers: Transfers,
        log: RateLimitedLog,
        *,
        is_encrypted: bool,
        admits_strangers: bool,
    ) -> None:
        self._socket = socket
        self._expected_keys = expected_keys
        self._transfers = transfers
        self._log = log
        self._is_encrypted = is_encrypted
        self._admits_strangers = admits_strangers
        self._routes: dict[bytes, _Route] = {}  # of known senders
        self._blocked: dict[bytes, None] = {}  # nothing more is taken from these
        self._unfinished: dict[bytes, _Route] = {}  # routes with a transfer under way

    def receive_some(self, taker: Taker) -> None:
        """Takes what is there, not more than ``DRAIN_MESSAGES_MAX`` messages."""
        socket = self._socket
        for _ in range(DRAIN_MESSAGES_MAX):
            try:
                routing_id = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            route = self._routes.get(routing_id)
            public_key = b""
            if route is None and routing_id in self._blocked:
                _discard(socket)
                continue
            if route is None and self._is_encrypted:
                first = socket.recv(copy=False)
                public_key, frame = _key_of(first), first.bytes
            else:
                frame = socket.recv()
            payload = _receive_payload(socket, frame)
            try:
                head = unpack(frame, payload)
                if route is None:
                    route = self._new_route(routing_id, head.sender, public_key)
                self._take(routing_id, route, head, frame, payload, taker)
            except MessageMalformed as malformed:
                self._drop_connection(routing_id, malformed)

    def _new_route(self, routing_id: bytes, sender: SlotId, public_key: bytes) -> _Route:
        route = _Route(sender, public_key)
        if sender in self._expected_keys:
            if len(self._routes) >= CONNECTIONS_MAX:
                self._forget(next(iter(self._routes)))  # the oldest
            self._routes[routing_id] = route
        return route

    def _take(
        self,
        routing_id: bytes,
        route: _Route,
        head: Head,
        frame: bytes,
        payload: bytes | memoryview,
        taker: Taker,
    ) -> None:
        if head.sender != route.sender:
            raise MessageMalformed(slot_name(route.sender), f"it names {slot_name(head.sender)} as its sender")
        expected_key = self._expected_keys.get(head.sender)
        if expected_key is None:
            self._take_from_stranger(route, head, frame, payload, taker)
            return
        if self._is_encrypted:
            _check_key(route, expected_key)
        transfer = route.transfer
        count = transfer.count if transfer is not None else 0
        if head.pieces_before != count:
            raise MessageMalformed(slot_name(head.sender), f"{count} pieces have come, expected {head.pieces_before}")
        if head.flags & IS_PIECE:
            if transfer is None:
                transfer = route.transfer = self._transfers.begin(head.sender)
                self._unfinished[routing_id] = route
            transfer.add(head, payload)
            return
        encoded: bytes | memoryview = memoryview(frame)[HEAD_BYTES:]
        if transfer is not None:
            transfer.check()
            encoded, payload = transfer.join(encoded, payload)
            self._end_transfer(routing_id, route)
        if head.flags & IS_COMPRESSED:
            payload = decompress(payload, slot_name(head.sender))
        taker.on_message(head.sender, decode_message(encoded, slot_name(head.sender)), payload)

    def _take_from_stranger(
        self, route: _Route, head: Head, frame: bytes, payload: bytes | memoryview, taker: Taker
    ) -> None:
        """Not in the view: fenced, or not known yet. Only a coordinator reads on, and only a registration."""
        if not self._admits_strangers or head.flags & IS_PIECE or len(frame) + len(payload) > REGISTER_BYTES_MAX:
            return
        message = decode_message(memoryview(frame)[HEAD_BYTES:], slot_name(head.sender))
        if isinstance(message, Register):
            if self._is_encrypted:
                _check_key(route, message.public_key)
            taker.on_message(head.sender, message, payload)

    # ------------------------------------------------------------------ the end of a connection

    def look_for_ends(self) -> None:
        """Gives up transfers whose sender is not known any more, or whose connection has ended. Called at each tick."""
        for routing_id, route in list(self._unfinished.items()):
            transfer = route.transfer
            assert transfer is not None, route
            if route.sender not in self._expected_keys or (transfer.is_quiet and not self._is_open(routing_id)):
                self._forget(routing_id)
            transfer.is_quiet = True

    def _is_open(self, routing_id: bytes) -> bool:
        try:
            self._socket.send_multipart([routing_id, PROBE], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return error.errno == zmq.EAGAIN
        return True

    def _forget(self, routing_id: bytes) -> None:
        route = self._routes.pop(routing_id, None)
        if route is not None:
            self._end_transfer(routing_id, route)

    def _end_transfer(self, routing_id: bytes, route: _Route) -> None:
        self._unfinished.pop(routing_id, None)
        if route.transfer is not None:
            route.transfer.end()
            route.transfer = None

    def _drop_connection(self, routing_id: bytes, malformed: MessageMalformed) -> None:
        self._log.warning("malformed messages", str(malformed))
        self._forget(routing_id)
        if len(self._blocked) >= CONNECTIONS_MAX:
            del self._blocked[next(iter(self._blocked))]
        self._blocked[routing_id] = None
        try:
            self._socket.send_multipart([routing_id, RESET], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):  # else it has gone by itself
                raise


def _check_key(route: _Route, expected: bytes) -> None:
    if route.public_key != expected:
        raise MessageMalformed(slot_name(route.sender), "its connection has another key than this slot")


def _receive_payload(socket: zmq.Socket[bytes], frame: bytes) -> bytes | memoryview:
    payload: bytes | memoryview = b""
    if socket.get(zmq.RCVMORE):  # the attribute of that name takes four times as long
        in_place = flags_of(frame) & HAS_LARGE_PAYLOAD
        payload = socket.recv(copy=False).buffer if in_place else socket.recv()
        while socket.get(zmq.RCVMORE):  # there should be no more: the checksum will say so
            payload = socket.recv()
    return payload


def _discard(socket: zmq.Socket[bytes]) -> None:
    while socket.get(zmq.RCVMORE):
        socket.recv(copy=False)


def _key_of(frame: zmq.Frame) -> bytes:
    try:
        return str(frame.get("User-Id")).encode()
    except zmq.ZMQError:  # nothing was proven
        return b""
