"""The snapshot of a task at a barrier, as one object of the checkpoint store."""

from __future__ import annotations

import msgspec

from clonos.core.errors import EnvironmentFault
from clonos.core.ids import ChannelId, CheckpointId, Incarnation, TaskId

SNAPSHOT_FORMAT = 1


class SnapshotMalformed(EnvironmentFault):
    """An object of the store is no snapshot."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the snapshot {self.name} is corrupt: {self.reason}."
            " Restore the object from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that a new incarnation needs besides the causal log.

    ``inputs``: per input channel the number of the first element behind the barrier; ``outputs``: per output channel
    the number of the next element behind it. ``ended``: input channels at end of stream. ``changes`` builds on the
    snapshot of ``previous``; -1 means that it is full. ``chain_length``: snapshots from the full one on.
    ``records_in``: what the task has taken in since the job's start. ``calls``: how often a source's task has called
    each service. ``journal_offset_bytes``: up to where a source's state has its journal, read or not.
    """

    format: int
    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    previous: CheckpointId
    inputs: tuple[tuple[ChannelId, int], ...]
    outputs: tuple[tuple[ChannelId, int], ...]
    ended: tuple[ChannelId, ...]
    log_offset_bytes: int
    instant_ns: int
    final: bool
    position: bytes
    changes: bytes
    chain_length: int = 1
    records_in: int = 0
    journal_offset_bytes: int = 0
    calls: tuple[tuple[str, int], ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)

encode_snapshot = _encoder.encode


def decode_snapshot(data: bytes | memoryview, name: str) -> Snapshot:
    """The snapshot in ``data``; the store has checked its checksum already."""
    try:
        snapshot = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotMalformed(name, str(error)) from None
    if snapshot.format > SNAPSHOT_FORMAT:
        raise SnapshotMalformed(name, f"format {snapshot.format} is newer than {SNAPSHOT_FORMAT}: update clonos")
    return snapshot
