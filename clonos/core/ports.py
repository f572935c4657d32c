"""The doors between the pure core and its shells: a slot's world and a task's thread.

The same core runs behind real sockets and threads, and in the simulated world. A shell implements these; a call
returns at once and its outcome comes back as an event (see ``Slot`` and ``Coordinator``), but for ``TaskPort``,
whose calls may block the task's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import msgspec

from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.wire.messages import Message

if TYPE_CHECKING:
    from clonos.core.chain import Mirror, Pieces
    from clonos.core.snapshots import Snapshot


# ------------------------------------------------------------------ task thread <-> slot


class Output(msgspec.Struct, frozen=True, gc=False):
    """Encoded elements for one channel."""

    channel: ChannelId
    kind: int
    count: int
    checkpoint: CheckpointId  # of a barrier, else 0
    payload: bytes


class Emission(NamedTuple):
    """Task to slot, once a step or in mid-step: the log grows first, then what depends on it leaves.

    ``consumed``: (channel, next sequence number, bytes freed). ``snapshot``: at a barrier or at the end of the stream.
    ``more``: further pieces of its changes. ``whole``: all of the state at the same barrier, where a chain of snapshots
    has become long: the next one begins with it.
    """

    log: bytes
    outputs: tuple[Output, ...] = ()
    consumed: tuple[tuple[ChannelId, int, int], ...] = ()
    snapshot: Snapshot | None = None
    prepared: tuple[bytes, ...] = ()
    records_in: int = 0
    journal_read_bytes: int = 0  # offset up to which a source has read its journal
    cost_bytes: int = 0  # of what it adds to the channel that gets most, as credit counts
    more: Pieces | None = None
    whole: Pieces | None = None


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """Slot to task: elements of an input channel. The first ``skip`` of them were delivered before."""

    channel: ChannelId
    kind: int
    count: int
    skip: int
    checkpoint: CheckpointId
    payload: bytes | memoryview


class Triggered(NamedTuple):
    """Slot to a source task: put this barrier into the stream."""

    checkpoint: CheckpointId
    then_pause: bool


class Journalled(NamedTuple):
    """Slot to a source task: the next bytes of its journal, maybe none. Every keeper holds them and all before."""

    data: bytes


class Finished(NamedTuple):
    """Shell to task: the outside has answered an asynchronous call; ``outcome`` as ``outcomes.encode_outcome``."""

    number: int
    outcome: bytes


class Followed(NamedTuple):
    """Slot to a shadow: its task's log goes on. ``is_all``: the task is dead, this is the end of its log, and the
    shadow is the next incarnation."""

    log: bytes
    is_all: bool = False
    is_cautious: bool = False


class Stopped(NamedTuple):
    """Slot to task: this incarnation is over; nothing it does counts any more."""


class GateMoved(NamedTuple):
    """Shell to task: there may be room for a step again."""


Command = Delivered | Triggered | Journalled | Finished | Followed | Stopped | GateMoved


class Activation(NamedTuple):
    """What an incarnation starts from. ``log`` begins at ``log_offset_bytes`` (all that holders had), ``journal`` where
    the snapshot says (all that keepers had). ``is_shadow``: of another slot's task, whose log comes bit by bit.
    ``outside_claim``: number of the first output that the outside does not have."""

    snapshot: Snapshot | None
    mirror: Mirror | None
    log: bytes
    log_offset_bytes: int
    generation: int
    is_cautious: bool
    job_id: str
    journal: bytes = b""
    is_shadow: bool = False
    outside_claim: int = 0


class TaskStopped(BaseException):
    """Raised inside a task's thread when its incarnation is over. Not an Exception: user code must not catch it."""


class TaskPort(Protocol):
    """The task thread's side. Everything a task does to the world goes through here."""

    def receive(self, until_ns: int | None) -> Command | None:
        """The next command; waits for one until the instant ``until_ns`` (None: for ever; 0: does not wait).
        Raises ``TaskStopped`` once the incarnation is over."""

    def emit(self, emission: Emission) -> None:
        """Hands over without waiting."""

    def room_bytes(self) -> int:
        """How much the next step may add to a channel, as credit counts; no step where it is 0 or less: ``GateMoved``
        comes when there is room again."""

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        """Replay waits until all elements below ``next_seq`` are there: grant credit until then."""

    def go_live(self, positions: dict[ChannelId, int]) -> None:
        """The log has ended at these output positions: returns when new determinants may be recorded; blocks while a
        receiver's claim is unknown; raises ``TaskStopped`` when the log is lost."""

    def await_kept(self, log_end_bytes: int) -> None:
        """Blocks until the keepers hold the log (and what this task holds) up to here."""

    def approach(self, channel: ChannelId, first_seq: int) -> None:
        """Blocks until the coordinator knows which element a cautious task is about to take (-1: of a source)."""

    def open_journal(self) -> None:
        """A source is live, and its journal has no end yet: take in more. It comes as ``Journalled``."""

    def lose_journal(self) -> NoReturn:
        """The log reads what the journal does not have: the slot reports it as lost. Raises ``TaskStopped``."""

    def now_ns(self) -> int:
        """Wall clock as ns since the Unix epoch; slewed, never backwards within one process."""

    def cost_clock_ns(self) -> int:
        """A clock to measure the cost of steps with; constant in the simulated world."""

    def entropy(self, count: int) -> bytes:
        """True randomness, or the world's seed."""

    def perform(self, function: Any, key: str) -> object:
        """Runs a call to the outside (``function(key)``) for a causal service; the simulated world may take its
        (virtual) time for it, or end the incarnation before or after."""

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        """Runs ``function(key)`` beside the task; its outcome comes as ``Finished``, unless the incarnation is over."""


# ------------------------------------------------------------------ slot <-> shell


class TaskHandle(Protocol):
    """A started incarnation's thread (or greenlet), as its slot sees it."""

    def put(self, command: Command) -> None:
        """Queues a command; never blocks."""


class SpillStore(Protocol):
    """Segments of in-flight logs on the slot's local disk, written and read in the background. Nothing here blocks.

    What is stored lives no longer than the process: it need not survive anything but a wait. Segments are numbered by
    the caller and never written twice, but after a write that failed.
    """

    def write_segment(self, segment: int, payloads: list[bytes]) -> None:
        """``Slot.on_spilled(segment, stored_bytes, error)``; an ``error`` that is not empty: nothing was stored."""

    def load(self, segment: int) -> None:
        """Of a segment that is stored: ``Slot.on_segment_loaded(segment, payloads | None, error)``."""

    def delete(self, segment: int) -> None:
        """It is not needed any more, even if it is just being written or loaded; no answer counts any more."""


class Intakes(Protocol):
    """The connections of a slot's journalled sources, one for each incarnation that has one. Nothing here blocks.

    What comes in goes to ``Slot.on_journal(task, incarnation, data)``, whole records at a time.
    """

    def open(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        """Connects; the keepers have all that was taken in before, ``offset_bytes`` since the job's start. A failure:
        ``Slot.on_intake_failed(task, incarnation, error)``, and it is closed."""

    def hold(self, task: TaskId, incarnation: Incarnation, held: bool) -> None:
        """Whether to leave what comes where it is; what is on its way to the slot still comes."""

    def acknowledge(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        """All before ``offset_bytes`` is kept: the pusher may forget it, where it is told."""

    def close(self, task: TaskId, incarnation: Incarnation) -> None:
        """The incarnation is over; closes its connection, if there is one."""


class SlotShell(Protocol):
    """What a slot's pure machine asks of its process. Outcomes come back as calls of ``Slot.on_*``."""

    @property
    def spill(self) -> SpillStore:
        """Its local disk; there from the start."""

    @property
    def intakes(self) -> Intakes:
        """Its sources that cannot be re-read; there from the start."""

    def send(self, slot: SlotId, message: Message, payload: bytes | memoryview = b"") -> None:
        """To another slot, to the coordinator, or to itself. May be lost; never blocks."""

    def start_task(self, task: TaskId, incarnation: Incarnation, activation: Activation) -> TaskHandle:
        """Starts a thread that runs ``Task(...).run()``; it reports to ``Slot.on_emission`` and its kin."""

    def stop_task(self, task: TaskId, incarnation: Incarnation) -> None:
        """Tells the thread to end; what it still emits is dropped by incarnation."""

    def go_live(self, task: TaskId, incarnation: Incarnation) -> None:
        """Releases a task blocked in ``TaskPort.go_live``."""

    def kept_to(self, task: TaskId, incarnation: Incarnation, end_bytes: int) -> None:
        """Releases a task blocked in ``TaskPort.await_kept`` up to ``end_bytes``."""

    def noted(self, task: TaskId, incarnation: Incarnation) -> None:
        """Releases a task blocked in ``TaskPort.approach``."""

    def set_room(self, task: TaskId, incarnation: Incarnation, room_bytes: int, handled_bytes: int) -> None:
        """What ``TaskPort.room_bytes`` is to answer behind the first ``handled_bytes`` of cost that were emitted."""

    def new_mirror(self, task: TaskId) -> Mirror:
        """An empty image of the state of the task's chain."""

    def write_snapshot(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        """Encodes and stores in the background; ``on_snapshot_written(name, payload, error)``, the payload as a standby
        takes it. ``more`` is released when it is stored."""

    def write_whole(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        """The same for all of the state at the barrier of a snapshot; nobody waits for it. ``on_whole_written(name)``
        when it is stored; if it cannot be, it is given up. ``whole`` is released in both cases."""

    def read_objects(self, token: tuple[str, int, int], names: tuple[str, ...]) -> None:
        """Reads a chain of snapshots in the background, oldest first, into a new mirror;
        ``on_objects_read(token, Restored | None, error)``."""

    def open_outside(
        self, task: TaskId, incarnation: Incarnation, generation: int, job_id: str, restored_number: int
    ) -> None:
        """Registers with the outside of an immediate sink (``clonos.operators.connect.Registration``);
        ``on_outside_opened(task, incarnation, next_number, superseded_next)``, or, also behind a write,
        ``on_outside_fenced(task, incarnation, generation, by)``: whom it has registered since."""

    def write_outside(
        self, task: TaskId, incarnation: Incarnation, first_seq: int, count: int, kind: int, payload: bytes
    ) -> None:
        """Writes in order; ``on_outside_confirmed(task, incarnation, next_number)``."""

    def forget_outside(self, task: TaskId, incarnation: Incarnation, before_number: int) -> None:
        """No restart goes back behind this number any more: behind the writes so far, if the outside can withdraw."""

    def now_ns(self) -> int:
        """Monotonic time."""

    def warn(self, text: str, **fields: str | int) -> None:
        """Something an operator should know, with its numbers; forwarded to the driver."""

    def end(self, reason: str) -> None:
        """The slot shall end its process."""
