"""Port between a slot's machine and the thread of one task: commands in, emissions out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.channel_messages import Mark


class Output(msgspec.Struct, frozen=True, gc=False):
    """Encoded elements for one channel."""

    channel: ChannelId
    kind: ElementKind
    count: int
    checkpoint: CheckpointId  # checkpoint of a barrier, else 0
    payload: bytes  # of a watermark, its content; empty for a barrier and the end


class TaskEmission(NamedTuple):
    """Task to slot, at the end of a step or in its middle. The log grows before the outputs that depend on it leave.

    ``consumed`` lists (channel, next sequence number, bytes freed). ``snapshot`` is set at a barrier or the end of the
    stream, ``more`` has further pieces of its changes. ``whole`` is the whole state at the same barrier, with which a
    new chain of snapshots begins.
    """

    log: bytes
    outputs: tuple[Output, ...] = ()
    consumed: tuple[tuple[ChannelId, int, int], ...] = ()
    snapshot: Snapshot | None = None
    prepared: tuple[bytes, ...] = ()
    records_in: int = 0
    journal_read_bytes: int = 0  # end of the part of its journal that a source has read
    cost_bytes: int = 0  # credit used on the channel that receives most, as credit counts
    more: Pieces | None = None
    whole: Pieces | None = None
    has_reached_limit: bool = False  # a limit of the task lets nothing more through, now or since an earlier step
    reached_ns: int | None = None  # lowest watermark of a source's splits, see ``operator_chain.TimedChain``
    mark: Mark | None = None  # rides with the outputs
    suspension: int = 0  # number of the suspension in which the task emits nothing more until it goes on; 0: none


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """Slot to task: elements of an input channel, the first ``skip`` of which were delivered before."""

    channel: ChannelId
    kind: ElementKind
    count: int
    skip: int
    checkpoint: CheckpointId
    payload: bytes | memoryview
    mark: Mark | None = None


class Triggered(NamedTuple):
    """Slot to a source task: put this barrier into the stream."""

    checkpoint: CheckpointId
    then_pause: bool
    then_end: bool = False


class ReadLimit(NamedTuple):
    """Slot to a source task: read nothing while your watermark is above this instant."""

    watermark_ns_max: int


class Journalled(NamedTuple):
    """Slot to a source task: the next bytes of its journal, possibly none, which every keeper holds."""

    data: bytes


class Finished(NamedTuple):
    """Shell to task: outcome of an asynchronous call, encoded by ``call_outcomes.encode_outcome``."""

    number: int
    outcome: bytes


class PartReported(NamedTuple):
    """Call to its task: a part of asynchronous call ``number``, as ``call_parts`` encodes it.

    ``logged``: called with True when the keepers have the log up to this part, or with False because the call is not
    open any more; None if the call does not wait for it.
    """

    number: int
    asked: int
    data: bytes
    logged: Callable[[bool], None] | None = None


class ReplayExtended(NamedTuple):
    """Slot to a shadow: further bytes of its task's log.

    ``is_all``: the task has died, these are the last bytes of its log, and the shadow becomes the next incarnation.
    """

    log: bytes
    is_all: bool = False
    is_single_step: bool = False


class Suspended(NamedTuple):
    """Slot to task: make no step after the open calls, because the task moves to another slot."""

    number: int  # of this suspension, from 1 on


class Resumed(NamedTuple):
    """Slot to task: go on, because the move was given up."""


class CutAt(NamedTuple):
    """Slot to task: make no step after the barrier of this checkpoint, because widths change there; 0: at none."""

    checkpoint: CheckpointId


class Stopped(NamedTuple):
    """Slot to task: this incarnation has ended, and nothing that it does counts any more."""


class BudgetChanged(NamedTuple):
    """Shell to task: the output budget may have room for a step again."""


Command = (
    Delivered
    | Triggered
    | ReadLimit
    | Journalled
    | Finished
    | PartReported
    | ReplayExtended
    | Suspended
    | Resumed
    | CutAt
    | Stopped
    | BudgetChanged
)


class Activation(NamedTuple):
    """Start of a thread that runs ``incarnation``, or (``is_shadow``) a shadow of it, whose log grows while it runs.

    ``log`` begins at ``log_offset_bytes`` and is all that holders had. ``journal`` begins where the snapshot says and
    is all that keepers had. ``external_seq`` is the number of the first output that the external system does not have.
    ``local_folder`` is for temporary files; the shell names it, and it is empty in the simulated world.
    """

    incarnation: Incarnation
    snapshot: Snapshot | None
    mirror: Mirror | None
    log: bytes
    log_offset_bytes: int
    generation: int
    is_single_step: bool
    job_id: str
    journal: bytes = b""
    is_shadow: bool = False
    external_seq: int = 0
    local_folder: str = ""


class TaskStopped(BaseException):
    """Raised inside a task's thread when its incarnation has ended.

    It is no Exception, so that user code does not catch it.
    """


class TaskPort(Protocol):
    """Port of a task thread, through which all of its effects go."""

    def receive(self, until_ns: int | None) -> Command | None:
        """Returns the next command, or None at the timestamp ``until_ns`` (None: no limit; 0: does not wait).

        Raises: TaskStopped, once the incarnation has ended.
        """

    def emit(self, emission: TaskEmission) -> None:
        """Hands over an emission without waiting."""

    def budget_bytes(self) -> int:
        """Returns how many bytes of credit the next step may use.

        With 0 or less no step may run until ``BudgetChanged``.
        """

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        """Requests credit for all elements below ``next_seq``, for which replay waits."""

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> None:
        """Blocks until new determinants may be recorded, where the log ends at these output positions.

        It waits until every receiver has said what it has received. ``accepted``: in what the replay has differed, if
        the job goes on in spite of that.

        Raises: TaskStopped, if the log is lost.
        """

    def await_replicated(self, log_end_bytes: int) -> None:
        """Blocks until the keepers hold this task's log up to ``log_end_bytes``, and the other logs that it holds."""

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Blocks until the coordinator knows which element a task in single-step mode takes next.

        ``channel`` None: a record of a source.
        """

    def open_journal(self) -> None:
        """Requests more input for the journal of a live source. It arrives as ``Journalled``."""

    def lose_journal(self) -> NoReturn:
        """Reports the journal as lost, because the log reads bytes that it does not have.

        Raises: TaskStopped, always.
        """

    def now_ns(self) -> int:
        """Returns the wall clock in ns since the Unix epoch, slewed so that it never runs backwards in a process."""

    def cost_clock_ns(self) -> int:
        """Returns a clock for measuring the cost of steps, constant in the simulated world."""

    def entropy(self, count: int) -> bytes:
        """Returns ``count`` random bytes, derived from the world's seed in the simulated world."""

    def perform(self, function: Any, key: str) -> object:
        """Runs an external call, ``function(key)``, for a causal service.

        The simulated world may let virtual time pass, or end the incarnation before or after.
        """

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        """Starts ``function(key)`` beside the task.

        Its outcome comes as ``Finished`` unless the incarnation ends before.
        """

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        """Hands a part of asynchronous call ``number`` to the task, from the thread of the call.

        ``waits``: blocks until the keepers have the part. Returns False if the call was not open any more.

        Raises: TaskStopped, once the incarnation has ended or ends its calls.
        """

    def end_calls(self) -> None:
        """Releases the calls that wait in ``report_part``, because the task has ended or failed."""

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        """Calls ``act`` when the keepers hold this task's log up to ``log_end_bytes``, and the other logs that it
        holds. The task goes on meanwhile."""


class TaskHandle(Protocol):
    """Handle of a started incarnation's thread or greenlet, for its slot."""

    def put(self, command: Command) -> None:
        """Queues a command without blocking."""
