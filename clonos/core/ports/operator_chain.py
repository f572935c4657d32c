"""What the core asks of a vertex's chain of operators, and what it offers it.

A chain is created anew for each incarnation. It is a deterministic function of the calls below and of what it gets
from the ``Recorder``: it never looks at a clock, a queue or a view. Implemented by ``clonos.operators``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from clonos.core.ports.recorder import Recorder


class Collector(Protocol):
    """Where a chain puts its output; gathered over a step, partitioned and encoded at its end."""

    def rows(self, port: int, rows: list[Any], keys: Sequence[Any] | None = None) -> None:
        """Rows for every edge on ``port``; ``keys``, one a row, where an edge partitions by hash."""

    def columns(self, port: int, batch: Any, keys: Sequence[Any] | None = None) -> None:
        """A ``pyarrow.RecordBatch`` for every edge on ``port``."""

    def prepared(self, part: bytes) -> None:
        """A transactional sink, in ``snapshot`` only: what the completed checkpoint shall commit."""

    def routed_error(self, description: bytes) -> bool:
        """Records that an exception of user code was routed to the error output (a determinant of its own)."""


@dataclass(frozen=True, slots=True)
class ChainContext:
    """Handed to ``Chain.open``."""

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
    local_folder: str  # for temporary files of this incarnation; empty in the simulated world
    inline_bytes_max: int = 4 << 20  # what a barrier makes bytes itself
    is_shadow: bool = False  # it does again in a standby's slot what its task has done


class Mirror(Protocol):
    """A passive image of a chain's state: what a standby keeps current and a new incarnation starts from."""

    def apply(self, changes: bytes | memoryview) -> None:
        """Brings in one snapshot's changes, piece by piece, in order; the first one is full."""


class Pieces(Protocol):
    """State at a barrier that becomes bytes later, in another thread, while the chain goes on."""

    def __iter__(self) -> Iterator[bytes]:
        """Each can be given to a ``Mirror``; the same ones each time. ClonosError: something in it cannot be kept."""

    def release(self) -> None:
        """Nobody iterates any more."""


class ReadyPieces(tuple[bytes, ...]):
    """Pieces that are bytes already."""

    __slots__ = ()

    def release(self) -> None:
        """There is nothing to be released."""


class ChainSnapshot(NamedTuple):
    """State at a barrier. ``changes``: of the keyed state since the last call (or all of it, where ``full`` was asked).

    ``position``: the small rest, always whole: source positions, window cursors. Both bytes are opaque to the core.
    ``more``: further pieces of the changes, where there are so many that the task does not wait for their bytes.
    """

    changes: bytes
    position: bytes
    more: Pieces | None = None


class NothingToRead(Enum):
    """What a source answers that has no record to give."""

    NOW = auto()  # more may come
    ALL_READ = auto()


class Chain(Protocol):
    """One vertex's fused operators in one incarnation of one task."""

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        """Restores and opens. ``mirror`` and ``position`` are None at the job's start. The mirror is its own now."""

    def process_rows(self, port: int, rows: list[Any]) -> None:
        """One step's elements of an input edge; ``port`` is that edge's position among the vertex's input edges."""

    def process_columns(self, port: int, batch: Any) -> None:
        """The same for a ``pyarrow.RecordBatch``."""

    def fire_timers(self, instant_ns: int) -> None:
        """Fires every processing-time timer that is due at ``instant_ns``, in the order (time, registration)."""

    def next_timer_ns(self) -> int | None:
        """When the earliest timer is due; None without one."""

    def end_of_input(self) -> None:
        """All inputs have ended: emit what windows still hold. Called again where that asked for asynchronous calls,
        when they are complete."""

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        """State at the barrier of ``checkpoint`` (0 at the end of the stream too has its own number)."""

    def whole_state(self) -> Pieces | None:
        """All of the keyed state as of ``snapshot``, which was called just before. None: not now."""

    def close(self) -> None:
        """The incarnation ends, for whatever reason; releases files and connections."""

    # --- sources only

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        """What could be read now, at most ``records_max`` records: (split, n).

        Changes nothing but a read-ahead buffer; what is taken is decided by ``read``."""

    def read(self, split: int, count: int) -> None:
        """Takes exactly ``count`` records of ``split`` and runs them through the chain; the same at every replay."""


class JournalledChain(Chain, Protocol):
    """The chain of a source that cannot be re-read: it has one split, its journal, and reads what it was fed.

    Its ``position`` has what is fed and not read yet.
    """

    def feed(self, data: bytes) -> bool:
        """The next bytes of the journal, whole records. False: the journal has ended with them, or earlier."""

    def unread_bytes(self) -> int:
        """How much of what was fed is not read."""


class WatchingChain(Chain, Protocol):
    """The chain of a source that finds further splits while it runs."""

    def look(self, now_ns: int) -> bytes:
        """Describes splits that are new and this task's; empty: none, or it is too early to look again. Changes
        nothing else."""

    def learn(self, splits: bytes) -> None:
        """From now on the splits that ``look`` has described, in this or an earlier life, are read too."""


class CallingChain(Chain, Protocol):
    """A chain that asks for asynchronous calls (``Recorder.submit``)."""

    def complete(self, number: int, outcome: bytes) -> None:
        """The outcome of one of them, as ``outcomes.encode_outcome``."""


@dataclass(frozen=True, slots=True)
class FailedAt:
    """Where user code raised inside a step, as far as the chain knows; attached by ``StepFailed``."""

    step: str
    index: int | None  # of the record within the step's input, if it is known
    record: str


class StepFailed(Exception):
    """Raised by a chain when user code raised: wraps the original as ``__cause__``."""

    def __init__(self, at: FailedAt) -> None:
        super().__init__(at)
        self.at = at
