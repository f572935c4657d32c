"""The lost-log rule: output positions at the end of a log, compared with receivers (protocol 6, rule 8)."""

from __future__ import annotations

import pytest

from clonos.core.channel.sender import Behind, ChannelSender, compare_positions
from tests.harnesses.channel_pair import CHANNEL, SENDERS_LOG, ChannelPair

CHANNEL_ID = CHANNEL.id


def sender_with(received_up_to: int, copied_bytes: int = 0) -> ChannelSender:
    """A sender whose receiver has elements up to ``received_up_to`` and this much of the sender's log."""
    pair = ChannelPair(received_up_to=received_up_to)
    pair.deliver_handshake()
    pair.sender.shipped[SENDERS_LOG] = copied_bytes
    return pair.sender


@pytest.mark.parametrize("position", [7, 8])
def test_output_that_has_reached_the_receivers_mark_is_not_behind(position: int) -> None:
    assert compare_positions({CHANNEL_ID: position}, {CHANNEL_ID: sender_with(7)}, None, 0) == (None, False)


def test_output_below_the_mark_of_a_living_receiver_is_behind() -> None:
    found = compare_positions({CHANNEL_ID: 6}, {CHANNEL_ID: sender_with(7)}, None, 0)
    assert found == (Behind(CHANNEL_ID, 6, 7), False)


def test_a_receiver_with_a_longer_copy_of_the_log_means_that_the_log_is_behind() -> None:
    senders = {CHANNEL_ID: sender_with(7, copied_bytes=41)}
    assert compare_positions({CHANNEL_ID: 7}, senders, None, 40) == (Behind(None, 40, 41), False)
    assert compare_positions({CHANNEL_ID: 7}, senders, None, 41) == (None, False)


def test_a_receiver_that_is_being_replaced_is_waited_for() -> None:
    sender = sender_with(7)
    sender.session = 0
    assert compare_positions({CHANNEL_ID: 6}, {CHANNEL_ID: sender}, None, 0) == (None, True)


@pytest.mark.parametrize(("external_seq", "behind"), [(None, 0), (7, 7), (6, None)])
def test_an_external_system_is_behind_like_a_living_receiver(external_seq: int | None, behind: int | None) -> None:
    expected = None if behind is None else Behind(CHANNEL_ID, 6, behind)
    assert compare_positions({CHANNEL_ID: 6}, {}, external_seq, 0) == (expected, False)
