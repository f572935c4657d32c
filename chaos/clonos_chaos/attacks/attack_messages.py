"""Attacks by ZeroMQ: with no keys, with wrong ones, with the driver's public key, and with the key of a slot."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Final

import zmq

from clonos.core.model.ids import COORDINATOR, CheckpointId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.wire.control_messages import Register, Release, Suspicion
from clonos.core.wire.message_codec import encode_message
from clonos.core.wire.messages import Message
from clonos.core.wire.replication_messages import StandbyUpdate
from clonos.io.net.curve import new_keys
from clonos.io.net.frames import FRAME_BYTES_MAX, IS_PIECE, OF_MESSAGE, PIECE_BYTES, pack
from clonos_chaos.attacks.attack_keys import Loot, StolenPeer
from clonos_chaos.attacks.attack_lies import AttackedJob, lies_to_coordinator, lies_to_slot

Context = zmq.Context[zmq.Socket[bytes]]
REFUSALS: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)
STRANGER: Final = SlotId(0x5757575757575757)
FLOOD_PORTION: Final = 5_000
SEND_TIMEOUT_MS: Final = 100
PIECES_A_ROUND: Final = 2
ROUND_S: Final = 0.3
LINGER_MS: Final = 20_000
"""Longest wait for messages to leave: a handshake takes long on a busy machine, and what it drops attacks nobody."""
LIES_AT_ONCE: Final = 50
JUNK: Final = random.Random(1).randbytes(PIECE_BYTES)


@contextmanager
def _connected(
    context: Context, addresses: Iterable[str], server: bytes = b"", public: bytes = b"", secret: bytes = b""
) -> Iterator[list[zmq.Socket[bytes]]]:
    """Opens a socket to each address; without a server's key it is not encrypted."""
    made: list[zmq.Socket[bytes]] = []
    try:
        for address in addresses:
            made.append(_connect(context, address, server, public, secret))
        yield made
    finally:
        for each in made:
            each.close()


def _connect(context: Context, address: str, server: bytes, public: bytes, secret: bytes) -> zmq.Socket[bytes]:
    made = _socket(context, server, public, secret)
    made.connect(address)
    return made


def _socket(context: Context, server: bytes, public: bytes, secret: bytes) -> zmq.Socket[bytes]:
    made = context.socket(zmq.DEALER)
    made.linger = LINGER_MS
    if server:
        made.curve_serverkey, made.curve_publickey, made.curve_secretkey = server, public, secret
    return made


def post(connection: zmq.Socket[bytes], frames: list[bytes]) -> bool:
    """Sends a message without waiting. Returns False if the peer has refused the connection already: ZeroMQ gives such
    a connection up, and a send that waits would wait forever."""
    try:
        connection.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True


def refused(addresses: list[str], until_s: float, server: bytes, count: Callable[[], None]) -> None:
    """Connects with this server key (empty: no encryption) and keeps trying; counts each refusal."""
    keys = new_keys() if server else (b"", b"")
    message = encode_message(Suspicion(STRANGER, STRANGER, ViewNumber(1), True))
    with zmq.Context() as context:
        sockets = [_socket(context, server, *keys) for _ in addresses]
        monitors = [each.get_monitor_socket(REFUSALS) for each in sockets]  # before the first refusal
        poller = zmq.Poller()
        for monitor in monitors:
            poller.register(monitor, zmq.POLLIN)
        for each, address in zip(sockets, addresses, strict=True):
            each.connect(address)
        for each in sockets:
            post(each, [pack(STRANGER, message, b"")])
        while time.monotonic() < until_s:
            for monitor, _ in poller.poll(50):
                monitor.recv_multipart()
                count()
        for each, monitor in zip(sockets, monitors, strict=True):
            each.disable_monitor()
            monitor.close(0)
            each.close(0)


def flood(driver: StolenPeer, loot: Loot, until_s: float, count: Callable[[], None]) -> None:
    """Sends messages, registrations, pieces and garbage as fast as they are accepted, with the driver's public key and
    with the key of a slot."""
    with zmq.Context() as context:
        for sender, keys in cycle(((STRANGER, None), (SlotId(loot.slot), (loot.public_key, loot.secret_key)))):
            for frames in _flood_of(sender):
                if time.monotonic() >= until_s:
                    return
                own = keys or new_keys()
                with _connected(context, [driver.control_address], driver.public_key, *own) as (flooding,):
                    flooding.sndtimeo, flooding.linger = SEND_TIMEOUT_MS, 0
                    _pour(flooding, frames, count)


def _flood_of(sender: SlotId) -> Iterator[list[bytes]]:
    register = Register(sender, "domain", "host\nforged", "tcp://127.0.0.1:1", "tcp://x", b"", "token", 1, ())
    suspicion = Suspicion(sender, STRANGER, ViewNumber(1), True)
    piece = JUNK[: 1 << 20]
    yield [pack(sender, encode_message(suspicion), b"")]
    yield [pack(sender, encode_message(register), b"")]
    yield [b"garbage"]
    yield [pack(sender, b"", piece, IS_PIECE), piece]
    yield [pack(sender, b"", piece, IS_PIECE | OF_MESSAGE), piece]


def _pour(flooding: zmq.Socket[bytes], frames: list[bytes], count: Callable[[], None]) -> None:
    for _ in range(FLOOD_PORTION if len(frames) == 1 else FLOOD_PORTION // 100):
        try:
            flooding.send_multipart(frames, copy=False)
            count()
        except zmq.Again:  # the receiver is slower, or refuses the connection
            return


def unfinished(loot: Loot, until_s: float, count: Callable[[], None]) -> None:
    """Sends pieces of messages that never end and frames that are too long, with the key of a slot."""
    with zmq.Context() as context:
        for turn in cycle(range(4)):
            if time.monotonic() >= until_s:
                return
            for peer in loot.peers.values():
                place = peer.control_address if turn % 2 or not peer.data_address else peer.data_address
                keys = (peer.public_key, loot.public_key, loot.secret_key)
                with _connected(context, [place], *keys) as (liar,):
                    if turn == 3:
                        if post(liar, [pack(SlotId(loot.slot), b"", b""), bytes(FRAME_BYTES_MAX + 1)]):
                            count()
                        continue
                    flags = IS_PIECE | (OF_MESSAGE if turn == 2 else 0)
                    for number in range(PIECES_A_ROUND):
                        if post(liar, [pack(SlotId(loot.slot), b"", JUNK, flags, number), JUNK]):
                            count()
            time.sleep(ROUND_S)


def lie(loot: Loot, job: AttackedJob, until_s: float, count: Callable[[], None]) -> None:
    """Sends messages that a slot may not send, with its key, on a new connection each, in random order."""
    order, liar = random.Random(loot.slot), SlotId(loot.slot)
    while time.monotonic() < until_s:
        lies: list[tuple[StolenPeer, list[bytes]]] = []
        for peer in loot.peers.values():
            lies_to_peer = lies_to_slot(liar, SlotId(peer.slot), job)
            if peer.slot == COORDINATOR:
                lies_to_peer = lies_to_coordinator(liar, job)
            lies += [(peer, frames) for frames in _frames_of(liar, lies_to_peer)]
        order.shuffle(lies)
        for first in range(0, len(lies), LIES_AT_ONCE):
            _send_lies(loot, lies[first : first + LIES_AT_ONCE], until_s, count)


def _send_lies(
    loot: Loot, lies: list[tuple[StolenPeer, list[bytes]]], until_s: float, count: Callable[[], None]
) -> None:
    """Sends forged messages, and waits until all of them have left."""
    with zmq.Context() as context:
        for peer, frames in lies:
            if time.monotonic() >= until_s:
                return
            keys = (peer.public_key, loot.public_key, loot.secret_key)
            with _connected(context, [peer.control_address], *keys) as (speaker,):
                if post(speaker, frames):
                    count()


def _frames_of(liar: SlotId, lies: Iterable[Message]) -> Iterator[list[bytes]]:
    for message in lies:
        yield [pack(liar, encode_message(message), b"")]
    good = pack(liar, encode_message(Suspicion(liar, liar, ViewNumber(1), False)), b"")
    yield [good[:-1] + bytes([good[-1] ^ 1])]
    yield [good, b"one frame", b"and another"]
    yield [pack(SlotId(liar ^ 1), encode_message(Release(liar, "")), b"")]
    yield [pack(COORDINATOR, encode_message(Release(liar, "")), b"")]
    yield [pack(liar, b"", b"piece", IS_PIECE, 9), b"piece"]
    yield [pack(liar, b"\x93" * 10_000, b"")]
    nested = StandbyUpdate(TaskId(0), Incarnation(1), CheckpointId(1), None, ("x" * 1_000,) * 1_000)
    yield [pack(liar, encode_message(nested), b"")]
