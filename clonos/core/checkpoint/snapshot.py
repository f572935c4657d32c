"""Snapshot of a task at a barrier, stored as one object of the checkpoint store (protocol 5)."""

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
    """Error for an object of the store that is no valid snapshot."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the snapshot {self.name} is corrupt: {self.reason}."
            " Restore the object from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """State from which a new incarnation starts, together with the causal log.

    ``inputs`` has, per input channel, the number of the first element after the barrier; ``outputs``, per output
    channel, the number of the next element after it. ``ended`` lists the input channels at end of stream. ``changes``
    builds on the snapshot of ``previous`` and is full without one. ``chain_length`` is the number of objects that
    restore it, including those of a chain that was restored, because the start of a new chain may never have been
    stored. ``records_in`` counts the task's input since the job's start. ``calls`` counts the calls of a source's task
    per service. ``journal_offset_bytes`` is the end of the part of the journal that the state contains, read or not.
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
"""Maximum size of a snapshot that is sent to standbys. They fetch a larger one from the store when its checkpoint
completes.
"""


class RestoredState(NamedTuple):
    """Result of restoring a chain of snapshots: the last one, without its changes, and the state."""

    snapshot: Snapshot
    mirror: Mirror


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)

_pieces_decoder = msgspec.msgpack.Decoder(tuple[bytes, ...])

encode_snapshot = _encoder.encode


def restore_from(objects: Iterable[tuple[str, Iterable[bytes | memoryview]]], mirror: Mirror) -> RestoredState:
    """Applies a chain of objects, oldest first, to an empty mirror.

    Each object is a name and its pieces: first a snapshot, then further changes.
    """
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
    """Returns the pieces of a snapshot as sent to a standby.

    Without pieces it is empty, and the standby fetches them.
    """
    return _encoder.encode(pieces) if pieces else b""


def pieces_of_payload(payload: bytes | memoryview, name: str) -> tuple[bytes, ...]:
    """Returns the pieces that ``standby_payload`` was given.

    Raises: SnapshotMalformed, if the payload is no list of pieces.
    """
    try:
        return _pieces_decoder.decode(payload)
    except DECODE_ERRORS as error:
        raise SnapshotMalformed(name, str(error)) from None


def decode_snapshot(data: bytes | memoryview, name: str) -> Snapshot:
    """Returns the snapshot in ``data``, whose checksum the store has verified.

    Raises: SnapshotMalformed, if the bytes are no snapshot or have a newer format.
    """
    try:
        snapshot = _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise SnapshotMalformed(name, str(error)) from None
    if snapshot.format > SNAPSHOT_FORMAT:
        raise SnapshotMalformed(name, f"format {snapshot.format} is newer than {SNAPSHOT_FORMAT}: update clonos")
    return snapshot
