"""The port between a slot's machine and its process: messages, threads, snapshots, spill files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import Incarnation, SlotId, TaskId, ThreadId
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.task_port import Activation, TaskHandle
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.messages import Message


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


class ProducerConnections(Protocol):
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


@dataclass(frozen=True, slots=True)
class TaskRead:
    """Snapshots are read for an incarnation that begins."""

    task: TaskId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class StandbyRead:
    """Snapshots are read for the mirror of a task whose present incarnation it is."""

    task: TaskId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ShadowRead:
    """Snapshots are read for a shadow, in this session."""

    task: TaskId
    session: int


ReadPurpose = TaskRead | StandbyRead | ShadowRead


class SlotShell(Protocol):
    """What a slot's pure machine asks of its process. Outcomes come back as calls of ``Slot.on_*``."""

    @property
    def spill(self) -> SpillStore:
        """Its local disk; there from the start."""

    @property
    def producers(self) -> ProducerConnections:
        """Its sources that cannot be re-read; there from the start."""

    def send(self, slot: SlotId, message: Message, payload: bytes | memoryview = b"") -> None:
        """To another slot, to the coordinator, or to itself. May be lost; never blocks."""

    def start_task(self, task: TaskId, thread: ThreadId, activation: Activation) -> TaskHandle:
        """Starts a thread that runs ``Task(...).run()``; it reports to ``Slot.on_emission`` and its kin."""

    def stop_task(self, task: TaskId, thread: ThreadId) -> None:
        """Tells the thread to end; what it still emits is dropped by its number."""

    def go_live(self, task: TaskId, thread: ThreadId) -> None:
        """Releases a task blocked in ``TaskPort.go_live``."""

    def replicated_to(self, task: TaskId, thread: ThreadId, end_bytes: int) -> None:
        """Releases a task blocked in ``TaskPort.await_replicated`` up to ``end_bytes``."""

    def noted(self, task: TaskId, thread: ThreadId) -> None:
        """Releases a task blocked in ``TaskPort.announce_step``."""

    def set_output_budget(self, task: TaskId, thread: ThreadId, budget_bytes: int, handled_bytes: int) -> None:
        """What ``TaskPort.budget_bytes`` is to answer behind the first ``handled_bytes`` of cost that were emitted."""

    def new_mirror(self, task: TaskId) -> Mirror:
        """An empty image of the state of the task's chain."""

    def write_snapshot(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        """Encodes and stores in the background; ``on_snapshot_written(name, payload, error)``, the payload as a standby
        takes it. ``more`` is released when it is stored."""

    def write_whole(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        """The same for all of the state at the barrier of a snapshot; nobody waits for it. ``on_whole_written(name)``
        when it is stored; if it cannot be, it is given up. ``whole`` is released in both cases."""

    def read_objects(self, purpose: ReadPurpose, names: tuple[str, ...]) -> None:
        """Reads a chain of snapshots in the background, oldest first, into a new mirror;
        ``on_objects_read(purpose, Restored | None, error)``."""

    def open_outside(
        self, task: TaskId, incarnation: Incarnation, generation: int, job_id: str, restored_number: int
    ) -> None:
        """Registers with the outside of an immediate sink (``clonos.operators.connector_contract.Registration``);
        ``on_outside_opened(task, incarnation, next_number, superseded_next)``, or, also behind a write,
        ``on_outside_fenced(task, incarnation, generation, by)``: whom it has registered since."""

    def write_outside(
        self, task: TaskId, incarnation: Incarnation, first_seq: int, count: int, kind: ElementKind, payload: bytes
    ) -> None:
        """Writes in order; ``on_outside_confirmed(task, incarnation, next_number)``."""

    def forget_outside(self, task: TaskId, incarnation: Incarnation, before_number: int) -> None:
        """No restart goes back behind this number any more: behind the writes so far, if the outside can withdraw."""

    def close_outside(self, task: TaskId, incarnation: Incarnation) -> None:
        """The incarnation is over: it writes nothing more."""

    def now_ns(self) -> int:
        """Monotonic time."""

    def warn(self, text: str, **fields: str | int) -> None:
        """Something an operator should know, with its numbers; forwarded to the driver."""

    def end(self, reason: str) -> None:
        """The slot shall end its process."""
