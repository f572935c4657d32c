"""Transports on loopback: delivery, refused peers, and reports of a peer's death."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import zmq

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import COORDINATOR, ChannelId, CheckpointId, Incarnation, SlotId, TaskId, ViewNumber, log_of
from clonos.core.wire import message_codec
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.control_messages import Completed, Register, Suspicion
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import LogReply
from clonos.core.wire.replication_messages import StandbyUpdate
from clonos.io.net.frames import PIECE_BYTES, pack
from clonos.io.net.listening import Binding, BindingRefused, towards
from clonos.io.net.peers import Plane
from clonos.io.net.transport import Transport, plane_of
from tests.unit.io.net.transports import (
    connection_to,
    poll_until,
    poll_until_all_is_seen,
    poll_until_turned_away,
)

MODES = ["ipc", "tcp", "curve"]


def suspicion(number: int) -> Suspicion:
    return Suspicion(SlotId(number), SlotId(0), ViewNumber(0), False)


def batch(number: int) -> Batch:
    return Batch(ChannelId(0), Incarnation(1), Incarnation(1), 0, 0, number, ElementKind.ROWS, 1, CheckpointId(0), ())


def update(number: int) -> StandbyUpdate:
    return StandbyUpdate(TaskId(0), Incarnation(1), CheckpointId(number), None, ("name",))


@pytest.mark.parametrize("mode", MODES)
def test_messages_arrive_in_order_on_each_plane_with_their_payloads(stations: Any, mode: str) -> None:
    one, other = stations(1, mode), stations(2, mode)
    one.knows(other)
    other.knows(one)
    for number in range(200):
        one.send(other, batch(number), b"payload %d" % number)
        one.send(other, suspicion(number))
    poll_until(lambda: len(other.received) == 400, one, other)
    on_data = [(sender, message, payload) for sender, message, payload in other.received if payload]
    assert on_data == [(1, batch(number), b"payload %d" % number) for number in range(200)]
    assert [message for _, message, payload in other.received if not payload] == [suspicion(n) for n in range(200)]


@pytest.mark.parametrize("mode", MODES)
def test_a_payload_of_many_pieces_arrives_whole(stations: Any, mode: str) -> None:
    one, other = stations(1, mode), stations(2, mode)
    one.knows(other)
    other.knows(one)
    payload = bytes(range(256)) * (2 * PIECE_BYTES // 256 + 7)
    one.send(other, update(1), payload)
    one.send(other, update(2), b"")
    one.send(other, update(3), payload[: 1 << 17])
    poll_until(lambda: len(other.received) == 3, one, other)
    assert [received for _, _, received in other.received] == [payload, b"", payload[: 1 << 17]]


def test_a_message_to_all_slots_is_encoded_once(stations: Any) -> None:
    coordinator, *slots = stations(1), *[stations(number) for number in range(2, 6)]
    coordinator.knows(*slots)
    for slot in slots:
        slot.knows(coordinator)
    encoded = 0

    def watch(_frame: Any, event: str, called: Any) -> None:
        nonlocal encoded
        encoded += event == "c_call" and called.__name__ == "encode"

    for number in range(1, 3):
        completed = Completed(CheckpointId(number), 1, ())
        before, encoded = encoded, 0
        sys.setprofile(watch)
        try:
            for slot in slots:
                coordinator.send(slot, completed)
        finally:
            sys.setprofile(None)
        assert (before, encoded) == (number - 1, 1)
    poll_until(lambda: all(len(slot.received) == 2 for slot in slots), coordinator, *slots)
    for slot in slots:
        assert [message.checkpoint for _, message, _ in slot.received] == [1, 2]


def test_a_message_to_the_same_slot_arrives_in_the_next_poll(stations: Any) -> None:
    one = stations(1)
    one.send(one, suspicion(7), b"x")
    assert not one.received
    one.transport.poll(10_000, one)
    assert one.received == [(1, suspicion(7), b"x")]


def test_a_message_of_a_slot_that_is_not_in_the_view_is_dropped(stations: Any) -> None:
    fenced, other, known = stations(1), stations(2), stations(3)
    fenced.knows(other)
    known.knows(other)
    other.knows(fenced, known)
    fenced.send(other, suspicion(1))
    poll_until(lambda: other.received, fenced, other)
    other.transport.retain_peers({SlotId(3)})
    fenced.send(other, suspicion(2))
    known.send(other, suspicion(3))
    poll_until(lambda: len(other.received) == 2, fenced, other, known)
    poll_until_all_is_seen(fenced, other.slot, fenced, other, known)
    assert [message.slot for _, message, _ in other.received] == [1, 3]


def test_a_key_that_is_not_in_the_view_cannot_connect_until_it_is(stations: Any) -> None:
    early, other = stations(1, "curve"), stations(2, "curve")
    early.knows(other)
    early.send(other, suspicion(1))
    poll_until_turned_away(early, other)
    assert not other.received
    other.knows(early)
    poll_until(lambda: other.received, early, other)
    assert other.received == [(1, suspicion(1), b"")]


def test_a_slot_cannot_send_in_the_name_of_another(stations: Any) -> None:
    honest, liar, other = stations(1, "curve"), stations(3, "curve"), stations(2, "curve")
    other.knows(honest, liar)
    liar.knows(other)
    liar.transport.identity = honest.slot
    liar.send(other, suspicion(1))
    poll_until_all_is_seen(liar, other.slot, liar, other)
    assert not other.received


def test_an_unknown_peer_may_only_register_with_the_coordinator(stations: Any) -> None:
    coordinator = stations(COORDINATOR, "curve", admits_unknown=True)
    stranger = stations(5, "curve")
    stranger.knows(coordinator)
    register = Register(
        SlotId(5), "domain", "host", "data", "control", stranger.transport.public_key, "token", 1, (("wire", "1"),)
    )
    stranger.send(COORDINATOR, suspicion(1))
    stranger.send(COORDINATOR, register)
    poll_until(lambda: coordinator.received, coordinator, stranger)
    assert coordinator.received == [(5, register, b"")]


def test_an_unknown_key_is_admitted_only_while_registrations_are_open(stations: Any) -> None:
    coordinator = stations(COORDINATOR, "curve", admits_unknown=True)
    coordinator.transport.admit_unknown(False)
    stranger = stations(5, "curve")
    stranger.knows(coordinator)
    register = Register(SlotId(5), "", "", "", "", stranger.transport.public_key, "token", 1, ())
    stranger.send(COORDINATOR, register)
    poll_until_turned_away(stranger, coordinator)
    assert not coordinator.received
    coordinator.transport.admit_unknown(True)
    poll_until(lambda: coordinator.received, coordinator, stranger)
    assert coordinator.received == [(5, register, b"")]


def test_a_registration_with_another_slots_key_is_refused(stations: Any) -> None:
    coordinator = stations(COORDINATOR, "curve", admits_unknown=True)
    stranger, victim = stations(5, "curve"), stations(6, "curve")
    stranger.knows(coordinator)
    key = victim.transport.public_key
    stranger.send(COORDINATOR, Register(SlotId(5), "domain", "host", "data", "control", key, "token", 1, ()))
    poll_until_all_is_seen(stranger, COORDINATOR, coordinator, stranger)
    assert not coordinator.received


@pytest.mark.parametrize("mode", MODES)
def test_a_peer_that_ends_is_reported_gone_and_its_return_reported(stations: Any, mode: str) -> None:
    one, other = stations(1, mode), stations(2, mode)
    one.knows(other)
    other.knows(one)
    one.send(other, suspicion(1))
    poll_until(lambda: other.received, one, other)
    again = other.address_again()
    other.close()
    poll_until(lambda: one.gone, one)
    assert one.gone == [2]
    revived = again()
    try:
        revived.knows(one)
        poll_until(lambda: one.back, one, revived)
        one.send(revived, suspicion(2))
        poll_until(lambda: revived.received, one, revived)
    finally:
        revived.close()
    assert revived.received[-1] == (1, suspicion(2), b"")


def test_a_peer_that_ended_before_it_was_reached_is_reported_gone(stations: Any) -> None:
    one, other = stations(1), stations(2)
    one.knows(other)
    other.close()
    one.send(other, suspicion(1))
    poll_until(lambda: one.gone, one)
    assert one.gone == [2]


def test_a_disconnected_peer_may_send_and_is_reconnected_when_needed(stations: Any) -> None:
    one, other = stations(1), stations(2)
    one.knows(other)
    other.knows(one)
    one.send(other, suspicion(1))
    poll_until(lambda: other.received, one, other)
    one.transport.disconnect(SlotId(2))
    one.transport.disconnect(SlotId(99))
    assert not one.transport.is_open(SlotId(2))
    other.send(one, suspicion(2))
    poll_until(lambda: one.received, one, other)
    one.send(other, suspicion(3))
    poll_until(lambda: len(other.received) == 2, one, other)
    assert not one.gone


def test_a_peer_that_refuses_our_key_for_now_is_not_reported_gone(stations: Any) -> None:
    early, other = stations(1, "curve"), stations(2, "curve")
    early.knows(other)
    early.send(other, suspicion(1))
    poll_until_turned_away(early, other)
    assert not early.gone


def test_a_malformed_message_costs_its_connection_and_nothing_else(stations: Any) -> None:
    one, other, third = stations(1), stations(2), stations(3)
    for station in (one, third):
        station.knows(other)
        other.knows(station)
    one.send(other, suspicion(1))
    third.send(other, suspicion(1))
    poll_until(lambda: len(other.received) == 2, one, other, third)
    connection = connection_to(one, other.slot)
    good = pack(one.slot, message_codec.encode_message(suspicion(2)), b"")
    connection.send([(good[:-1] + bytes([good[-1] ^ 1]), b""), (good, b"")])
    third.send(other, suspicion(3))
    poll_until(lambda: len(other.received) == 3, one, other, third)
    assert other.received[-1] == (3, suspicion(3), b"")  # what follows on the broken connection is not believed

    def reset_or_poll() -> bool:
        one.transport.tick()
        return bool(one.back)

    poll_until(reset_or_poll, one, other, third)
    assert not one.gone
    one.send(other, suspicion(4))
    poll_until(lambda: len(other.received) == 4, one, other, third)
    assert other.received[-1] == (1, suspicion(4), b"")


def test_bytes_that_are_not_a_message_are_refused_by_every_listener(stations: Any) -> None:
    one, other = stations(1), stations(2)
    one.knows(other)
    other.knows(one)
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.connect(other.transport.control_address)
        for junk in ([b""], [b"short"], [bytes(100)], [bytes(100), b"x", b"y", b"z"], [pack(one.slot, b"\x93", b"")]):
            raw.send_multipart(junk)
        one.send(other, suspicion(1))
        poll_until(lambda: other.received, one, other)
        poll_until(lambda: raw.poll(0), other)
        assert raw.recv() == b"reset"
    assert other.received == [(1, suspicion(1), b"")]


def test_large_messages_use_another_connection_than_urgent_ones() -> None:
    def answer(count: int) -> LogReply:
        delta = Delta(log_of(TaskId(0)), 0, True, bytes(count))
        return LogReply(TaskId(0), Incarnation(1), ViewNumber(1), TaskId(1), False, SlotId(1), (delta,))

    assert plane_of(batch(1)) is Plane.DATA
    assert plane_of(update(1)) is Plane.BULK
    assert plane_of(answer(100)) is Plane.CONTROL
    assert plane_of(answer(1 << 20)) is Plane.BULK
    assert plane_of(suspicion(1)) is Plane.CONTROL


def test_a_peers_address_may_be_rewritten(stations: Any) -> None:
    asked: list[tuple[int, str]] = []
    other = stations(2)

    def rewrite(slot: int, address: str) -> str:
        asked.append((slot, address))
        return other.transport.control_address if address == "tcp://elsewhere:1" else address

    one = stations(1, rewriter=rewrite)
    other.knows(one)
    one.transport.add_peer(other.transport.address._replace(control_address="tcp://elsewhere:1"))
    one.send(other, suspicion(1))
    poll_until(lambda: other.received, one, other)
    assert asked == [(2, "tcp://elsewhere:1")]


def test_ports_are_taken_from_the_range_and_a_full_range_is_named() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as one, context.socket(zmq.ROUTER) as other:
        ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (one, other)]
        other.unbind(f"tcp://127.0.0.1:{ports[1]}")
        with pytest.raises(BindingRefused, match="none of the 2 ports is free"):
            Transport(SlotId(1), Binding(ports=ports, use_curve=False))  # one for control, none for data


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with pytest.raises(BindingRefused, match="at most 100 bytes"):
        Transport(SlotId(1), Binding(folder=str(folder)))


def test_a_wildcard_listener_advertises_the_address_used_to_reach_the_coordinator() -> None:
    everywhere = Binding(host="0.0.0.0", use_curve=False)
    assert towards(everywhere, "tcp://127.0.0.1:4000").advertised_host == "127.0.0.1"
    named = Binding(host="0.0.0.0", advertised_host="example.org")
    assert towards(named, "tcp://127.0.0.1:4000") == named
    assert towards(Binding(folder="ipc"), "ipc:///x") == Binding(folder="ipc")


def test_a_transport_across_hosts_requires_keys() -> None:
    with pytest.raises(BindingRefused, match="key pair"):
        Transport(SlotId(1), Binding(host="127.0.0.1"))
