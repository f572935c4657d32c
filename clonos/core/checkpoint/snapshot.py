"""Snapshots as objects of the checkpoint store: how they are encoded, and how a chain restores a state (protocol 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs

from clonos.core.model.errors import EnvironmentFault
from clonos.core.ports.operator_chain import Mirror
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.decoding import DECODE_ERRORS

SNAPSHOT_FORMAT = 1


class SnapshotMalformed(EnvironmentFault):
    """An object of the store is no snapshot."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the snapshot {self.name} is corrupt: {self.reason}."
            " Restore the object from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


STANDBY_BYTES_MAX = 256 << 20
"""A longer snapshot is not sent to standbys: they fetch it from the store, when its checkpoint is complete."""


class RestoredState(NamedTuple):
    """What a chain of snapshots adds up to: the last of them, without its changes, and the state."""

    snapshot: Snapshot
    mirror: Mirror


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)

_pieces_decoder = msgspec.msgpack.Decoder(tuple[bytes, ...])

encode_snapshot = _encoder.encode


def restore_from(objects: Iterable[tuple[str, Iterable[bytes | memoryview]]], mirror: Mirror) -> RestoredState:
    """Brings a chain of objects, oldest first, into an empty mirror. Each: its name and its pieces, of which the first
    is a snapshot and the others are further changes."""
    snapshot: Snapshot | None = None
    chain_length = 0
    for name, pieces in objects:
        chain_length += 1
        rest = iter(pieces)
        snapshot = decode_snapshot(next(rest, b""), name)
        if snapshot.changes:
            mirror.apply(snapshot.changes)
        for changes in rest:
            mirror.apply(changes)
    assert snapshot is not None, "a chain has at least one object"
    return RestoredState(structs.replace(snapshot, changes=b"", chain_length=chain_length), mirror)


def standby_payload(pieces: Sequence[bytes]) -> bytes:
    """The pieces of a snapshot as they travel to a standby; none and empty: it has to fetch them."""
    return _encoder.encode(pieces) if pieces else b""


def pieces_of_payload(payload: bytes | memoryview, name: str) -> tuple[bytes, ...]:
    """What ``standby_payload`` was given."""
    try:
        return _pieces_decoder.decode(payload)
    except DECODE_ERRORS as error:
        raise SnapshotMalformed(name, str(error)) from None


def decode_snapshot(data: bytes | memoryview, name: str) -> Snapshot:
    """The snapshot in ``data``; the store has checked its checksum already."""
    try:
        snapshot = _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise SnapshotMalformed(name, str(error)) from None
    if snapshot.format > SNAPSHOT_FORMAT:
        raise SnapshotMalformed(name, f"format {snapshot.format} is newer than {SNAPSHOT_FORMAT}: update clonos")
    return snapshot
