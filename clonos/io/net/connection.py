"""One connection to one peer, watched by a socket monitor.

A connection that breaks loses what was on its way, and opens itself anew. The sessions of the protocol heal the loss,
so nothing is repeated here. What is sent while a connection opens is held, up to a limit, then dropped.
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
"""What a connection that is not open yet holds, or one message of any size; beyond, messages are lost."""

COPY_BYTES_MAX = 128 << 10
"""Longer frames are handed to the socket in place: copying them costs more than keeping track of them."""

ANSWER_BYTES_MAX = 64 << 10
"""Longest frame that is taken from the other end: a part of a handshake, a probe or a wish for a reset."""

ANSWERS_MAX = 16
"""Probes and wishes for a reset that may wait to be read."""

OUTSIDE_ADDRESSES = ("tcp://", "ipc://")
"""How addresses begin. A peer names its own: sockets within this process are not for it."""

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
"""What a monitor tells first: the event and a value that goes with it. (pyzmq's own reader brings all of asyncio.)"""

PROBE = b""
"""What a peer sends to see whether the connection is there. It means nothing to this end."""

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]


class ConnectionPhase(Enum):
    """Of a connection."""

    OPENING = "opening"
    OPEN = "open"
    BROKEN = "broken"  # waits for its time to open anew


class ConnectionChange(Enum):
    """What a monitor told."""

    OPENED = "opened"
    REFUSED = "refused"  # nobody listens there
    REJECTED = "rejected"  # somebody does, but the handshake failed: not for us, or not yet
    BROKEN = "broken"


class PeerConnection:
    """A DEALER to one ROUTER of a peer. ``failure``: why it could not even begin to open, else empty."""

    def __init__(self, context: Context, address: str, peer_key: bytes, keys: KeyPair, silence_ms: int) -> None:
        self._context = context
        self._address = address
        self._peer_key = peer_key
        self._keys = keys
        self._silence_ms = silence_ms
        self._held: deque[Packet] = deque()
        self._held_bytes = 0
        self._reopen_ms = REOPEN_FIRST_MS
        self._socket: Socket | None = None
        self._monitor: Socket | None = None
        self.reopen_at_ms = 0.0
        self.failure = ""
        self.phase = ConnectionPhase.OPENING
        self._open()

    def _open(self) -> None:
        """What the machine does not give now, such as a file descriptor, is asked for again later."""
        self.phase, self.failure = ConnectionPhase.OPENING, ""
        if not self._address.startswith(OUTSIDE_ADDRESSES):
            self.phase, self.failure = (
                ConnectionPhase.BROKEN,
                f"{self._address!r} is not the address of another process",
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
        socket.sndhwm = 0  # credit bounds what is on its way
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
        """What becomes readable when the monitor has something to tell. Not to be asked for when broken."""
        assert self._monitor is not None, self._address
        return int(self._monitor.fd)

    def send(self, packets: Sequence[Packet]) -> bool:
        """Hands over all of them without waiting. False: they were dropped."""
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
        except zmq.Again:  # the pipe has just gone: the monitor is about to say so
            return

    def read_monitor(self) -> list[ConnectionChange]:
        """What has happened since the last call; a change of phase is made here."""
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
            elif self.phase is ConnectionPhase.OPENING:  # the socket does not try again by itself
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
        """What the socket still held is lost: the receiver finds the gap and a new session heals it."""
        self.phase = ConnectionPhase.BROKEN

    def plan_to_reopen(self) -> None:
        """Called when broken, after the monitor is not watched any more."""
        self.close()
        self.reopen_at_ms = time.monotonic() * 1e3 + self._reopen_ms
        self._reopen_ms = min(REOPEN_MS_MAX, self._reopen_ms * 2)

    def open_again(self) -> None:
        """Called when ``reopen_at_ms`` has come."""
        self._open()

    def was_told_to_reset(self) -> bool:
        """Whether the peer has found a malformed message on this one-way connection, and says so."""
        if self.phase is not ConnectionPhase.OPEN:
            return False
        assert self._socket is not None, self._address
        for _ in range(ANSWERS_MAX):
            try:
                said = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            if said != [PROBE]:
                self._break()
                return True
        return False

    def close(self) -> None:
        """Closes the socket; what waits in it is dropped."""
        socket, self._socket = self._socket, None
        monitor, self._monitor = self._monitor, None
        if socket is not None:
            socket.disable_monitor()
        for each in (monitor, socket):
            if each is not None:
                each.close(0)
