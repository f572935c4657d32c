"""Chain of the snapshots that one incarnation takes: what each builds on, and how many restore it (protocol 5)."""

from __future__ import annotations

from typing import NamedTuple

from clonos.core.model.ids import CheckpointId
from clonos.core.ports.operator_chain import ChainSnapshot, Pieces, ReadyPieces
from clonos.core.ports.task_snapshot import Snapshot


class Taken(NamedTuple):
    """State taken at a barrier or at the end of the stream."""

    changes: ChainSnapshot
    whole: Pieces | None
    is_final: bool


def encode_now(changes: ChainSnapshot) -> ChainSnapshot:
    """Encodes what another thread would encode later, so that the state does not stay frozen."""
    if changes.more is None:
        return changes
    ready = ReadyPieces(changes.more)
    changes.more.release()
    return changes._replace(more=ready)


class SnapshotChain:
    """Chain that continues from the restored snapshot, if there is one."""

    __slots__ = ("_previous", "length")

    def __init__(self, restored: Snapshot | None) -> None:
        self._previous = restored.checkpoint if restored else None
        self.length = restored.chain_length if restored else 0  # number of objects that restore the latest snapshot

    @property
    def is_empty(self) -> bool:
        """Whether the next snapshot is the first and must be full."""
        return self._previous is None

    def is_long(self, length_max: int) -> bool:
        """Returns whether a new chain is due, because restoring the latest snapshot takes ``length_max`` objects."""
        return not self.is_empty and self.length >= length_max

    def append(self, checkpoint: CheckpointId, is_whole: bool) -> CheckpointId | None:
        """Adds a snapshot and returns the checkpoint that it builds on.

        ``is_whole``: the whole state is stored beside it, and later snapshots build on that.
        """
        is_base = self.is_empty or is_whole
        previous, self._previous = self._previous, checkpoint
        self.length = 1 if is_base else self.length + 1
        return previous
