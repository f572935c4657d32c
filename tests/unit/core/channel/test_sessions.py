"""Channels (protocol 4) and conformance G 42: sessions, gaps, credit, deltas, and messages that are lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.channel.credit import cost_bytes
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import Incarnation
from clonos.core.wire.channel_messages import Batch, Position
from tests.harnesses.channel_pair import SENDERS_LOG, ChannelPair
from tests.harnesses.sample_plans import number

EVENTS = (
    "produce",
    "grow",
    "heartbeat",
    "deliver",
    "deliver",
    "state",
    "hear",
    "hear",
    "lose",
    "consume",
    "break",
    "repeat",
)


def opened(**changes: int) -> ChannelPair:
    """A pair whose first statement has arrived."""
    pair = ChannelPair(**changes)
    pair.deliver_handshake()
    return pair


def test_nothing_is_sent_before_the_receivers_handshake() -> None:
    pair = ChannelPair()
    pair.produce(b"a")
    pair.heartbeat()
    assert not pair.forward
    pair.deliver_handshake()
    assert [payload for _, payload in pair.forward] == [b"a"]


def test_a_gap_in_the_elements_opens_a_new_session_at_the_receivers_position() -> None:
    pair = opened()
    pair.produce(b"a", b"b", b"c")
    pair.deliver()
    pair.forward.popleft()  # lost
    pair.deliver()
    assert (pair.accepted, pair.receiver.session) == ([b"a"], 2)
    pair.settle()
    assert pair.accepted == [b"a", b"b", b"c"]


def test_a_lost_tail_is_noticed_at_the_senders_heartbeat() -> None:
    pair = opened()
    pair.produce(b"a", b"b")
    pair.forward.clear()
    pair.heartbeat()
    pair.settle()
    assert pair.accepted == [b"a", b"b"]


def test_messages_of_an_earlier_session_are_dropped() -> None:
    pair = opened()
    pair.produce(b"a", b"b")
    late = list(pair.forward)
    pair.forward.clear()
    pair.renew()
    assert not pair.arrive(*late[0])
    pair.settle()
    assert pair.accepted == [b"a", b"b"]


def test_a_duplicate_changes_nothing() -> None:
    pair = opened()
    pair.produce(b"a", log=b"1")
    packet = pair.forward[0]
    pair.deliver()
    pair.arrive(*packet)
    pair.settle()
    assert (pair.accepted, pair.known_log) == ([b"a"], b"1")


def test_a_partly_known_batch_is_cut() -> None:
    pair = opened()
    pair.produce(b"x", count=5)
    pair.settle()
    pair.new_sender(2)
    pair.produce(b"x", count=6)  # elements 2..7, the first three are known
    pair.settle()
    assert (len(pair.accepted), pair.receiver.next_seq) == (8, 8)


def test_a_late_handshake_of_an_earlier_session_is_ignored() -> None:
    pair = ChannelPair()
    late = pair.back[0]
    pair.renew()
    pair.back.popleft()
    pair.deliver_handshake()
    pair.produce(b"a")
    pair.accept(late)
    assert pair.sender.session == 2
    assert [m.session for m, _ in pair.forward] == [2]


def test_an_overtaken_handshake_lowers_neither_position_nor_credit() -> None:
    pair = opened()
    early = pair.receiver.handshake(number(1), Incarnation(1), ())
    pair.produce(b"a", b"b")
    pair.deliver(2)
    pair.consume(2)
    pair.state()
    pair.accept(pair.back.pop())
    credit = pair.sender.credit_bytes
    pair.accept(early)
    assert (pair.sender.received_up_to, pair.sender.credit_bytes) == (2, credit)


# ------------------------------------------------------------------ deltas


def test_a_delta_is_sent_once_per_session() -> None:
    pair = opened()
    pair.produce(b"a", log=b"1")
    pair.produce(b"b", log=b"2")
    assert [d.data for m, _ in pair.forward for d in m.deltas] == [b"1", b"2"]
    pair.forward.clear()
    pair.renew()
    pair.deliver_handshake()
    assert [d.data for m, _ in pair.forward for d in m.deltas] == [b"12"]


def test_a_message_with_a_gap_in_its_delta_is_refused_as_a_whole() -> None:
    pair = opened()
    pair.produce(b"a", log=b"1")
    pair.settle()
    pair.grow(b"2")
    pair.heartbeat()
    pair.forward.clear()  # the heartbeat that carried 2
    pair.produce(b"b", log=b"3")
    pair.deliver()
    assert (pair.accepted, pair.known_log) == ([b"a"], b"1")
    pair.settle()
    assert (pair.accepted, pair.known_log) == ([b"a", b"b"], b"123")


def test_an_element_whose_causes_were_lost_with_a_heartbeat_is_refused() -> None:
    """Protocol 3. The step's log left with a heartbeat since credit was used up; the elements followed alone."""
    pair = opened(window_bytes=100)
    pair.produce(b"a" * 200)
    pair.deliver()
    pair.produce(b"b", log=b"CAUSE")
    assert not pair.forward  # no credit
    pair.heartbeat()
    assert [d.data for m, _ in pair.forward for d in m.deltas] == [b"CAUSE"]
    pair.forward.clear()
    pair.consume()
    while pair.back:
        pair.deliver_handshake()
    assert len(pair.forward) == 1
    pair.deliver()
    assert pair.accepted == [b"a" * 200]
    pair.settle()
    assert (pair.accepted[1:], pair.known_log) == ([b"b"], b"CAUSE")


def test_a_delta_that_the_receiver_already_holds_is_not_sent() -> None:
    pair = ChannelPair()
    pair.receiver_logs.begin(SENDERS_LOG, 0, b"12345")
    pair.renew()
    pair.deliver_handshake()
    pair.deliver_handshake()
    pair.produce(b"a", log=b"12345")
    pair.produce(b"b", log=b"6")
    assert [(d.offset_bytes, d.data) for m, _ in pair.forward for d in m.deltas] == [(5, b"6")]


def test_a_log_that_begins_after_the_end_of_its_replica_restarts_the_replica() -> None:
    pair = ChannelPair()
    pair.sender_logs.append(SENDERS_LOG, b"123456")
    pair.sender_logs.truncate(SENDERS_LOG, 4)
    pair.deliver_handshake()
    pair.heartbeat()
    pair.settle()
    assert (pair.receiver_logs.replicas[SENDERS_LOG].start_bytes, pair.known_log) == (4, b"56")


# ------------------------------------------------------------------ credit


def test_credit_bounds_bytes_in_flight_to_the_window_plus_one_element() -> None:
    pair = opened(window_bytes=1000)
    pair.produce(*[b"x" * 100] * 50)
    on_its_way = sum(cost_bytes(1, len(payload)) for _, payload in pair.forward)
    assert 1000 <= on_its_way < 1000 + cost_bytes(1, 100)


def test_g42_an_element_larger_than_the_window_is_sent() -> None:
    pair = opened(window_bytes=100)
    pair.produce(b"x" * 100_000, b"y" * 100_000, b"z")
    assert len(pair.forward) == 1
    pair.settle()
    assert [len(payload) for payload in pair.accepted] == [100_000, 100_000, 1]


def test_g42_credit_lost_at_a_disconnect_is_restored_by_the_next_handshake() -> None:
    pair = opened(window_bytes=200)
    pair.produce(*[b"x" * 100] * 10)
    pair.deliver(len(pair.forward))
    pair.consume(len(pair.unconsumed))
    pair.back.clear()  # every grant is lost
    pair.pump()
    assert not pair.forward
    pair.state()
    pair.settle()
    assert len(pair.accepted) == 10


def test_g42_a_replaying_task_receives_its_whole_next_step_beyond_the_window() -> None:
    pair = opened(window_bytes=100)
    pair.produce(*[b"x" * 90] * 20)
    pair.receiver.needed_seq = 20  # and it consumes nothing before all are there
    if pair.receiver.grant():
        pair.state()
    for _ in range(100):
        while pair.back:
            pair.deliver_handshake()
        if not pair.forward:
            break
        pair.deliver()
    assert len(pair.accepted) == 20


def test_credit_counts_from_the_sessions_beginning() -> None:
    pair = opened(window_bytes=300)
    pair.produce(*[b"x" * 100] * 20)
    pair.settle()
    pair.renew()
    assert pair.back[-1].credit_bytes == 300
    pair.deliver_handshake()
    assert (pair.sender.sent_bytes, pair.sender.credit_bytes) == (0, 300)


def test_barriers_use_credit_and_heartbeats_do_not() -> None:
    pair = opened(window_bytes=cost_bytes(1, 0))
    pair.produce(b"", kind=ElementKind.BARRIER)
    pair.produce(b"", kind=ElementKind.BARRIER)
    assert len(pair.forward) == 1
    pair.heartbeat()
    assert len(pair.forward) == 2


def test_the_backlog_is_the_unsent_part_of_a_live_session() -> None:
    pair = opened(window_bytes=100)
    pair.produce(b"x" * 1000, b"y" * 500)
    assert pair.sender.unsent_bytes == 500
    pair.sender.apply_view(Incarnation(9))
    assert pair.sender.unsent_bytes == 0
    pair.produce(b"z" * 500)
    assert pair.sender.unsent_bytes == 0  # its receiver is down: no back-pressure


# ------------------------------------------------------------------ positions and incarnations


def test_the_received_position_is_the_maximum_of_arrived_and_logged_elements() -> None:
    pair = ChannelPair(next_seq=3, received_up_to=10)
    assert (pair.back[0].next_seq, pair.back[0].received_up_to) == (3, 10)
    pair.deliver_handshake()
    assert pair.sender.received_up_to == 10
    pair.produce(*[b"x"] * 9)
    pair.settle()
    pair.renew()
    assert pair.back[0].received_up_to == 12


def test_a_dead_receivers_position_holds_until_its_successor_sends_a_lower_one() -> None:
    pair = opened()
    pair.produce(b"a", b"b", b"c")
    pair.settle()
    pair.state()
    pair.deliver_handshake()
    pair.new_receiver(1)
    assert (pair.sender.received_up_to, pair.sender.session) == (3, 0)
    pair.deliver_handshake()
    assert pair.sender.received_up_to == 1
    pair.settle()
    assert pair.accepted == [b"a", b"b", b"c"]


def test_a_replaying_sender_sends_from_the_receivers_position() -> None:
    pair = opened()
    pair.produce(*[bytes((i,)) for i in range(5)])
    pair.settle()
    pair.new_sender(0)
    pair.produce(*[bytes((i,)) for i in range(3)])
    pair.settle()
    assert (pair.renewals, pair.sender.unsent_bytes, pair.sender.log.next_seq) == (2, 0, 3)
    pair.heartbeat()
    pair.settle()
    assert pair.renewals == 2  # its heartbeat names what the receiver has
    pair.produce(*[bytes((i,)) for i in range(3, 7)])
    pair.settle()
    assert pair.accepted == [bytes((i,)) for i in range(7)]


# ------------------------------------------------------------------ everything at once


@pytest.mark.parametrize("window_bytes", [1, 200, 5_000])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_despite_loss_repeats_and_cuts_the_receiver_gets_every_element_once_after_its_causes(
    window_bytes: int, seed: int
) -> None:
    rng = random.Random(seed)
    pair = ChannelPair(window_bytes)
    produced: list[bytes] = []
    causes: list[int] = []  # per element, the length of the sender's log when it was made
    log = b""

    def check() -> None:
        assert pair.accepted == produced[: len(pair.accepted)]
        assert log.startswith(pair.known_log)
        if pair.accepted:
            assert len(pair.known_log) >= causes[len(pair.accepted) - 1]

    for _ in range(80):
        match rng.choice(EVENTS):
            case "produce":
                data, count = rng.randbytes(rng.randrange(3)), rng.randrange(1, 4)
                log += data
                payload = rng.randbytes(rng.choice((1, 50, 400)))
                produced += [payload] * count
                causes += [len(log)] * count
                pair.produce(payload, log=data, count=count)
            case "grow":
                data = rng.randbytes(2)
                log += data
                pair.grow(data)
            case "heartbeat":
                pair.heartbeat()
            case "deliver" if pair.forward:
                pair.deliver()
            case "state":
                pair.state()
            case "hear" if pair.back:
                pair.deliver_handshake()
            case "lose":
                for queue in (pair.forward, pair.back):
                    for _ in range(min(len(queue), rng.randrange(3))):
                        queue.popleft()
            case "consume" if pair.unconsumed:
                pair.consume()
            case "break":
                pair.forward.clear()
                pair.back.clear()
                pair.renew()
            case "repeat" if pair.forward:
                pair.forward.appendleft(pair.forward[0])
        check()
    for _ in range(2):
        pair.state()
        pair.settle(check)
        pair.heartbeat()
    pair.settle(check)
    assert pair.accepted == produced
    assert len(pair.known_log) == len(log)


def test_messages_name_channel_session_and_both_incarnations() -> None:
    pair = opened()
    pair.produce(b"a")
    pair.heartbeat()
    batch, position = (message for message, _ in pair.forward)
    assert isinstance(batch, Batch)
    assert isinstance(position, Position)
    for message in (batch, position):
        assert (message.channel, message.sender, message.receiver, message.session) == (0, 1, 1, 1)
    assert (batch.first_seq, position.next_seq) == (0, 1)
