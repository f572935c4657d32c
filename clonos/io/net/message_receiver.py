"""Receiver of the messages of one listening socket: checks the sender of each connection, and each message.

A connection belongs to the slot that its first message names, which CURVE proves by its key. Messages of unknown
senders are dropped. After a malformed message the connection is blocked, and its other end is asked to open a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import zmq

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId
from clonos.core.wire.control_messages import Register
from clonos.core.wire.message_codec import decode_message
from clonos.core.wire.messages import Message
from clonos.io.net.compression import IS_COMPRESSED, decompress
from clonos.io.net.connection import PROBE
from clonos.io.net.frames import HAS_LARGE_PAYLOAD, HEAD_BYTES, IS_PIECE, Head, flags_of, slot_name, unpack
from clonos.io.net.rate_limited_log import RateLimitedLog
from clonos.io.net.transfers import Transfer, Transfers

DRAIN_MESSAGES_MAX = 64
"""Messages received from one socket before the other socket and the caller get their turn."""

CONNECTIONS_MAX = 1 << 14
"""Connections that are remembered, and as many that are blocked. The oldest is forgotten, and checked again if it
sends."""

REGISTER_BYTES_MAX = 64 << 10
"""Longest message that is read from an unknown sender."""

RESET = b"reset"


class MessageHandler(Protocol):
    """Receiver of checked messages."""

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview) -> None:
        """Handles a message of an admitted peer. Raises: MessageMalformed when that peer may not send this message."""


@dataclass(slots=True)
class _Route:
    """Incoming connection of a known sender, with its unfinished message in pieces."""

    sender: SlotId
    public_key: bytes
    transfer: Transfer | None = None


class MessageReceiver:
    """Receiver of one ROUTER. ``expected_keys``: admitted senders with their public keys, empty without CURVE.

    ``admits_unknown``: a ``Register`` is accepted from unknown senders; nothing else is.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        expected_keys: Mapping[SlotId, bytes],
        transfers: Transfers,
        log: RateLimitedLog,
        *,
        is_encrypted: bool,
        admits_unknown: bool,
    ) -> None:
        self._socket = socket
        self._expected_keys = expected_keys
        self._transfers = transfers
        self._log = log
        self._is_encrypted = is_encrypted
        self._admits_unknown = admits_unknown
        self._routes: dict[bytes, _Route] = {}  # of known senders
        self._blocked: dict[bytes, None] = {}  # messages of these connections are dropped
        self._unfinished: dict[bytes, _Route] = {}  # Invariant: the routes that have a transfer

    def receive_some(self, handler: MessageHandler) -> None:
        """Receives the pending messages, at most ``DRAIN_MESSAGES_MAX``."""
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
                self._handle(routing_id, route, head, frame, payload, handler)
            except MessageMalformed as malformed:
                self._drop_connection(routing_id, malformed)

    def _new_route(self, routing_id: bytes, sender: SlotId, public_key: bytes) -> _Route:
        route = _Route(sender, public_key)
        if sender in self._expected_keys:
            if len(self._routes) >= CONNECTIONS_MAX:
                self._forget(next(iter(self._routes)))  # the oldest
            self._routes[routing_id] = route
        return route

    def _handle(
        self,
        routing_id: bytes,
        route: _Route,
        head: Head,
        frame: bytes,
        payload: bytes | memoryview,
        handler: MessageHandler,
    ) -> None:
        if head.sender != route.sender:
            raise MessageMalformed(slot_name(route.sender), f"it claims to be sent by {slot_name(head.sender)}")
        expected_key = self._expected_keys.get(head.sender)
        if expected_key is None:
            self._handle_unknown(route, head, frame, payload, handler)
            return
        if self._is_encrypted:
            _check_key(route, expected_key)
        transfer = route.transfer
        count = transfer.count if transfer is not None else 0
        if head.pieces_before != count:
            raise MessageMalformed(slot_name(head.sender), f"{count} pieces received, expected {head.pieces_before}")
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
        handler.on_message(head.sender, decode_message(encoded, slot_name(head.sender)), payload)

    def _handle_unknown(
        self, route: _Route, head: Head, frame: bytes, payload: bytes | memoryview, handler: MessageHandler
    ) -> None:
        """Handles a message of a sender that is not in the view. Only a coordinator reads it, and only a
        registration."""
        if not self._admits_unknown or head.flags & IS_PIECE or len(frame) + len(payload) > REGISTER_BYTES_MAX:
            return
        message = decode_message(memoryview(frame)[HEAD_BYTES:], slot_name(head.sender))
        if isinstance(message, Register):
            if self._is_encrypted:
                _check_key(route, message.public_key)
            handler.on_message(head.sender, message, payload)

    # ------------------------------------------------------------------ the end of a connection

    def discard_dead_transfers(self) -> None:
        """Discards transfers whose sender is no longer admitted, or whose connection has closed. Called at each
        tick."""
        for routing_id, route in list(self._unfinished.items()):
            transfer = route.transfer
            assert transfer is not None, route
            if route.sender not in self._expected_keys or (transfer.is_idle and not self._is_open(routing_id)):
                self._forget(routing_id)
            transfer.is_idle = True

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
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):  # else the connection is closed already
                raise


def _check_key(route: _Route, expected: bytes) -> None:
    if route.public_key != expected:
        raise MessageMalformed(slot_name(route.sender), "its connection has another key than the slot")


def _receive_payload(socket: zmq.Socket[bytes], frame: bytes) -> bytes | memoryview:
    payload: bytes | memoryview = b""
    if socket.get(zmq.RCVMORE):  # the attribute `rcvmore` takes four times as long
        in_place = flags_of(frame) & HAS_LARGE_PAYLOAD
        payload = socket.recv(copy=False).buffer if in_place else socket.recv()
        while socket.get(zmq.RCVMORE):  # an additional frame makes the checksum fail
            payload = socket.recv()
    return payload


def _discard(socket: zmq.Socket[bytes]) -> None:
    while socket.get(zmq.RCVMORE):
        socket.recv(copy=False)


def _key_of(frame: zmq.Frame) -> bytes:
    try:
        return str(frame.get("User-Id")).encode()
    except zmq.ZMQError:  # the connection is not authenticated
        return b""
