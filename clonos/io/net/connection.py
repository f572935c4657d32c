"""One connection to one peer, observed by a socket monitor.

A broken connection loses its unsent messages and is reopened with backoff. Nothing is resent here, because the sessions
of the protocol recover the loss. Messages sent during the opening are queued up to ``HELD_BYTES_MAX``, then dropped.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

import zmq

from clonos.io.net.curve import KeyPair
from clonos.io.net.frames import Packet

HELD_BYTES_MAX = 64 << 20
"""Bytes that an opening connection queues, or one message of any size; further messages are lost."""

COPY_BYTES_MAX = 128 << 10
"""Frames above this size are passed to the socket without a copy; below it, a copy costs less than the bookkeeping."""

ANSWER_BYTES_MAX = 64 << 10
"""Longest frame accepted from the other end: part of a handshake, a probe or a reset request."""

ANSWERS_MAX = 16
"""Probes and reset requests that may wait to be read."""

ADDRESS_SCHEMES = ("tcp://", "ipc://")
"""Accepted beginnings of a peer's address. A peer names its address itself, and must not name a socket of this
process."""

REOPEN_FIRST_MS = 5
REOPEN_MS_MAX = 500
MONITORED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
)

_MONITOR_EVENT: Final = struct.Struct("=hi")
"""Head of a monitor's message: the event and its value. (pyzmq's own parser imports all of asyncio.)"""

PROBE = b""
"""Message by which a peer tests whether the connection is open; it has no content."""

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]


class ConnectionPhase(Enum):
    """Phase of a connection."""

    OPENING = "opening"
    OPEN = "open"
    BROKEN = "broken"  # waits to be reopened


class ConnectionChange(Enum):
    """Event of a socket monitor."""

    OPENED = "opened"
    REFUSED = "refused"  # no process listens there
    REJECTED = "rejected"  # a process listens, but the handshake failed: it does not admit this key, or not yet
    BROKEN = "broken"


class PeerConnection:
    """DEALER connected to one ROUTER of a peer. ``failure``: reason why the opening could not begin, else empty."""

    def __init__(self, context: Context, address: str, peer_key: bytes, keys: KeyPair, silence_ms: int) -> None:
        self._context = context
        self._address = address
        self._peer_key = peer_key
        self._keys = keys
        self._silence_ms = silence_ms
        self._held: deque[Packet] = deque()
        self._held_bytes = 0  # Invariant: the bytes of the packets in _held
        self._reopen_ms = REOPEN_FIRST_MS
        self._socket: Socket | None = None
        self._monitor: Socket | None = None
        self.reopen_at_ms = 0.0
        self.failure = ""
        self.phase = ConnectionPhase.OPENING
        self._open()

    def _open(self) -> None:
        """Creates the socket. A lack of resources, such as file descriptors, leaves the connection broken, to be
        reopened later."""
        self.phase, self.failure = ConnectionPhase.OPENING, ""
        if not self._address.startswith(ADDRESS_SCHEMES):
            self.phase, self.failure = (
                ConnectionPhase.BROKEN,
                f"{self._address!r} is not an address of another process",
            )
            return
        try:
            self._socket = self._context.socket(zmq.DEALER)
            self._configure(self._socket)
            self._monitor = self._socket.get_monitor_socket(MONITORED)
            self._monitor.linger = 0
            self._socket.connect(self._address)
        except zmq.ZMQError as error:
            self.phase, self.failure = ConnectionPhase.BROKEN, str(error)

    def _configure(self, socket: Socket) -> None:
        socket.linger = 0
        socket.sndhwm = 0  # credit bounds the messages in flight
        socket.rcvhwm = ANSWERS_MAX
        socket.maxmsgsize = ANSWER_BYTES_MAX
        socket.reconnect_ivl = 10
        socket.reconnect_ivl_max = REOPEN_MS_MAX
        socket.handshake_ivl = max(1_000, self._silence_ms)
        socket.heartbeat_ivl = max(100, self._silence_ms // 3)
        socket.heartbeat_timeout = self._silence_ms
        socket.ipv6 = "[" in self._address
        if self._peer_key:
            socket.curve_serverkey = self._peer_key
            socket.curve_publickey = self._keys.public
            socket.curve_secretkey = self._keys.secret

    @property
    def descriptor(self) -> int:
        """File descriptor that is readable when the monitor has events. Must not be read while the connection is
        broken."""
        assert self._monitor is not None, self._address
        return int(self._monitor.fd)

    def send(self, packets: Sequence[Packet]) -> bool:
        """Sends or queues all packets without waiting. Returns False when they were dropped."""
        if self.phase is ConnectionPhase.OPEN:
            for packet in packets:
                self._send_now(packet)
            return True
        size_bytes = sum(len(frame) + len(payload) for frame, payload in packets)
        if self._held and self._held_bytes + size_bytes > HELD_BYTES_MAX:
            return False
        self._held.extend(packets)
        self._held_bytes += size_bytes
        return True

    def _send_now(self, packet: Packet) -> None:
        frame, payload = packet
        socket = self._socket
        assert socket is not None, self._address
        try:
            if payload:
                socket.send(frame, zmq.SNDMORE | zmq.NOBLOCK)
                socket.send(payload, zmq.NOBLOCK, copy=len(payload) < COPY_BYTES_MAX)
            else:
                socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:  # the connection has just closed: the monitor will report it
            return

    def read_monitor(self) -> list[ConnectionChange]:
        """Returns the events since the last call, and changes the phase accordingly."""
        changes = []
        while self.phase is not ConnectionPhase.BROKEN:
            assert self._monitor is not None, self._address
            try:
                event = _MONITOR_EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])[0]
            except zmq.Again:
                break
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._opened()
                changes.append(ConnectionChange.OPENED)
            elif event == zmq.EVENT_CONNECT_RETRIED:
                changes.append(ConnectionChange.REFUSED)
            elif self.phase is ConnectionPhase.OPENING:  # the socket does not retry by itself
                changes.append(ConnectionChange.REJECTED)
                self._break()
            else:
                changes.append(ConnectionChange.BROKEN)
                self._break()
        return changes

    def _opened(self) -> None:
        self.phase = ConnectionPhase.OPEN
        self._reopen_ms = REOPEN_FIRST_MS
        while self._held:
            self._send_now(self._held.popleft())
        self._held_bytes = 0

    def _break(self) -> None:
        """Marks the connection as broken. Messages in the socket are lost; the receiver finds the gap and a new session
        closes it."""
        self.phase = ConnectionPhase.BROKEN

    def schedule_reopen(self) -> None:
        """Schedules the reopening of a broken connection, whose monitor is no longer watched."""
        self.close()
        self.reopen_at_ms = time.monotonic() * 1e3 + self._reopen_ms
        self._reopen_ms = min(REOPEN_MS_MAX, self._reopen_ms * 2)

    def reopen(self) -> None:
        """Reopens the connection, once ``reopen_at_ms`` has come."""
        self._open()

    def is_reset_requested(self) -> bool:
        """Returns True when the peer requests a new connection, because it received a malformed message on this one."""
        if self.phase is not ConnectionPhase.OPEN:
            return False
        assert self._socket is not None, self._address
        for _ in range(ANSWERS_MAX):
            try:
                reply = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            if reply != [PROBE]:
                self._break()
                return True
        return False

    def close(self) -> None:
        """Closes the socket; queued messages are dropped."""
        socket, self._socket = self._socket, None
        monitor, self._monitor = self._monitor, None
        if socket is not None:
            socket.disable_monitor()
        for each in (monitor, socket):
            if each is not None:
                each.close(0)
