"""Bytes of a snapshot, whole or damaged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clonos.core.checkpoint.snapshot import (
    SNAPSHOT_FORMAT,
    SnapshotMalformed,
    decode_snapshot,
    encode_snapshot,
    pieces_of_payload,
    standby_payload,
)
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.decoding import FormatUnknown

SNAPSHOT = Snapshot(
    SNAPSHOT_FORMAT,
    TaskId(1),
    Incarnation(7),
    CheckpointId(2),
    None,
    ((ChannelId(0), 17),),
    ((ChannelId(1), 4),),
    (),
    130,
    1_700_000_000_000_000_000,
    False,
    b"position",
    b"changes",
    calls=(("ask", 3),),
)
TOO_LARGE = 1 << 62
DEEP = b"\x91" * 5_000 + b"\xc0"


def test_a_snapshot_is_decoded_as_it_was_encoded() -> None:
    assert decode_snapshot(memoryview(encode_snapshot(SNAPSHOT)), "a/1") == SNAPSHOT
    assert pieces_of_payload(standby_payload([b"one", b""]), "a/1") == (b"one", b"")


@pytest.mark.parametrize("number", [SNAPSHOT_FORMAT - 1, SNAPSHOT_FORMAT + 1])
def test_a_snapshot_of_another_format_is_refused_by_its_number_whatever_follows(number: int) -> None:
    with pytest.raises(FormatUnknown, match=f"the snapshot a/1 has format {number}, .* reads format {SNAPSHOT_FORMAT}"):
        decode_snapshot(msgspec.msgpack.encode([number, "surprise"]), "a/1")


@pytest.mark.parametrize("number", [-1, TOO_LARGE, (1 << 64) - 1])
@pytest.mark.parametrize(
    "changes",
    [
        lambda number: {"inputs": ((ChannelId(0), number),)},
        lambda number: {"outputs": ((ChannelId(0), number),)},
        lambda number: {"log_offset_bytes": number},
        lambda number: {"instant_ns": number},
        lambda number: {"chain_length": number},
        lambda number: {"records_in": number},
        lambda number: {"journal_offset_bytes": number},
        lambda number: {"calls": (("ask", number),)},
    ],
    ids=["inputs", "outputs", "log", "instant", "chain", "records", "journal", "calls"],
)
def test_a_number_from_which_no_task_can_resume_is_malformed(changes: Any, number: int) -> None:
    data = encode_snapshot(msgspec.structs.replace(SNAPSHOT, **changes(number)))
    with pytest.raises(SnapshotMalformed, match="the snapshot a/1 is corrupt"):
        decode_snapshot(data, "a/1")


@pytest.mark.parametrize("data", [b"", DEEP, b"\x91" + DEEP, encode_snapshot(SNAPSHOT)[:-1]])
def test_arbitrary_bytes_decode_to_a_snapshot_or_are_malformed(data: bytes) -> None:
    with pytest.raises(SnapshotMalformed):
        decode_snapshot(data, "a/1")
    with pytest.raises(SnapshotMalformed):
        pieces_of_payload(data, "a/1")
