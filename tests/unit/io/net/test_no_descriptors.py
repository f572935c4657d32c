"""A process without a free file descriptor opens its connections later and keeps running."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from clonos.core.model.ids import SlotId, ViewNumber
from clonos.core.wire.control_messages import Suspicion
from tests.unit.io.net.transports import poll_turns, poll_until


def suspicion(number: int) -> Suspicion:
    return Suspicion(SlotId(number), SlotId(0), ViewNumber(0), False)


@contextmanager
def no_descriptor_left() -> Iterator[Callable[[], None]]:
    """Within it, whatever wants one more file descriptor is refused; the call takes what has become free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))

    def take_all() -> None:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))

    try:
        take_all()
        yield take_all
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_a_first_connection_is_opened_once_descriptors_are_available(
    stations: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = stations(1), stations(2)
    one.knows(other)
    other.knows(one)
    with caplog.at_level(logging.WARNING), no_descriptor_left():
        one.send(other, suspicion(1))
        poll_turns(20, one, other)
        one.send(other, suspicion(2))
    assert not one.gone
    poll_until(lambda: len(other.received) == 2, one, other)
    assert [message.slot for _, message, _ in other.received] == [1, 2]
    assert "slot 0000000000000002 cannot be opened: Too many open files. Retrying" in caplog.text


def test_a_broken_connection_is_reopened_once_descriptors_are_available(stations: Any) -> None:
    one, other = stations(1), stations(2)
    one.knows(other)
    other.knows(one)
    one.send(other, suspicion(1))
    poll_until(lambda: other.received, one, other)
    again = other.address_again()
    other.close()
    with no_descriptor_left() as take_all:
        poll_until(lambda: one.transport._peers.reopens_at_ms() is not None, one)
        take_all()
        poll_turns(20, one)
    revived = again()
    try:
        revived.knows(one)
        poll_until(lambda: one.back, one, revived)
        one.send(revived, suspicion(2))
        poll_until(lambda: revived.received, one, revived)
    finally:
        revived.close()


@pytest.mark.parametrize("address", ["no address", "tcp://", "tcp://host:port", "inproc://zeromq.zap.01"])
def test_an_invalid_address_does_not_end_the_transport(stations: Any, address: str) -> None:
    one, other = stations(1), stations(2)
    one.transport.add_peer(other.transport.address._replace(control_address=address))
    one.send(other, suspicion(1))
    poll_turns(20, one)
    one.transport.add_peer(other.transport.address)
    other.knows(one)
    one.send(other, suspicion(2))
    poll_until(lambda: other.received, one, other)


def test_more_than_a_thousand_sockets_can_be_opened(stations: Any) -> None:
    one, other = stations(1), stations(2)
    other.knows(one)
    peers = [other.transport.address._replace(slot=SlotId(10 + number)) for number in range(400)]  # three sockets each
    for peer in peers:
        one.transport.add_peer(peer)
        one.send(peer.slot, suspicion(peer.slot))
    poll_until(lambda: len(other.received) == len(peers), one, other)
