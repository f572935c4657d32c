"""Events of the coordinator's machine, all frozen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.wire.control_messages import Register, SlotStatus, Snapshotted, Suspicion, View
from clonos.core.wire.recovery_messages import AnnounceStep, JournalLost, LogLost, SinkFenced, TaskFailed


@dataclass(frozen=True, slots=True)
class Begin:
    """The job shall start.

    ``slots_needed`` 0: as many as there are tasks, and at least 2 where a standby or keeper is wanted. ``versions``:
    what a slot must have (names missing here or there are not compared). ``can_spread``: the provider may deliver a
    slot in another domain, so waiting for one makes sense. ``awaits_slots``: slots of an earlier coordinator may live
    (protocol 9): listen to them for one lease before anything is decided.
    """

    term: int
    job_id: str
    slots_needed: int = 0
    resume: CheckpointMetadata | None = None
    versions: tuple[tuple[str, str], ...] = ()
    can_spread: bool = True
    awaits_slots: bool = False
    now_ns: int = 0


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
"""What a slot sends to the coordinator. ``View``: to a new coordinator, the one that it has installed."""


class Received(msgspec.Struct, frozen=True):
    """A message of a slot; ``slot`` is who sent it, as the transport knows."""

    slot: SlotId
    message: CoordinatorMessage
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class SlotGone:
    """The provider or a socket says that the slot's process has ended. For certain: nothing else is asked."""

    slot: SlotId
    reason: str
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class SlotUnreachable:
    """The coordinator's own connection to the slot broke; it may come back."""

    slot: SlotId
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class SlotRefused:
    """The provider cannot deliver a slot that was requested."""

    reason: str
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passes: at least once a heartbeat."""

    now_ns: int


class WriteOutcome(StrEnum):
    """What became of a checkpoint's metadata."""

    DURABLE = "durable"  # also when the entry was there already with equal bytes
    TAKEN = "taken"  # the chain's number is another's: somebody else is coordinator
    FAILED = "failed"  # not known to be there; it is written again


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """Outcome of ``WriteMetadata``."""

    checkpoint: CheckpointId
    outcome: WriteOutcome
    text: str = ""
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class OutputCommitted:
    """Outcome of ``CommitOutput``: all parts are visible."""

    checkpoint: CheckpointId
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class OutputCommitFailed:
    """Outcome of ``CommitOutput``: not all are; it is tried again."""

    checkpoint: CheckpointId
    text: str
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The user stops the job: with a last checkpoint (``drain``) or at once."""

    drain: bool
    now_ns: int = 0


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
    | StopAsked
)
