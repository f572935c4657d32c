"""Events of the coordinator's checkpoint machine (protocol 5)."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.wire.control_messages import Snapshotted


@dataclass(frozen=True, slots=True)
class CheckpointDue:
    """Event: a checkpoint begins now. ``widths``: those that steps have after it, if it is a cut; ``is_placed_anew``:
    all tasks are spread over the slots after it."""

    awake_ns: int
    then_pause: bool
    widths: tuple[tuple[str, int], ...] = ()
    is_placed_anew: bool = False


@dataclass(frozen=True, slots=True)
class CutGivenUp:
    """Event: no pending checkpoint is a cut any more; each counts as an ordinary one."""


@dataclass(frozen=True, slots=True)
class CheckpointHeld:
    """Event: the objects of the next checkpoint that completes, from ``number`` on, are kept for a request.
    ``metadata``: that of the checkpoint, if it is complete already."""

    request: int
    number: CheckpointId
    metadata: CheckpointMetadata | None = None


@dataclass(frozen=True, slots=True)
class HoldReleased:
    """Event: the request needs no objects any more."""

    request: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Event: a ``Snapshotted`` message arrived. The handler checks its incarnation."""

    message: Snapshotted


@dataclass(frozen=True, slots=True)
class Died:
    """Event: the incarnations of these tasks have ended."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    """Event: a new view with these incarnations. A new generation abandons all pending checkpoints."""

    generation: int
    incarnations: tuple[Incarnation | None, ...]


@dataclass(frozen=True, slots=True)
class Durable:
    """Event: the metadata is in the chain."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """Event: another coordinator has taken the number in the chain."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """Event: it is unknown whether the metadata is in the chain."""

    checkpoint: CheckpointId
    text: str
    awake_ns: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Event: time has passed. Pending checkpoints older than the timeout are abandoned."""

    awake_ns: int
    timeout_ns: int
