"""Effects of the coordinator's machine, which its shell performs (protocol 5, 6, 8 and 9)."""

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
    """Send a message to a slot. It may be lost, because every message that needs a reply is repeated."""

    slot: SlotId
    message: Message


@dataclass(frozen=True, slots=True)
class RequestSlots:
    """Request slots from the provider, preferably outside these domains."""

    count: int
    avoid_domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WithdrawRequests:
    """Let the provider withdraw the requests for slots that wait for a free core. A slot that comes all the same is
    welcome."""


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """Let the provider end the process of this slot, which is not used again."""

    slot: SlotId
    reason: str


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Create the chain's next entry if absent, possibly again with the same metadata. Answered by
    ``MetadataWritten``.
    """

    metadata: CheckpointMetadata


@dataclass(frozen=True, slots=True)
class CommitOutput:
    """Commit prepared output in the driver. May be repeated with the same arguments; never two at a time."""

    checkpoint: CheckpointId
    parts: tuple[VertexParts, ...]


@dataclass(frozen=True, slots=True)
class DivideState:
    """Divide the state of a cut among the tasks of its widths. Answered by ``StateDivided``; may be repeated."""

    metadata: CheckpointMetadata


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete objects that neither of the last two checkpoints needs. Missing ones are no error."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Report a problem to the operator, with its numbers. The job goes on.

    ``is_routine``: another report follows or was made, which says more.
    """

    text: str
    fields: tuple[tuple[str, str | int], ...] = ()
    is_routine: bool = False


class Milestone(StrEnum):
    """Milestone of a recovery, in this order. Later ones are missing if the task fails again.

    FAILED is when the process gave its last sign of life, if that is known. It is told with DETECTED.
    """

    FAILED = "failed"
    DETECTED = "detected"
    VIEW = "view"
    GATHERED = "gathered"
    REPLAYED = "replayed"
    CAUGHT_UP = "caught_up"


@dataclass(frozen=True, slots=True)
class RecoveryEvent:
    """Entry of the recovery timeline. ``incarnation`` is the failed one for DETECTED, else the new one."""

    milestone: Milestone
    now_ns: int
    task: int
    incarnation: int
    cause: str
    name: str  # of the task, whose number may mean another one after a change of widths


class Ending(StrEnum):
    """Way in which a job ended that did not fail."""

    FINISHED = "finished"  # all input is processed and all output committed
    DRAINED = "drained"  # stopped with a last checkpoint, whose output is committed
    ABORTED = "aborted"  # stopped at once; a resume continues from the last checkpoint


@dataclass(frozen=True, slots=True)
class JobDone:
    """The job has ended; ``checkpoint`` is the last completed one."""

    ending: Ending
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job has failed. Step, record, position and traceback are set for errors of user code only.

    ``frames`` are the frames of user code, ``advice`` says what to do.
    ``epoch``: where the epoch of the task is kept, or why it is not.
    """

    blame: Blame
    reason: str
    task_name: str = ""
    step: str = ""
    record: str = ""
    at: InputRange | None = None
    error: str = ""
    traceback: str = ""
    frames: str = ""
    advice: str = ""
    epoch: str = ""


@dataclass(frozen=True, slots=True)
class SlotsRefused:
    """Too few slots registered in time; ``JobFailed`` follows."""

    needed: int
    got: int
    text: str


@dataclass(frozen=True, slots=True)
class StoodDown:
    """Another coordinator has taken over, so this one sends nothing more."""

    checkpoint: CheckpointId


Effect = (
    Send
    | RequestSlots
    | WithdrawRequests
    | ReleaseSlot
    | WriteMetadata
    | CommitOutput
    | DivideState
    | DeleteObjects
    | Alarm
    | RecoveryEvent
    | JobDone
    | JobFailed
    | SlotsRefused
    | StoodDown
)
