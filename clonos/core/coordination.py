"""What the coordinator's machine is told and what it asks for: its events and effects, all frozen.

Every event may bear the instant of its arrival (``now_ns``, wall clock, for the timeline of recoveries); durations are
counted by ``Ticked`` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, VertexParts
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.wire.control_messages import Accusation, Register, SlotStatus, Snapshotted, View
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import Approaching, LogLost, TaskFailed

# ------------------------------------------------------------------ events


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


CoordinatorMessage = Register | SlotStatus | Snapshotted | LogLost | TaskFailed | Approaching | Accusation | View
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

# ------------------------------------------------------------------ effects


class Send(msgspec.Struct, frozen=True):
    """To a slot. May be lost: whatever wants an answer is repeated."""

    slot: SlotId
    message: Message


@dataclass(frozen=True, slots=True)
class RequestSlots:
    """Ask the provider for more slots, preferably in none of these domains."""

    count: int
    avoid_domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """The provider shall see to it that this slot's process ends; it is not used again."""

    slot: SlotId
    reason: str


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Create the chain's next entry if absent; ``MetadataWritten`` answers. May come again with the same metadata."""

    metadata: CheckpointMetadata


@dataclass(frozen=True, slots=True)
class CommitOutput:
    """Make prepared output visible, in the driver; may come again with the same arguments. Never two at a time."""

    checkpoint: CheckpointId
    parts: tuple[VertexParts, ...]


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Objects that neither of the last two checkpoints needs; one that is missing already is no error."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that an operator should know, with its numbers; the job goes on."""

    text: str
    fields: tuple[tuple[str, str | int], ...] = ()


class Milestone(StrEnum):
    """What happens in a recovery, in this order; later ones may be missing when the task fails again."""

    DETECTED = "detected"
    VIEW = "view"
    GATHERED = "gathered"
    REPLAYED = "replayed"
    CAUGHT_UP = "caught_up"


@dataclass(frozen=True, slots=True)
class Told:
    """An entry of the recovery timeline. ``incarnation``: the one that failed for DETECTED, else the new one."""

    milestone: Milestone
    now_ns: int
    task: int
    incarnation: int
    cause: str


class Ending(StrEnum):
    """How a job that did not fail has ended."""

    FINISHED = "finished"  # all input was processed, all output is committed
    DRAINED = "drained"  # stopped with a last checkpoint, whose output is committed
    ABORTED = "aborted"  # stopped at once: resume goes on from the last checkpoint


@dataclass(frozen=True, slots=True)
class JobDone:
    """The job has ended; ``checkpoint`` is the last complete one."""

    ending: Ending
    checkpoint: CheckpointId


class Fault(StrEnum):
    """Whose fault a failed job is; see ``clonos.core.model.errors``."""

    JOB = "job"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job has failed. For user errors with step, record, channel, position and traceback; else these are empty."""

    fault: Fault
    reason: str
    task_name: str = ""
    step: str = ""
    record: str = ""
    channel: int = -1
    first_seq: int = -1
    count: int = 0
    error: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class SlotsRefused:
    """Too few slots came in time; ``JobFailed`` follows."""

    needed: int
    got: int
    text: str


@dataclass(frozen=True, slots=True)
class StoodDown:
    """Somebody else is coordinator: this one does nothing more, to nobody."""

    checkpoint: CheckpointId


Effect = (
    Send
    | RequestSlots
    | ReleaseSlot
    | WriteMetadata
    | CommitOutput
    | DeleteObjects
    | Alarm
    | Told
    | JobDone
    | JobFailed
    | SlotsRefused
    | StoodDown
)
