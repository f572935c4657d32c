"""Port between a task and the chain of operators of its vertex. ``clonos.operators`` implements the chain.

A chain is created for each incarnation. It is a deterministic function of the calls below and of what the ``Recorder``
returns: it reads no clock, queue or view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from clonos.core.model.ids import CheckpointId
from clonos.core.model.suspect import Suspect
from clonos.core.model.watermark import Watermark
from clonos.core.ports.recorder import Recorder
from clonos.core.ports.task_snapshot import SinkRows
from clonos.kernels.record_batch import RecordBatch

ROWS_AT_ONCE: Final = 512
"""Rows that pass all steps of a chain before the next ones do: what a step makes of them is still in the processor's
cache when the next step reads it, and its memory is used again for the next rows."""


class Collector(Protocol):
    """Receiver of a chain's output: gathers it during a step, partitions and encodes it at the end of the step."""

    def rows(
        self, port: int, rows: list[Any], keys: Sequence[Any] | None = None, times: Sequence[int] | None = None
    ) -> None:
        """Adds rows to every edge on ``port``, with one key per row if an edge partitions by hash, and one timestamp
        per row if the stream has them. The timestamps must not change until the end of the step.
        """

    def pairs(self, port: int, keys: list[Any], rows: list[Any], times: Sequence[int] | None = None) -> None:
        """Adds the pairs (key, row) in the same way."""

    def columns(self, port: int, batch: RecordBatch, groups: Any = None) -> None:
        """Adds a ``pyarrow.RecordBatch`` to every edge on ``port``.

        ``groups``: the key group of each row as integers in an array or a list, if an edge partitions by hash.
        """

    def watermark(self, port: int, watermark: Watermark) -> None:
        """Adds a watermark to every edge on ``port``, after what was added before; none to an external system."""

    def prepared(self, part: bytes) -> None:
        """Adds a part that the completed checkpoint will commit. For transactional sinks, in ``snapshot`` only."""

    def routed_error(self, description: bytes) -> bool:
        """Records, as a determinant, that an exception of user code was routed to the error output."""

    def reach_limit(self) -> None:
        """Notes that a limit lets nothing more through, so that the sources in front of it may end.

        It follows from the state: a restored chain notes it again.
        """


@dataclass(frozen=True, slots=True)
class ChainContext:
    """Context of a chain, passed to ``Chain.open``."""

    task_name: str
    vertex: int
    index: int
    parallelism: int
    max_parallelism: int
    job_id: str
    generation: int
    incarnation: int
    recorder: Recorder
    collector: Collector
    local_folder: str  # folder for temporary files of this incarnation; empty in the simulated world
    inline_bytes_max: int = 4 << 20  # changes up to this size are encoded at the barrier, larger ones afterwards
    is_shadow: bool = False  # the chain belongs to a shadow, which repeats its task's work in a standby's slot
    has_input: Callable[[], bool] = lambda: False  # whether input waits or may wait; for ``next_timer_ns`` only
    receivers: Mapping[int, int] = field(default_factory=dict)  # number of tasks at the edge of each output port
    checkpoint: CheckpointId = field(default=CheckpointId(0))  # it is restored from; 0: the start of the job


class Mirror(Protocol):
    """Image of a chain's state, which a standby keeps current and from which a new incarnation starts."""

    def apply(self, changes: bytes | memoryview) -> None:
        """Applies one piece of a snapshot's changes. Pieces come in order, and the first snapshot is full."""


class Pieces(Protocol):
    """State at a barrier that another thread encodes later, while the chain goes on."""

    def __iter__(self) -> Iterator[bytes]:
        """Yields pieces for ``Mirror.apply``, the same ones each time.

        Raises: ClonosError, if a part of the state has no encoding.
        """

    def release(self) -> None:
        """Releases the state, because no iteration follows."""


class ReadyPieces(tuple[bytes, ...]):
    """Pieces that are already encoded."""

    __slots__ = ()

    def release(self) -> None:
        """Does nothing, because there is nothing to release."""


class ChainSnapshot(NamedTuple):
    """State at a barrier.

    ``changes`` is the keyed state changed since the last call, or all of it if ``full`` was requested.

    ``position`` is the small remaining state, always complete: source positions and window cursors. Both are opaque to
    the core. ``more`` has further pieces of the changes if encoding them would delay the task.

    ``waiting`` has the names of state in which records wait, such as open calls: a change of widths needs it empty.

    ``sinks`` has what the sinks of a recorded task were given since the last call.
    """

    changes: bytes
    position: bytes
    more: Pieces | None = None
    waiting: tuple[str, ...] = ()
    sinks: tuple[SinkRows, ...] = ()


class NothingToRead(Enum):
    """Reply of a source that has no record to return."""

    NOW = auto()  # more may come later
    ALL_READ = auto()


class Chain(Protocol):
    """Fused operators of one vertex in one incarnation of a task."""

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        """Restores the state and opens the operators.

        The chain owns ``mirror``; it and ``position`` are None at the job's start. ``position`` is empty for a source
        that is new in a job that starts from a savepoint.
        """

    def process_rows(self, port: int, rows: list[Any], times: Sequence[int] | None = None) -> None:
        """Processes at most ``ROWS_AT_ONCE`` rows of a step, whose list the caller does not use again; ``port`` is the
        index of their edge among the vertex's input edges.

        ``times``: the timestamp of each row, in nanoseconds since the Unix epoch, if the stream has them.
        """

    def process_columns(self, port: int, batch: RecordBatch) -> None:
        """Processes one step's ``pyarrow.RecordBatch`` of an input edge."""

    def fire_timers(self, instant_ns: int) -> None:
        """Fires every processing-time timer that is due at ``instant_ns``, ordered by (time, registration)."""

    def next_timer_ns(self) -> int | None:
        """Returns when the earliest timer is due, or None without timers.

        Called where the log has ended only. It may depend on ``ChainContext.has_input``, which is not in the log; what
        ``fire_timers`` does must not.
        """

    def advance_watermark(self, watermark: Watermark) -> None:
        """Takes a change of the task's watermark: an instant above all earlier ones, idle, or active.

        Fires the event-time timers up to the instant by (time, index of the step, registration), then forwards it to
        ``Collector.watermark``. A step that may still emit earlier records holds it back. Never called by sources,
        whose head makes watermarks in ``read`` and ``fire_timers``.
        """

    def drain(self) -> None:
        """Emits the rows that wait without their key, because the tasks of the step may change at the next barrier.

        Called again when asynchronous calls that it requested are complete.
        """

    def end_of_input(self) -> None:
        """Emits what windows and timers of either kind still hold, because all inputs and event time have ended.

        Called again when asynchronous calls that it requested are complete.
        """

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        """Returns the state at the barrier of ``checkpoint``, or at the end of the stream, which has its own number."""

    def whole_state(self) -> Pieces | None:
        """Returns all keyed state as of ``snapshot``, which was called just before, or None if that is impossible
        now.
        """

    def suspects(self, step: str) -> tuple[Suspect, ...]:
        """Returns what may be the cause if a step does not repeat itself, the likeliest first; "": any step."""

    def close(self) -> None:
        """Closes files and connections, because the incarnation has ended for any reason."""

    # --- sources only

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        """Returns (split, n): a split and how many records can be read from it now, at most ``records_max``.

        0 records are the end of the split, if the chain wants it in the log. Changes only a read-ahead buffer; ``read``
        takes the records.
        """

    def read(self, split: int, count: int) -> None:
        """Takes exactly ``count`` records of ``split`` and processes them, the same ones at every replay."""


class JournalledChain(Chain, Protocol):
    """Chain of a source that cannot be read again. Its only split is its journal, and it reads what ``feed`` gave it.

    Its ``position`` contains the bytes that were fed and not read yet.
    """

    def feed(self, data: bytes) -> bool:
        """Adds the next bytes of the journal, whole records.

        Returns False if the journal has ended with or before them.
        """

    def unread_bytes(self) -> int:
        """Returns how many of the fed bytes are not read yet."""


class WatchingChain(Chain, Protocol):
    """Chain of a source that finds further splits while it runs."""

    def discover_splits(self, now_ns: int) -> bytes:
        """Returns a description of new splits of this task, empty if there are none or it is too early.

        Changes no other state.
        """

    def add_splits(self, splits: bytes) -> None:
        """Adds the splits that ``discover_splits`` described, in this or an earlier incarnation."""


class TimedChain(Chain, Protocol):
    """Chain of a source that makes watermarks."""

    def reached_ns(self) -> int:
        """Returns the minimum of the watermarks of the splits that are not idle and have not ended.

        INSTANT_NS_MIN while one of them has no watermark, END_OF_TIME_NS if there is no such split.
        """

    def hold_back(self) -> None:
        """Notes that nothing is read although there may be records, so that no split counts as idle."""


class CallingChain(Chain, Protocol):
    """Chain that makes asynchronous calls (``Recorder.submit``)."""

    def complete(self, number: int, outcome: bytes) -> None:
        """Processes the outcome of a call, encoded by ``call_outcomes.encode_outcome``."""

    def take_part(self, number: int, name: bytes, data: bytes) -> None:
        """Keeps a part of an open call, for a successor that makes the call again (``Recorder.submit``)."""


@dataclass(frozen=True, slots=True)
class FailedAt:
    """Place in a step where user code raised, as far as the chain knows; attached by ``StepFailed``."""

    step: str
    index: int | None  # index of the record in the step's input, None if unknown
    record: str


class StepFailed(Exception):
    """Exception that a chain raises when user code raised. The original exception is its ``__cause__``."""

    def __init__(self, at: FailedAt) -> None:
        super().__init__(at)
        self.at = at

    def move(self, passed: int | None) -> None:
        """Counts the record from ``passed`` elements before those that the chain was given; None: it is not one of the
        step's input."""
        index = self.at.index
        self.at = replace(self.at, index=None if index is None or passed is None else passed + index)
