"""Transports in one process, polled by the test until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from clonos.core.model.ids import SlotId
from clonos.core.model.options import Compression
from clonos.core.wire.messages import Message
from clonos.io.net.connection import ConnectionPhase, PeerConnection
from clonos.io.net.curve import NO_KEYS, new_keys
from clonos.io.net.listening import Binding
from clonos.io.net.peers import PeerAddress, Plane
from clonos.io.net.transport import AddressRewriter, Transport
from tests.speed import scaled

LIMIT_S = scaled(25.0)


class Station:
    """One transport and everything that it reported."""

    def __init__(
        self,
        slot: int,
        folder: Path | None = None,
        use_curve: bool | None = None,
        admits_unknown: bool = False,
        rewriter: AddressRewriter | None = None,
        silence_ms: int = 5_000,
        host: str = "127.0.0.1",
        compress: Compression = Compression.NEVER,
        unfinished_bytes_max: int | None = None,
    ) -> None:
        binding = Binding(folder=str(folder) if folder else "", host=host, use_curve=use_curve)
        if folder:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.slot = SlotId(slot)
        self.keys = new_keys() if binding.is_encrypted else NO_KEYS
        self._is_closed = False
        self.transport = Transport(
            self.slot,
            binding,
            self.keys,
            silence_ms,
            admits_unknown,
            rewriter,
            compress,
            unfinished_bytes_max=unfinished_bytes_max,
        )
        self.received: list[tuple[SlotId, Message, bytes]] = []
        self.gone: list[SlotId] = []
        self.back: list[SlotId] = []

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview) -> None:
        self.received.append((sender, message, bytes(payload)))

    def on_peer_gone(self, slot: SlotId) -> None:
        self.gone.append(slot)

    def on_peer_back(self, slot: SlotId) -> None:
        self.back.append(slot)

    def knows(self, *others: Station) -> None:
        """Adds them as peers."""
        for other in others:
            self.transport.add_peer(other.transport.address)

    def close(self) -> None:
        """Closes the transport, once."""
        if not self._is_closed:
            self._is_closed = True
            self.transport.close()

    def address_again(self) -> Callable[[], Station]:
        """Makes a station at the same address, with the same name and keys, once this one is closed."""
        address, keys = self.transport.address, self.keys

        def revive() -> Station:
            station = Station.__new__(Station)
            station.slot, station.keys, station._is_closed = self.slot, keys, False
            station.transport = Transport(self.slot, _binding_of(address), keys)
            station.received, station.gone, station.back = [], [], []
            return station

        return revive

    def send(self, other: Station | int, message: Message, payload: bytes = b"") -> None:
        self.transport.send(SlotId(other) if isinstance(other, int) else other.slot, message, payload)


def poll_until(condition: Callable[[], object], *stations: Station) -> None:
    """Polls them in turn until the condition holds; fails beyond the limit."""
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, [(s.slot, s.received[:9], s.gone, s.back) for s in stations]
        for station in stations:
            station.transport.poll(1, station)


def connection_to(sender: Station, receiver: SlotId, plane: Plane = Plane.CONTROL) -> PeerConnection:
    """The sender's connection on a plane, once it has sent any message on it."""
    peer = sender.transport._peers.find(receiver)
    assert peer is not None
    return peer.connections[plane]


def poll_until_all_is_seen(sender: Station, receiver: SlotId, *stations: Station) -> None:
    """Polls until the receiver has looked at all control messages that it was sent, and believed them or not.

    After them comes junk, which the receiver answers; if it has refused what came before, it has answered that.
    """
    connection = connection_to(sender, receiver)
    connection.send([(b"junk", b"")])

    def is_answered() -> bool:
        sender.transport.tick()
        return connection.phase is ConnectionPhase.BROKEN

    poll_until(is_answered, *stations)


def poll_until_turned_away(sender: Station, receiver: Station, times: int = 3) -> None:
    """Polls until the receiver has refused the sender's connection, again and again."""
    connection = connection_to(sender, receiver.slot)
    for _ in range(times):
        poll_until(lambda: connection.phase is ConnectionPhase.BROKEN, sender, receiver)
        poll_until(lambda: connection.phase is ConnectionPhase.OPENING, sender, receiver)


def poll_turns(turns: int, *stations: Station) -> None:
    """Polls each station ``turns`` times: enough for what would come, were it to come."""
    for _ in range(turns):
        for station in stations:
            station.transport.poll(1, station)


def _binding_of(address: PeerAddress) -> Binding:
    """Binding of a transport with this address. Its ports were bound one after the other."""
    if address.control_address.startswith("ipc://"):
        return Binding(folder=str(Path(address.control_address.removeprefix("ipc://")).parent))
    ports = [int(where.rpartition(":")[2]) for where in (address.control_address, address.data_address)]
    return Binding(ports=(ports[0], ports[1]), use_curve=bool(address.public_key))
