"""Effects of the coordinator's machine, all frozen: what its shell carries out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, VertexParts
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import InputRange


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
class RecoveryEvent:
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


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job has failed. For user errors with step, record, position and traceback; else these are empty."""

    blame: Blame
    reason: str
    task_name: str = ""
    step: str = ""
    record: str = ""
    at: InputRange | None = None
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
    | RecoveryEvent
    | JobDone
    | JobFailed
    | SlotsRefused
    | StoodDown
)
