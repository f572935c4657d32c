"""The corrupting relay: it passes all bytes, and corrupts only those of its own connections when told to."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random

import pytest

from clonos_chaos.real.relay import Relay, ThroughRelay

PEER = 7
SENT = bytes(range(256)) * 8


@pytest.fixture
def relay() -> Iterator[Relay]:
    with closing(Relay(Random(1))) as made:
        yield made


@contextmanager
def _connected(relay: Relay) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends with the relay between them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = ThroughRelay(relay.port)(PEER, f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port))) as near, listener.accept()[0] as far:
            yield near, far


def _received(far: socket.socket) -> bytes:
    far.settimeout(5)
    data = b""
    while len(data) < len(SENT):
        data += far.recv(4096)
    return data


def test_a_relay_corrupts_bytes_only_while_corruption_is_switched_on(relay: Relay) -> None:
    with _connected(relay) as (near, far):
        for every_bytes in (0, 100, 0):
            if every_bytes:
                relay.corrupt({os.getpid()}, (), every_bytes)
            else:
                relay.heal()
            near.sendall(SENT)
            assert (_received(far) != SENT) is bool(every_bytes)
    assert relay.flipped > 0


def test_a_relay_leaves_other_connections_unchanged(relay: Relay) -> None:
    relay.corrupt({os.getpid() + 1}, {PEER + 1}, 10)
    with _connected(relay) as (near, far):
        near.sendall(SENT)
        assert _received(far) == SENT
    assert relay.flipped == 0
