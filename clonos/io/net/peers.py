"""Peers that a process sends to: one connection per plane, opened on first use, and the failure of connections.

A peer is *gone* when no process listens at its address, or when a broken connection could not be reopened. A connection
that breaks and reopens only loses its messages in flight.
"""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import NamedTuple

from clonos.core.model.ids import SlotId
from clonos.io.net.connection import ConnectionChange, ConnectionPhase, PeerConnection
from clonos.io.net.frames import Packet, slot_name
from clonos.io.net.rate_limited_log import RateLimitedLog


class Plane(IntEnum):
    """Class of messages with a connection of its own, so that classes do not delay each other."""

    DATA = 0
    CONTROL = 1
    BULK = 2


class PeerAddress(NamedTuple):
    """Addresses of a slot, and the key that authenticates it (empty: no CURVE)."""

    slot: SlotId
    data_address: str
    control_address: str
    public_key: bytes

    def of_plane(self, plane: Plane) -> str:
        """Returns the address that serves a plane."""
        return self.control_address if plane is Plane.CONTROL else self.data_address


class PeerNews(NamedTuple):
    """Change of a peer: gone, or reachable again."""

    slot: SlotId
    is_gone: bool


class Peer:
    """One peer and its connections."""

    __slots__ = ("address", "connections", "has_broken", "has_dropped", "is_gone")

    def __init__(self, address: PeerAddress) -> None:
        self.address = address
        self.connections: dict[Plane, PeerConnection] = {}
        self.has_broken = False
        self.is_gone = False
        self.has_dropped = False

    def is_open(self) -> bool:
        """Returns True when every connection that is in use is open."""
        return all(connection.phase is ConnectionPhase.OPEN for connection in self.connections.values())


class Peers:
    """Peers of a process. ``connect(peer, address)`` creates a connection.

    ``fileno`` becomes readable when a monitor has events: then call ``read_monitors``.
    """

    def __init__(self, connect: Callable[[PeerAddress, str], PeerConnection], log: RateLimitedLog) -> None:
        self._connect = connect
        self._log = log
        self._peers: dict[SlotId, Peer] = {}
        self._watched: dict[int, tuple[Peer, PeerConnection]] = {}
        self._broken: list[tuple[Peer, PeerConnection]] = []
        self._selector = selectors.DefaultSelector()
        self.news: deque[PeerNews] = deque()

    def fileno(self) -> int:
        """Returns the file descriptor to poll for reading."""
        return self._selector.fileno()  # type: ignore[attr-defined, no-any-return, unused-ignore]

    def find(self, slot: SlotId) -> Peer | None:
        """Returns the peer with this id, if it is known."""
        return self._peers.get(slot)

    def add(self, address: PeerAddress) -> PeerAddress | None:
        """Adds a peer; returns the address that it replaces, if it was known by another one."""
        known = self._peers.get(address.slot)
        if known is not None and known.address == address:
            return None
        if known is not None:
            self.forget(address.slot)
        self._peers[address.slot] = Peer(address)
        return known.address if known is not None else None

    def others_than(self, slots: Collection[SlotId]) -> list[PeerAddress]:
        """Returns the addresses of all peers that are not among ``slots``."""
        return [peer.address for slot, peer in self._peers.items() if slot not in slots]

    def forget(self, slot: SlotId) -> None:
        """Removes a peer and closes its connections."""
        self.disconnect(slot)
        del self._peers[slot]

    def disconnect(self, slot: SlotId) -> None:
        """Closes the connections to a peer; a later message opens new ones."""
        peer = self._peers[slot]
        self._broken = [(other, connection) for other, connection in self._broken if other is not peer]
        for connection in peer.connections.values():
            self._unwatch(connection)
            connection.close()
        peer.connections.clear()

    def send(self, peer: Peer, plane: Plane, packets: Sequence[Packet]) -> None:
        """Sends packets on the connection of a plane; opens it on first use."""
        connection = peer.connections.get(plane)
        if connection is None:
            connection = self._connect(peer.address, peer.address.of_plane(plane))
            peer.connections[plane] = connection
            self._watch(peer, connection)
        if not connection.send(packets) and not peer.has_dropped:
            peer.has_dropped = True
            self._log.warning(
                "dropped messages",
                f"messages to {slot_name(peer.address.slot)} are dropped, because no connection to it opens",
            )

    def _watch(self, peer: Peer, connection: PeerConnection) -> None:
        if connection.phase is ConnectionPhase.BROKEN:
            what = f"the connection to {slot_name(peer.address.slot)} cannot be opened: {connection.failure}"
            self._log.warning("failed connection attempts", f"{what}. Retrying")
            self._schedule_reopen(peer, connection)
            return
        descriptor = connection.descriptor
        self._watched[descriptor] = peer, connection
        self._selector.register(descriptor, selectors.EVENT_READ)
        self._read_monitor(peer, connection)  # events from before the registration

    def _unwatch(self, connection: PeerConnection) -> None:
        for descriptor, (_, watched) in list(self._watched.items()):
            if watched is connection:
                del self._watched[descriptor]
                self._selector.unregister(descriptor)

    def read_monitors(self) -> None:
        """Reads the events of all monitors; ``news`` has the resulting changes of peers."""
        for key, _ in self._selector.select(0):
            if (watched := self._watched.get(key.fd)) is not None:
                self._read_monitor(*watched)

    def _read_monitor(self, peer: Peer, connection: PeerConnection) -> None:
        for change in connection.read_monitor():
            if change is ConnectionChange.OPENED:
                if peer.has_broken and peer.is_open():
                    peer.has_broken = peer.is_gone = False
                    self.news.append(PeerNews(peer.address.slot, is_gone=False))
            elif change is ConnectionChange.BROKEN:
                peer.has_broken = True
            elif not peer.is_gone and (peer.has_broken or change is ConnectionChange.REFUSED):
                peer.is_gone = peer.has_broken = True
                self.news.append(PeerNews(peer.address.slot, is_gone=True))
        if connection.phase is ConnectionPhase.BROKEN:
            self._schedule_reopen(peer, connection)

    def _schedule_reopen(self, peer: Peer, connection: PeerConnection) -> None:
        self._unwatch(connection)
        connection.schedule_reopen()
        self._broken.append((peer, connection))

    def reopen_broken(self, now_ms: float) -> None:
        """Reopens the connections whose backoff has elapsed."""
        due = [entry for entry in self._broken if entry[1].reopen_at_ms <= now_ms]
        self._broken = [entry for entry in self._broken if entry[1].reopen_at_ms > now_ms]
        for peer, connection in due:
            connection.reopen()
            self._watch(peer, connection)

    def reopens_at_ms(self) -> float | None:
        """Returns when the next broken connection is to be reopened; None if no connection is broken."""
        return min((connection.reopen_at_ms for _, connection in self._broken), default=None)

    def handle_resets(self) -> None:
        """Reopens connections for which the peer has requested a reset. No file descriptor signals these requests."""
        for peer in self._peers.values():
            for connection in peer.connections.values():
                if connection.is_reset_requested():
                    self._log.warning(
                        "reset requests of peers",
                        f"{slot_name(peer.address.slot)} requests a new connection, because a message was malformed",
                    )
                    peer.has_broken = True
                    self._schedule_reopen(peer, connection)

    def close(self) -> None:
        """Closes all connections."""
        for slot in list(self._peers):
            self.forget(slot)
        self._selector.close()
