"""The port between a slot's machine and the thread of one task: what goes in, what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.task_snapshot import Snapshot


class Output(msgspec.Struct, frozen=True, gc=False):
    """Encoded elements for one channel."""

    channel: ChannelId
    kind: ElementKind
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
    kind: ElementKind
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


class ReplayExtended(NamedTuple):
    """Slot to a shadow: its task's log goes on. ``is_all``: the task is dead, this is the end of its log, and the
    shadow is the next incarnation."""

    log: bytes
    is_all: bool = False
    is_cautious: bool = False


class Stopped(NamedTuple):
    """Slot to task: this incarnation is over; nothing it does counts any more."""


class BudgetChanged(NamedTuple):
    """Shell to task: there may be room for a step again."""


Command = Delivered | Triggered | Journalled | Finished | ReplayExtended | Stopped | BudgetChanged


class Activation(NamedTuple):
    """What a thread starts from, as ``incarnation`` or (``is_shadow``) as a shadow of it, whose log comes bit by bit.

    ``log`` begins at ``log_offset_bytes`` (all that holders had), ``journal`` where the snapshot says (all that keepers
    had). ``outside_claim``: number of the first output that the outside does not have. ``local_folder``: for temporary
    files, named by the shell; empty in the simulated world.
    """

    incarnation: Incarnation
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
    local_folder: str = ""


class TaskStopped(BaseException):
    """Raised inside a task's thread when its incarnation is over. Not an Exception: user code must not catch it."""


class TaskPort(Protocol):
    """The task thread's side. Everything a task does to the world goes through here."""

    def receive(self, until_ns: int | None) -> Command | None:
        """The next command; waits for one until the instant ``until_ns`` (None: for ever; 0: does not wait).
        Raises ``TaskStopped`` once the incarnation is over."""

    def emit(self, emission: Emission) -> None:
        """Hands over without waiting."""

    def budget_bytes(self) -> int:
        """How much the next step may add to a channel, as credit counts. No step where it is 0 or less:
        ``BudgetChanged`` comes when there is room again."""

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        """Replay waits until all elements below ``next_seq`` are there: grant credit until then."""

    def go_live(self, positions: dict[ChannelId, int]) -> None:
        """The log has ended at these output positions: returns when new determinants may be recorded; blocks while a
        receiver's claim is unknown; raises ``TaskStopped`` when the log is lost."""

    def await_replicated(self, log_end_bytes: int) -> None:
        """Blocks until the keepers hold the log (and what this task holds) up to here."""

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Blocks until the coordinator knows which element a cautious task is about to take (None: a record
        of a source)."""

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


class TaskHandle(Protocol):
    """A started incarnation's thread (or greenlet), as its slot sees it."""

    def put(self, command: Command) -> None:
        """Queues a command; never blocks."""
