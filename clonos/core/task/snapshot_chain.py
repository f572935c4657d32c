"""The chain of snapshots that one incarnation takes: which one the next builds on, and how many restore it."""

from __future__ import annotations

from typing import NamedTuple

from clonos.core.model.ids import CheckpointId
from clonos.core.ports.operator_chain import ChainSnapshot, Pieces
from clonos.core.ports.task_snapshot import Snapshot


class Taken(NamedTuple):
    """State at a barrier or at the end of the stream."""

    changes: ChainSnapshot
    whole: Pieces | None
    is_final: bool


class SnapshotChain:
    """Goes on from the snapshot that was restored, if any."""

    __slots__ = ("_previous", "length")

    def __init__(self, restored: Snapshot | None) -> None:
        self._previous = restored.checkpoint if restored else None
        self.length = restored.chain_length if restored else 0  # objects that restore the latest snapshot

    @property
    def is_empty(self) -> bool:
        """The next snapshot is the first one: it has to be full."""
        return self._previous is None

    def is_long(self, length_max: int) -> bool:
        """Whether a new chain is due: the latest snapshot takes ``length_max`` objects to restore."""
        return not self.is_empty and self.length >= length_max

    def append(self, checkpoint: CheckpointId, is_whole: bool) -> CheckpointId | None:
        """Adds a snapshot; returns the checkpoint of the one that it builds on. ``is_whole``: all of the state is
        stored beside it, and later ones build on that."""
        is_base = self.is_empty or is_whole
        previous, self._previous = self._previous, checkpoint
        self.length = 1 if is_base else self.length + 1
        return previous
