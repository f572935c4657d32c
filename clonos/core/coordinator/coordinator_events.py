"""Events of the coordinator's machine (protocol 5, 6, 8 and 9)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.wire.control_messages import Register, SlotStatus, Snapshotted, Suspicion, View
from clonos.core.wire.recovery_messages import AnnounceStep, JournalLost, LogLost, SinkFenced, TaskFailed


@dataclass(frozen=True, slots=True)
class Begin:
    """The job starts.

    ``slots_needed`` 0 stands for one slot per task, and at least 2 if standbys or keepers are wanted. ``versions`` is
    what a slot must have; names that either side lacks are not compared. ``can_spread``: the provider can deliver slots
    in another domain, so it makes sense to wait for one. ``awaits_slots``: slots of an earlier coordinator may live
    (protocol 9), so listen to them for one lease before deciding anything. ``named``: every slot that an earlier
    coordinator has had, so that the wait ends when all of them have answered or are known to be dead; empty if they are
    not known. ``registers``: how those of them registered that may live. ``only_adopts``: the job fails if no view can
    be taken over, so that its outputs can be prepared first. ``retained``: completed checkpoints before ``resume``
    whose objects are kept, ascending. ``driver_host``: the host of the coordinator's process, as its slots name theirs.
    """

    term: int
    job_id: str
    slots_needed: int = 0
    resume: CheckpointMetadata | None = None
    versions: tuple[tuple[str, str], ...] = ()
    can_spread: bool = True
    awaits_slots: bool = False
    named: tuple[SlotId, ...] = ()
    registers: tuple[Register, ...] = ()
    only_adopts: bool = False
    now_ns: int = 0
    retained: tuple[CheckpointMetadata, ...] = ()
    driver_host: str = ""


CoordinatorMessage = (
    Register
    | SlotStatus
    | Snapshotted
    | LogLost
    | JournalLost
    | SinkFenced
    | TaskFailed
    | AnnounceStep
    | Suspicion
    | View
)
"""Message from a slot to the coordinator. A slot sends a new coordinator the ``View`` that it has installed."""


class Received(msgspec.Struct, frozen=True):
    """A message arrived from ``slot``, its sender according to the transport."""

    slot: SlotId
    message: CoordinatorMessage
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class SlotGone:
    """The provider or a socket reports that the process of a slot has ended for certain. ``alive_ns``: when it gave its
    last sign of life (wall clock); 0: unknown."""

    slot: SlotId
    reason: str
    now_ns: int = 0
    alive_ns: int = 0


@dataclass(frozen=True, slots=True)
class SlotUnreachable:
    """The coordinator's own connection to the slot broke. It may come back. ``alive_ns``: as in ``SlotGone``."""

    slot: SlotId
    now_ns: int = 0
    alive_ns: int = 0


@dataclass(frozen=True, slots=True)
class SlotRefused:
    """The provider cannot deliver a slot that was requested."""

    reason: str
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. Sent at least once per heartbeat."""

    now_ns: int


class WriteOutcome(StrEnum):
    """Outcome of writing the metadata of a checkpoint."""

    DURABLE = "durable"  # also if the entry existed with equal bytes
    TAKEN = "taken"  # another coordinator has taken the number in the chain
    FAILED = "failed"  # unknown; it is written again


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """Outcome of ``WriteMetadata``."""

    checkpoint: CheckpointId
    outcome: WriteOutcome
    text: str = ""
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class OutputCommitted:
    """Outcome of ``CommitOutput``: all parts are committed."""

    checkpoint: CheckpointId
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class OutputCommitFailed:
    """Outcome of ``CommitOutput``: some parts are not committed; it is repeated.

    ``blame``: the party at fault if a repetition cannot help.
    """

    checkpoint: CheckpointId
    text: str
    now_ns: int = 0
    blame: Blame | None = None


@dataclass(frozen=True, slots=True)
class StateDivided:
    """Outcome of ``DivideState``: the checkpoint with the tasks of its widths; None: it failed.

    ``blame``: the party at fault if a repetition cannot help.
    """

    checkpoint: CheckpointId
    metadata: CheckpointMetadata | None
    text: str = ""
    now_ns: int = 0
    blame: Blame | None = None


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user stops the job, with a last checkpoint (``drain``) or at once.

    ``ends_start``: a stop that comes before the tasks run ends the start at once; else it waits until they run.
    """

    drain: bool
    now_ns: int = 0
    ends_start: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A checkpoint is wanted now. ``request``: number by which its objects are kept until ``CheckpointReleased``."""

    request: int
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointReleased:
    """The objects of a requested checkpoint need not be kept any more."""

    request: int
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class RescaleRequested:
    """Other widths are wanted, by the names of vertices. ``request``: number by which the outcome is asked for.

    ``is_placed_anew``: the tasks are spread over the slots that live at the switch, as at the start of a job. Without
    widths they are spread only. A task with a journal stays where it is.
    """

    request: int
    widths: tuple[tuple[str, int], ...]
    now_ns: int = 0
    is_placed_anew: bool = False


Event = (
    Begin
    | Received
    | SlotGone
    | SlotUnreachable
    | SlotRefused
    | Ticked
    | MetadataWritten
    | OutputCommitted
    | OutputCommitFailed
    | StateDivided
    | StopRequested
    | CheckpointRequested
    | CheckpointReleased
    | RescaleRequested
)
