"""Messages in pieces: their limits, and the storage of incomplete ones for known senders only."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
import zmq

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, CheckpointId, Incarnation, LogId, SlotId, TaskId, ViewNumber
from clonos.core.wire import message_codec
from clonos.core.wire.control_messages import Register
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import LogReply
from clonos.core.wire.replication_messages import StandbyUpdate
from clonos.io.net import frames
from clonos.io.net.curve import KeyPair, new_keys
from clonos.io.net.frames import IS_PIECE, OF_MESSAGE, Packet, pack, pack_in_pieces, unpack
from clonos.io.net.peers import Plane
from clonos.io.net.transfers import Transfers
from tests.unit.io.net.transports import Station, connection_to, poll_turns, poll_until

pytestmark = pytest.mark.slow

MODES = ["ipc", "tcp", "curve"]
PIECE = bytes(range(250)) * 4


def answer(log: bytes) -> LogReply:
    delta = Delta(LogId(0), 0, True, log)
    return LogReply(TaskId(0), Incarnation(1), ViewNumber(1), TaskId(1), False, SlotId(1), (delta,))


def update(number: int) -> StandbyUpdate:
    return StandbyUpdate(TaskId(0), Incarnation(1), CheckpointId(number), None, ("name",))


class Raw:
    """A socket that sends whatever a test wants to one station, as any slot."""

    def __init__(self, context: zmq.Context[Any], station: Station, keys: KeyPair | None = None) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        if keys is not None:
            self.socket.curve_serverkey = station.transport.public_key
            self.socket.curve_publickey, self.socket.curve_secretkey = keys
        self.socket.connect(station.transport.data_address)

    def send(self, packets: Sequence[Packet]) -> None:
        for frame, payload in packets:
            self.socket.send_multipart([frame, payload] if payload else [frame])

    def pieces(self, sender: int, count: int, first: int = 0, flags: int = 0) -> None:
        """Sends the next pieces of a message that never ends."""
        numbers = range(first, first + count)
        self.send([(pack(SlotId(sender), b"", PIECE, IS_PIECE | flags, number), PIECE) for number in numbers])


@pytest.fixture
def raw() -> Iterator[Any]:
    with zmq.Context() as context, ExitStack() as stack:

        def connect(station: Station, keys: KeyPair | None = None) -> Raw:
            made = Raw(context, station, keys)
            stack.callback(made.socket.close, 0)
            return made

        yield connect


# ------------------------------------------------------------------ delivery


@pytest.mark.parametrize("mode", MODES)
def test_a_reply_of_many_frames_arrives_whole(stations: Any, mode: str) -> None:
    one, other = stations(1, mode), stations(2, mode)
    one.knows(other)
    other.knows(one)
    log = bytes(range(256)) * (2 * frames.PIECE_BYTES // 256 + 7)
    one.send(other, answer(log))
    one.send(other, answer(b"short"))
    poll_until(lambda: len(other.received) == 2, one, other)
    assert {message.replicas[0].data for _, message, _ in other.received} == {log, b"short"}
    assert other.transport.unfinished_bytes == 0


@pytest.mark.parametrize("message_bytes", [0, 900, 1000, 1001, 1999, 2000, 2001, 5_500])
@pytest.mark.parametrize("payload_bytes", [0, 1000, 1001, 3_500])
def test_each_length_of_message_and_payload_is_cut_and_joined(message_bytes: int, payload_bytes: int) -> None:
    message, payload = bytes(range(251)) * 22, bytes(range(241)) * 15
    message, payload = message[:message_bytes], payload[:payload_bytes]
    packets = pack_in_pieces(SlotId(7), message, payload, piece_bytes=len(PIECE))
    assert max(len(part) for packet in packets for part in packet) <= len(PIECE) + frames.HEAD_BYTES
    taken = Transfers(1 << 20)
    transfer = taken.begin(SlotId(7))
    for number, (frame, piece) in enumerate(packets[:-1]):
        head = unpack(frame, piece)
        assert head.pieces_before == number
        transfer.add(head, piece)
    last, rest = packets[-1]
    assert not unpack(last, rest).flags & IS_PIECE
    whole = transfer.join(last[frames.HEAD_BYTES :], rest)
    assert tuple(map(bytes, whole)) == (message, payload)
    transfer.end()
    assert taken.held_bytes == 0


# ------------------------------------------------------------------ unauthenticated peers


@pytest.mark.parametrize("mode", ["tcp", "curve"])
def test_a_long_frame_is_refused_before_a_key_is_shown(stations: Any, mode: str) -> None:
    station = stations(1, mode)
    host, port = station.transport.control_address.removeprefix("tcp://").split(":")
    mechanism = b"CURVE" if mode == "curve" else b"NULL"
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)
    with socket.create_connection((host, int(port)), timeout=20) as stranger:
        stranger.sendall(greeting + b"\x06" + struct.pack(">Q", 256 << 20))  # a long command
        with pytest.raises(ConnectionError):
            stranger.sendall(bytes(64 << 20))


@pytest.mark.parametrize("mode", ["tcp", "curve"])
def test_an_unfinished_handshake_times_out_long_before_a_silent_peer(stations: Any, mode: str) -> None:
    station = stations(1, mode, silence_ms=600_000)
    host, port = station.transport.data_address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=25) as stranger:
        stranger.sendall(b"\xff" + bytes(8) + b"\x7f\x03")
        while stranger.recv(100):  # its greeting, then the end
            pass


# ------------------------------------------------------------------ incomplete messages by sender


@pytest.mark.parametrize("mode", ["tcp", "curve"])
def test_pieces_of_an_unknown_sender_are_not_stored(stations: Any, raw: Any, mode: str) -> None:
    station, honest = stations(COORDINATOR, mode, admits_unknown=True), stations(1, mode)
    station.knows(honest)
    honest.knows(station)
    keys = new_keys() if mode == "curve" else None
    stranger = raw(station, keys)
    stranger.pieces(sender=99, count=30)
    stranger.pieces(sender=99, count=30, flags=OF_MESSAGE)
    register = Register(SlotId(99), "", "", "", "", keys.public if keys else b"", "token", 1, ())
    # When it arrives, the pieces have, too.
    stranger.send([(pack(SlotId(99), message_codec.encode_message(register), b""), b"")])
    honest.send(COORDINATOR, update(1), b"payload")
    poll_until(lambda: len(station.received) == 2, station, honest)
    assert station.transport.unfinished_bytes == 0
    assert {sender for sender, _, _ in station.received} == {1, 99}


def test_pieces_in_the_name_of_a_known_slot_need_its_key(stations: Any, raw: Any) -> None:
    station, known = stations(2, "curve"), stations(1, "curve")
    liar_keys = new_keys()
    station.knows(known)
    station.transport.add_peer(known.transport.address._replace(slot=SlotId(3), public_key=liar_keys.public))
    liar = raw(station, liar_keys)
    liar.pieces(sender=known.slot, count=3)
    poll_until(lambda: liar.socket.poll(0), station)
    assert liar.socket.recv() == b"reset"
    assert station.transport.unfinished_bytes == 0


@pytest.mark.parametrize("mode", ["tcp", "curve"])
def test_pieces_are_dropped_with_their_connection(stations: Any, raw: Any, mode: str) -> None:
    station = stations(2, mode)
    keys = new_keys() if mode == "curve" else KeyPair(b"", b"")
    for slot in (5, 6):
        station.transport.add_peer(station.transport.address._replace(slot=SlotId(slot), public_key=keys.public))
    dying, living = (raw(station, keys if mode == "curve" else None) for _ in range(2))
    dying.pieces(sender=5, count=30)
    living.pieces(sender=6, count=2)
    poll_until(lambda: station.transport.unfinished_bytes == 32 * len(PIECE), station)
    dying.socket.close(0)

    def is_given_up() -> bool:
        station.transport.tick()
        return bool(station.transport.unfinished_bytes == 2 * len(PIECE))

    poll_until(is_given_up, station)
    payload = PIECE + PIECE + b"the rest"
    living.send([(pack(SlotId(6), message_codec.encode_message(update(1)), b"the rest", 0, 2), b"the rest")])
    poll_until(lambda: station.received, station)
    assert station.received == [(6, update(1), payload)]
    assert station.transport.unfinished_bytes == 0


def test_pieces_of_a_slot_that_left_the_view_are_dropped(stations: Any, raw: Any) -> None:
    station = stations(2)
    station.transport.add_peer(station.transport.address._replace(slot=SlotId(5)))
    fenced = raw(station)
    fenced.pieces(sender=5, count=3)
    poll_until(lambda: station.transport.unfinished_bytes, station)
    station.transport.retain_peers(set())
    station.transport.tick()
    assert station.transport.unfinished_bytes == 0


def test_an_unfinished_message_survives_liveness_checks(stations: Any) -> None:
    one, other = stations(1), stations(2)
    one.knows(other)
    other.knows(one)
    one.send(other, update(1))
    poll_until(lambda: other.received, one, other)
    connection = connection_to(one, other.slot, Plane.BULK)
    packets = pack_in_pieces(one.slot, message_codec.encode_message(update(2)), PIECE * 3, piece_bytes=len(PIECE))
    connection.send(packets[:2])
    poll_until(lambda: other.transport.unfinished_bytes, one, other)
    for _ in range(5):
        one.transport.tick()
        other.transport.tick()
        poll_turns(2, one, other)
    connection.send(packets[2:])
    poll_until(lambda: len(other.received) == 2, one, other)
    assert not one.back
    assert not one.gone


# ------------------------------------------------------------------ limits


def test_the_number_of_pieces_of_a_message_is_limited() -> None:
    transfer = Transfers(1 << 20, pieces_max=3).begin(SlotId(1))
    head = unpack(pack(SlotId(1), b"", PIECE, IS_PIECE), PIECE)
    for _ in range(3):
        transfer.add(head, PIECE)
    with pytest.raises(MessageMalformed, match="more than 3 pieces"):
        transfer.add(head, PIECE)


def test_the_bytes_of_a_message_without_its_payload_are_limited() -> None:
    transfer = Transfers(1 << 20, message_bytes_max=2 * len(PIECE)).begin(SlotId(1))
    head = unpack(pack(SlotId(1), b"", PIECE, IS_PIECE | OF_MESSAGE), PIECE)
    for _ in range(2):
        transfer.add(head, PIECE)
    with pytest.raises(MessageMalformed, match="3000 bytes of a message, the limit is 2000"):
        transfer.add(head, PIECE)


def test_at_the_process_limit_the_sender_with_the_most_stored_bytes_loses_them() -> None:
    taken = Transfers(5 * len(PIECE))
    head = unpack(pack(SlotId(1), b"", PIECE, IS_PIECE), PIECE)
    hoarder, same, modest = taken.begin(SlotId(1)), taken.begin(SlotId(1)), taken.begin(SlotId(2))
    for transfer in (hoarder, hoarder, same, modest, modest):
        transfer.add(head, PIECE)
    modest.check()
    with pytest.raises(MessageMalformed, match=r"slot 0000000000000001 .* more than 5000 bytes of unfinished messages"):
        hoarder.add(head, PIECE)
    with pytest.raises(MessageMalformed):
        same.check()
    modest.check()
    assert taken.held_bytes == 2 * len(PIECE)
    for transfer in (hoarder, same, modest):
        transfer.end()
    assert taken.held_bytes == 0


def test_a_sender_beyond_a_limit_must_reconnect_and_others_continue(stations: Any, raw: Any) -> None:
    station = stations(2, unfinished_bytes_max=4 * len(PIECE))
    for slot in (5, 6):
        station.transport.add_peer(station.transport.address._replace(slot=SlotId(slot)))
    modest, hoarder = raw(station), raw(station)
    modest.pieces(sender=6, count=1)
    poll_until(lambda: station.transport.unfinished_bytes, station)
    hoarder.pieces(sender=5, count=4)
    poll_until(lambda: hoarder.socket.poll(0), station)
    assert hoarder.socket.recv() == b"reset"
    hoarder.pieces(sender=5, count=4, first=4)
    modest.send([(pack(SlotId(6), message_codec.encode_message(update(1)), b"", 0, 1), b"")])
    poll_until(lambda: station.received, station)
    assert station.received == [(6, update(1), PIECE)]
    assert station.transport.unfinished_bytes == 0
