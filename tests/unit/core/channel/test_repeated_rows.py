"""Rows that a receiver has taken are compared with those of its sender's next incarnation, however batches are cut."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.core.model.element_kind import ElementKind
from clonos.core.values import encode_rows
from tests.harnesses.channel_pair import ChannelPair


def batch(*rows: Any) -> tuple[bytes, int]:
    return encode_rows(list(rows)), len(rows)


def taken_from(*batches: tuple[bytes, int]) -> ChannelPair:
    """A channel whose receiver has taken these batches, and whose sender has died and has its handshake."""
    pair = ChannelPair(window_bytes=100_000)
    pair.deliver_handshake()
    for payload, count in batches:
        pair.produce(payload, count=count)
    pair.settle()
    pair.new_sender(0)
    pair.deliver_handshake()
    return pair


FIRST = batch("a", "b"), batch("c", "d", "e")

REPLAYS: dict[str, list[tuple[bytes, int]]] = {
    "as before": [*FIRST],
    "in one batch": [batch("a", "b", "c", "d", "e")],
    "row by row": [batch(row) for row in "abcde"],
    "with others after them": [batch("a"), batch("b", "c", "d", "e", "f")],
}


@pytest.mark.parametrize("replayed", REPLAYS.values(), ids=REPLAYS)
def test_a_replay_that_cuts_its_output_elsewhere_has_repeated_the_last_row(replayed: list[tuple[bytes, int]]) -> None:
    pair = taken_from(*FIRST)
    for payload, count in replayed:
        pair.produce(payload, count=count)
    assert pair.sender.taken is not None
    assert pair.sender.take_divergence() is None


@pytest.mark.parametrize("last", ["x", 5, ("e",), None])
def test_another_last_row_is_a_divergence(last: Any) -> None:
    pair = taken_from(*FIRST)
    payload, count = batch("a", "b", "c", "d", last, "f")
    pair.produce(payload, count=count)
    assert pair.sender.take_divergence() == 4
    assert pair.sender.take_divergence() is None, "each row is compared once"


def test_a_barrier_in_the_place_of_a_row_is_a_divergence() -> None:
    pair = taken_from(batch("a"))
    pair.produce(b"", kind=ElementKind.BARRIER)
    assert pair.sender.take_divergence() == 0


def test_a_barrier_after_the_last_row_is_not_compared() -> None:
    pair = ChannelPair()
    pair.deliver_handshake()
    pair.produce(*batch("a")[:1])
    pair.produce(b"", kind=ElementKind.BARRIER)
    pair.settle()
    pair.new_sender(0)
    pair.deliver_handshake()
    assert pair.sender.taken is not None
    assert pair.sender.taken.seq == 0


def test_columns_in_the_place_of_a_row_are_not_compared() -> None:
    pair = taken_from(batch("a"))
    pair.produce(b"columns", kind=ElementKind.COLUMNS)
    assert pair.sender.take_divergence() is None


def test_a_row_that_the_log_of_the_sender_does_not_have_is_not_compared() -> None:
    pair = taken_from(batch("a"))
    assert pair.sender.take_divergence() is None


def test_a_receiver_reports_no_row_to_the_incarnation_that_has_sent_it() -> None:
    pair = ChannelPair()
    pair.deliver_handshake()
    pair.produce(*batch("a")[:1])
    pair.settle()
    pair.renew()
    assert pair.back[-1].taken is None


def test_rows_that_are_no_batch_are_not_compared() -> None:
    pair = taken_from((b"no batch", 1))
    assert pair.sender.taken is None
