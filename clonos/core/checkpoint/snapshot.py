"""The snapshot of a task at a barrier, as one object of the checkpoint store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.log_delta import Count

if TYPE_CHECKING:
    from clonos.core.ports.operator_chain import Mirror

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


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that a new incarnation needs besides the causal log.

    ``inputs``: per input channel the number of the first element behind the barrier; ``outputs``: per output channel
    the number of the next element behind it. ``ended``: input channels at end of stream. ``changes`` builds on the
    snapshot of ``previous``; without one it is full. ``chain_length``: objects that restore it; of one that was
    restored, as many as it took, since one that was to begin a new chain may never have been stored.
    ``records_in``: what the task has taken in since the job's start. ``calls``: how often a source's task has called
    each service. ``journal_offset_bytes``: up to where a source's state has its journal, read or not.
    """

    format: int
    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    previous: CheckpointId | None
    inputs: tuple[tuple[ChannelId, Count], ...]
    outputs: tuple[tuple[ChannelId, Count], ...]
    ended: tuple[ChannelId, ...]
    log_offset_bytes: Count
    instant_ns: Count
    final: bool
    position: bytes
    changes: bytes
    chain_length: Count = 1
    records_in: Count = 0
    journal_offset_bytes: Count = 0
    calls: tuple[tuple[str, Count], ...] = ()


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
