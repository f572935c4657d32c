"""What comes in: the two listening sockets of a process, and who speaks on each of their connections.

A connection belongs to the slot that its first message names, proven by its key where there is CURVE. A malformed
message costs its connection: nothing more is taken from it, and its other end is told to open a new one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Protocol

import zmq

from clonos.core.errors import MessageMalformed
from clonos.core.ids import SlotId
from clonos.core.messages import Message, Register
from clonos.core.wire import decode_message
from clonos.io.compression import IS_COMPRESSED, decompress
from clonos.io.frames import (
    HAS_LARGE_PAYLOAD,
    HEAD_BYTES,
    IS_PIECE,
    PIECES_MAX,
    flags_of,
    slot_name,
    unpack,
)

logger = logging.getLogger("clonos.transport")

DRAIN_MESSAGES_MAX = 64
"""Received from one plane before the other plane and the caller get their turn."""

ROUTES_MAX = 1 << 14
RESET = b"reset"


class Taker(Protocol):
    """Where a checked message goes."""

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview) -> None:
        """A message from a peer that is allowed to send it."""


@dataclass(slots=True)
class _Route:
    """One incoming connection: who speaks on it, and the pieces of a payload that is under way."""

    sender: SlotId
    public_key: bytes
    is_blocked: bool = False
    pieces: list[bytes | memoryview] = field(default_factory=list)


class Intake:
    """Receives from ROUTERs. ``expected_keys``: who may send, with the key that proves it (empty: none is needed).

    ``admits_strangers``: ``Register`` is taken from anybody; nothing else is.
    """

    def __init__(self, expected_keys: dict[SlotId, bytes], is_encrypted: bool, admits_strangers: bool) -> None:
        self._expected_keys = expected_keys
        self._is_encrypted = is_encrypted
        self._admits_strangers = admits_strangers
        self._routes: dict[bytes, _Route] = {}

    def receive_some(self, socket: zmq.Socket[bytes], taker: Taker) -> None:
        """Takes what is there, not more than ``DRAIN_MESSAGES_MAX`` messages."""
        for _ in range(DRAIN_MESSAGES_MAX):
            try:
                routing_id = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            route = self._routes.get(routing_id)
            public_key = b""
            if route is None and self._is_encrypted:
                first = socket.recv(copy=False)
                public_key, frame = _key_of(first), first.bytes
            else:
                frame = socket.recv()
            payload = _receive_payload(socket, frame)
            if route is not None and route.is_blocked:
                continue
            try:
                if route is None:
                    route = self._new_route(routing_id, unpack(frame, payload).sender, public_key)
                self._take(route, frame, payload, taker)
            except MessageMalformed as malformed:
                self._drop_connection(socket, routing_id, malformed)

    def _new_route(self, routing_id: bytes, sender: SlotId, public_key: bytes) -> _Route:
        if len(self._routes) >= ROUTES_MAX:
            del self._routes[next(iter(self._routes))]  # the oldest: if it still speaks it is checked again
        route = self._routes[routing_id] = _Route(sender, public_key)
        return route

    def _take(self, route: _Route, frame: bytes, payload: bytes | memoryview, taker: Taker) -> None:
        head = unpack(frame, payload)
        if head.sender != route.sender:
            raise MessageMalformed(slot_name(route.sender), f"it names {slot_name(head.sender)} as its sender")
        if head.pieces_before != len(route.pieces):
            raise MessageMalformed(
                slot_name(route.sender), f"{len(route.pieces)} pieces have come, expected {head.pieces_before}"
            )
        if head.flags & IS_PIECE:
            if len(route.pieces) >= PIECES_MAX:
                raise MessageMalformed(slot_name(route.sender), f"more than {PIECES_MAX} pieces of one payload")
            route.pieces.append(payload)
            return
        if route.pieces:
            payload = b"".join((*route.pieces, payload))
            route.pieces.clear()
        is_known = head.sender in self._expected_keys
        if not is_known and not self._admits_strangers:
            return  # not in the view: fenced, or not known yet
        message = decode_message(memoryview(frame)[HEAD_BYTES:], slot_name(head.sender))
        if not is_known and not isinstance(message, Register):
            return
        if self._is_encrypted:
            self._check_key(route, message)
        if head.flags & IS_COMPRESSED:
            payload = decompress(payload, slot_name(head.sender))
        taker.on_message(head.sender, message, payload)

    def _check_key(self, route: _Route, message: Message) -> None:
        expected = self._expected_keys.get(route.sender)
        if expected is None:
            expected = message.public_key if isinstance(message, Register) else b""
        if route.public_key != expected:
            raise MessageMalformed(slot_name(route.sender), "its connection has another key than this slot")

    def _drop_connection(self, socket: zmq.Socket[bytes], routing_id: bytes, malformed: MessageMalformed) -> None:
        logger.warning("%s", malformed)
        route = self._routes.get(routing_id) or self._new_route(routing_id, SlotId(-1), b"")
        route.is_blocked = True
        route.pieces.clear()
        try:
            socket.send_multipart([routing_id, RESET], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):  # else it has gone by itself
                raise


def _receive_payload(socket: zmq.Socket[bytes], frame: bytes) -> bytes | memoryview:
    payload: bytes | memoryview = b""
    if socket.get(zmq.RCVMORE):  # the attribute of that name takes four times as long
        in_place = flags_of(frame) & HAS_LARGE_PAYLOAD
        payload = socket.recv(copy=False).buffer if in_place else socket.recv()
    while socket.get(zmq.RCVMORE):  # there should be no more: the checksum will say so
        payload = socket.recv()
    return payload


def _key_of(frame: zmq.Frame) -> bytes:
    try:
        return str(frame.get("User-Id")).encode()
    except zmq.ZMQError:  # nothing was proven
        return b""
