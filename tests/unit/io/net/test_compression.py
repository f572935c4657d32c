"""Compressed payloads: what is compressed, what is not, and what a receiver refuses."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.options import Compression
from clonos.core.wire import message_codec
from clonos.core.wire.channel_messages import Batch
from clonos.io.net.compression import (
    COMPRESSED_BYTES_MIN,
    CONTENT_BYTES_MAX,
    INCOMPRESSIBLE_SKIPPED,
    IS_COMPRESSED,
    Compressor,
    applies_between,
    decompress,
)
from clonos.io.net.connection import PeerConnection
from clonos.io.net.frames import flags_of, pack
from clonos.io.net.peers import Plane
from tests.unit.io.net.test_transport import batch, update
from tests.unit.io.net.transports import Station, connection_to, poll_until

REPETITIVE = b"a word and another " * 1_000
HERE, THERE = "tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000"


@given(st.binary(max_size=50), st.integers(0, 2_000), st.booleans())
def test_a_compressed_payload_is_decompressed_unchanged(piece: bytes, times: int, as_view: bool) -> None:
    content = piece * times
    payload, flags = Compressor().compress(memoryview(content) if as_view else content)
    assert (decompress(payload, "a peer") if flags & IS_COMPRESSED else payload) == content
    assert len(payload) <= len(content)


def test_a_very_short_or_long_payload_is_sent_uncompressed() -> None:
    for size in (COMPRESSED_BYTES_MIN - 1, CONTENT_BYTES_MAX + 1):
        payload = bytes(size)
        assert Compressor().compress(payload) == (payload, 0)
    for size in (COMPRESSED_BYTES_MIN, CONTENT_BYTES_MAX):
        assert Compressor().compress(bytes(size))[1] == IS_COMPRESSED


def test_compression_is_skipped_for_some_payloads_after_an_incompressible_one() -> None:
    compressor, incompressible = Compressor(), Random(1).randbytes(10_000)
    assert compressor.compress(incompressible) == (incompressible, 0)
    tried = [compressor.compress(REPETITIVE)[1] for _ in range(INCOMPRESSIBLE_SKIPPED + 2)]
    assert tried == [0] * INCOMPRESSIBLE_SKIPPED + [IS_COMPRESSED] * 2


@pytest.mark.parametrize(
    ("compress", "own", "peer", "applies"),
    [
        (Compression.REMOTE, HERE, THERE, True),
        (Compression.REMOTE, HERE, "tcp://10.0.0.1:5000", False),
        (Compression.REMOTE, "tcp://[fe80::1]:4000", "tcp://[fe80::2]:4000", True),
        (Compression.REMOTE, "tcp://[fe80::1]:4000", "tcp://[fe80::1]:5000", False),
        (Compression.REMOTE, "ipc:///tmp/a/data", "ipc:///tmp/b/data", False),
        (Compression.REMOTE, HERE, "", False),
        (Compression.NEVER, HERE, THERE, False),
        (Compression.ALWAYS, "ipc:///tmp/a/data", "ipc:///tmp/b/data", True),
    ],
)
def test_channels_to_other_hosts_are_compressed_unless_the_option_is_never(
    compress: Compression, own: str, peer: str, applies: bool
) -> None:
    assert applies_between(compress, own, peer) is applies


@pytest.fixture
def sent_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each payload that was handed to a connection."""
    sizes: list[int] = []
    send = PeerConnection.send

    def watched(connection: PeerConnection, packets: Any) -> bool:
        sizes.extend(len(payload) for _, payload in packets)
        return send(connection, packets)

    monkeypatch.setattr(PeerConnection, "send", watched)
    return sizes


def _exchange(one: Station, other: Station) -> None:
    one.knows(other)
    other.knows(one)
    one.send(other, batch(1), REPETITIVE)
    poll_until(lambda: other.received, one, other)
    assert other.received == [(1, batch(1), REPETITIVE)]


def test_elements_to_another_host_arrive_unchanged_in_fewer_bytes(stations: Any, sent_sizes: list[int]) -> None:
    remote = {"compress": Compression.REMOTE}
    _exchange(stations(1, **remote), stations(2, host="127.0.0.2", **remote))
    assert 0 < sent_sizes[0] < len(REPETITIVE) // 10


def test_elements_on_one_host_and_control_messages_are_sent_uncompressed(stations: Any, sent_sizes: list[int]) -> None:
    one, other = (stations(slot, compress=Compression.REMOTE) for slot in (1, 2))
    _exchange(one, other)
    assert sent_sizes == [len(REPETITIVE)]
    always, receiver = (stations(slot, compress=Compression.ALWAYS) for slot in (1, 2))
    always.knows(receiver)
    always.send(receiver, update(1), REPETITIVE)
    assert sent_sizes == [len(REPETITIVE)] * 2


def test_a_peer_that_moves_to_this_host_or_leaves_is_sent_nothing_compressed(
    stations: Any, sent_sizes: list[int]
) -> None:
    one = stations(1, compress=Compression.REMOTE)
    far, near = stations(2, host="127.0.0.2"), stations(2)

    def sent_bytes() -> int:
        one.send(far, batch(1), REPETITIVE)
        return sum(sent_sizes[-1:])

    one.knows(far)
    assert 0 < sent_bytes() < len(REPETITIVE) // 10
    one.knows(near)
    assert sent_bytes() == len(REPETITIVE)
    one.knows(far)
    one.transport.retain_peers(())
    sent_sizes.clear()
    assert sent_bytes() == 0
    one.knows(near)
    assert sent_bytes() == len(REPETITIVE)


# ------------------------------------------------------------------ malformed payloads


def _claiming(content_bytes: int, block: bytes) -> bytes:
    return struct.pack("<I", content_bytes) + block


BOMB_BYTES = 4 * CONTENT_BYTES_MAX
BOMB = lz4.block.compress(bytes(BOMB_BYTES), store_size=False)


@pytest.mark.parametrize("content_bytes", [CONTENT_BYTES_MAX + 1, BOMB_BYTES, (1 << 32) - 1])
def test_a_payload_with_more_content_than_the_limit_is_refused_before_it_is_decompressed(
    content_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(lz4.block, "decompress")
    with pytest.raises(MessageMalformed, match=f"a peer is malformed.* claims {content_bytes} bytes.*the limit"):
        decompress(_claiming(content_bytes, BOMB), "a peer")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"abc",
        _claiming(100, BOMB),  # more comes out than is claimed
        _claiming(CONTENT_BYTES_MAX, lz4.block.compress(b"short", store_size=False)),  # less does
        _claiming(0, BOMB),
        _claiming(100, b"no block"),
    ],
)
def test_a_payload_that_contradicts_its_header_is_malformed(payload: bytes) -> None:
    with pytest.raises(MessageMalformed, match="a peer is malformed: a compressed payload"):
        decompress(payload, "a peer")


def test_a_compressed_payload_that_is_malformed_costs_its_connection(stations: Any) -> None:
    one, other = stations(1), stations(2)
    _exchange(one, other)
    connection = connection_to(one, other.slot, Plane.DATA)
    for number, payload in enumerate((_claiming(100, BOMB), REPETITIVE), start=2):
        frame = pack(one.slot, message_codec.encode_message(batch(number)), payload, (IS_COMPRESSED, 0)[number > 2])
        assert bool(flags_of(frame) & IS_COMPRESSED) == (number == 2)
        connection.send([(frame, payload)])

    def was_reset() -> bool:
        one.transport.tick()
        return bool(one.back)

    poll_until(was_reset, one, other)
    assert len(other.received) == 1  # what follows on the broken connection is not believed
    one.send(other, batch(4), REPETITIVE)
    poll_until(lambda: len(other.received) == 2, one, other)
    assert isinstance(other.received[1][1], Batch)
