"""A process of the simulated world: the real ``Slot`` behind a ``SlotShell`` of virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.checkpoint.snapshot import encode_snapshot, restore_from, standby_payload
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import COORDINATOR, Incarnation, SlotId, TaskId, ThreadId
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.slot_shell import ReadPurpose, TaskRead
from clonos.core.ports.task_port import Activation, TaskHandle
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.slot.slot import Slot
from clonos.core.wire.control_messages import Register
from clonos.core.wire.messages import Message
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.sim.external_systems import SimFenced
from clonos_chaos.sim.producers import SimIntakes
from clonos_chaos.sim.rare_situations import FENCED_AT_SINK, HOT_TAKEOVER, WITHDRAWN
from clonos_chaos.sim.sim_spill import SimSpill
from clonos_chaos.sim.sim_task import SimTask
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

if TYPE_CHECKING:
    from clonos_chaos.swarm.world import World


class SimSlot:
    """Lives until it is killed; pauses hold back everything that would happen in it."""

    def __init__(self, world: World, slot_id: SlotId, domain: str) -> None:
        self.world, self.clock = world, world.clock
        self.id, self.domain = slot_id, domain
        self.is_dead = False
        self.paused_until_ns = 0
        self._held_back: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.tasks: dict[tuple[TaskId, ThreadId], SimTask] = {}
        self.spill = SimSpill(self)
        self.producers = SimIntakes(self)
        self.slot = Slot(slot_id, world.plan, world.options, self)
        self._is_silent = False
        self._inbox_due_ns = 0
        self._outside_due_ns: dict[TaskId, int] = {}

    def register(self) -> None:
        """Announces itself until it is in a view."""
        if self.is_dead or self.slot.view.number:
            return
        message = Register(self.id, self.domain, "host", "", "", b"", "", 1, ())
        self.world.network.send(self.id, COORDINATOR, message, b"")
        self.clock.after(100 * MILLISECOND_NS, self.register)

    def tick(self) -> None:
        """The heartbeat of the process."""
        if self.is_dead:
            return
        self.run(self.slot.on_tick, self.clock.now_ns)
        self.clock.after(25 * MILLISECOND_NS, self.tick)

    def run(self, call: Callable[..., None], *arguments: Any) -> None:
        """Something happens in this process: now, or when it is no longer paused, in the order in which it came."""
        if self.is_dead:
            return
        if self.paused_until_ns > self.clock.now_ns or self._held_back:
            self._held_back.append((call, arguments))
            self.clock.at(self.paused_until_ns, self._run_held_back)
            return
        call(*arguments)
        if self.world.is_validated:
            self.slot.validate()

    def _run_held_back(self) -> None:
        """The first of what was held back, whichever it is: one that was held through two pauses is not overtaken."""
        if self.is_dead or not self._held_back:
            return
        if self.paused_until_ns > self.clock.now_ns:
            self.clock.at(self.paused_until_ns, self._run_held_back)
            return
        call, arguments = self._held_back.popleft()
        call(*arguments)
        if self.world.is_validated:
            self.slot.validate()

    def pause(self, until_ns: int) -> None:
        """SIGSTOP, and SIGCONT at an instant; within another pause the later end counts."""
        self.paused_until_ns = max(self.paused_until_ns, until_ns)

    def resume(self) -> None:
        """SIGCONT."""
        self.paused_until_ns = 0
        for _ in range(len(self._held_back)):
            self._run_held_back()

    def later(self, call: Callable[..., None], *arguments: Any) -> None:
        """From a thread of the process to its slot's thread: soon, in order."""
        self._inbox_due_ns = max(self._inbox_due_ns, self.clock.now_ns + self.clock.between(1_000, 50_000))
        self.clock.at(self._inbox_due_ns, self.run, call, *arguments)

    def kill(self) -> None:
        """SIGKILL."""
        self.is_dead = True
        for task in list(self.tasks.values()):
            task.kill()

    # ------------------------------------------------------------------ SlotShell

    def send(self, slot: SlotId, message: Message, payload: bytes | memoryview = b"") -> None:
        self.world.network.send(self.id, slot, message, payload)

    def start_task(self, task: TaskId, thread: ThreadId, activation: Activation) -> TaskHandle:
        if not activation.is_shadow:
            self.world.oracle.started(self, task, activation.incarnation)
        started = self.tasks[task, thread] = SimTask(self, task, thread, activation)
        started.start()
        return started

    def stop_task(self, task: TaskId, thread: ThreadId) -> None:
        stopped = self.tasks.pop((task, thread), None)
        if stopped is not None:
            self.clock.at(self.clock.now_ns, stopped.kill)
            stopped.room.allow(-UNLIMITED, 0)  # no further step

    def go_live(self, task: TaskId, thread: ThreadId) -> None:
        self.tasks[task, thread].release()
        self.world.reach(FaultPoint.LIVE, task)
        if self.tasks[task, thread].began_as_shadow:
            self.world.oracle.started(self, task, self.slot.hosted[task].incarnation)
            self.world.oracle.situations.reach(HOT_TAKEOVER)

    def replicated_to(self, task: TaskId, thread: ThreadId, end_bytes: int) -> None:
        self.tasks[task, thread].replicated_to(end_bytes)

    def noted(self, task: TaskId, thread: ThreadId) -> None:
        self.tasks[task, thread].note()

    def set_output_budget(self, task: TaskId, thread: ThreadId, budget_bytes: int, handled_bytes: int) -> None:
        found = self.tasks.get((task, thread))
        if found is not None:
            found.room.allow(budget_bytes, handled_bytes)

    def new_mirror(self, task: TaskId) -> Mirror:
        return self.world.job.new_mirror(self.world.plan.vertex_of[task])

    def write_snapshot(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        self.clock.after(self._store_delay_ns(), self._written, name, snapshot, more)

    def write_whole(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        self.clock.after(self._store_delay_ns(), self._whole_written, name, snapshot, whole)

    def _store_delay_ns(self) -> int:
        return self.clock.between(100_000, self.world.settings.store_ns_max)

    def _written(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        """State becomes bytes only now: the task may have gone on."""
        if self.is_dead:
            return  # never finished: what is torn has no name yet
        if self.world.fails_in_store():
            self.run(self.slot.on_snapshot_written, name, b"", "the simulated store failed")
            return
        pieces = self.world.store[name] = (encode_snapshot(snapshot), *(more or ()))
        if more is not None:
            more.release()
        self.world.reach(FaultPoint.SNAPSHOT_WRITTEN, TaskId(int(name.split("/")[1])))
        is_sent = more is None or self.clock.between(0, 3)  # what is long is fetched
        self.run(self.slot.on_snapshot_written, name, standby_payload(pieces) if is_sent else b"", "")

    def _whole_written(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        if self.is_dead:
            return
        if not self.world.fails_in_store():
            self.world.store[name] = (encode_snapshot(snapshot), *whole)
            self.world.reach(FaultPoint.WHOLE_STATE_WRITTEN, snapshot.task)
            self.run(self.slot.on_whole_written, name)
        whole.release()

    def read_objects(self, purpose: ReadPurpose, names: tuple[str, ...]) -> None:
        self.clock.after(self._store_delay_ns(), self._read, purpose, names)

    def _read(self, purpose: ReadPurpose, names: tuple[str, ...]) -> None:
        store = self.world.store
        missing = [name for name in names if name not in store]
        if missing and isinstance(purpose, TaskRead) and not self.is_dead:
            self.world.fail(f"snapshot {missing} of {purpose} is not in the store")
        if missing or self.world.fails_in_store():
            self.run(self.slot.on_objects_read, purpose, None, f"missing {missing}")
            return
        restored = restore_from([(name, store[name]) for name in names], self.new_mirror(purpose.task))
        self.run(self.slot.on_objects_read, purpose, restored, "")

    def open_outside(
        self, task: TaskId, incarnation: Incarnation, generation: int, job_id: str, restored_number: int
    ) -> None:
        self._outside(task, self._register_outside, task, incarnation, generation, restored_number)

    def _outside(self, task: TaskId, call: Callable[..., None], *arguments: Any) -> None:
        due = self.clock.now_ns + self.clock.between(10_000, self.world.settings.outside_ns_max)
        due = self._outside_due_ns[task] = max(due, self._outside_due_ns.get(task, 0))
        self.clock.at(due, call, *arguments)

    def _register_outside(self, task: TaskId, incarnation: Incarnation, generation: int, restored_number: int) -> None:
        # A request that has left reaches the outside even if the process has died since.
        outside = self.world.outsides[task]
        withdrawn = outside.withdrawn
        try:
            number, superseded = outside.register(generation, incarnation, restored_number)
        except SimFenced as fenced:
            self._refused(task, incarnation, fenced)
            return
        if outside.withdrawn > withdrawn:
            self.world.oracle.situations.reach(WITHDRAWN)
        self.world.reach(FaultPoint.OUTSIDE_OPENED, task)
        self.clock.after(
            self.clock.between(10_000, self.world.settings.outside_ns_max),
            self.run,
            self.slot.on_outside_opened,
            task,
            incarnation,
            number,
            superseded,
        )

    def _refused(self, task: TaskId, incarnation: Incarnation, fenced: SimFenced) -> None:
        self.world.oracle.situations.reach(FENCED_AT_SINK)
        delay_ns = self.world.settings.outside_ns_max
        self.clock.after(delay_ns, self.run, self.slot.on_outside_fenced, task, incarnation, *fenced.by)

    def close_outside(self, task: TaskId, incarnation: Incarnation) -> None:
        """What is on its way is written; the outside refuses it once a successor has registered."""

    def write_outside(
        self, task: TaskId, incarnation: Incarnation, first_seq: int, count: int, kind: ElementKind, payload: bytes
    ) -> None:
        self._outside(task, self._write_outside, task, incarnation, first_seq, count, payload)

    def _write_outside(
        self, task: TaskId, incarnation: Incarnation, first_seq: int, count: int, payload: bytes
    ) -> None:
        if self.is_dead and (self._is_silent or self.clock.rng.random() < 0.5):
            self._is_silent = True  # died before it left, and so did all behind it
            return
        try:
            number = self.world.outsides[task].write(incarnation, first_seq, count, payload)
        except SimFenced as fenced:
            self._refused(task, incarnation, fenced)
            return
        self.world.reach(FaultPoint.OUTSIDE_WRITTEN, task)
        self.clock.after(
            self.clock.between(10_000, self.world.settings.outside_ns_max),
            self.run,
            self.slot.on_outside_confirmed,
            task,
            incarnation,
            number,
        )

    def forget_outside(self, task: TaskId, incarnation: Incarnation, before_number: int) -> None:
        outside = self.world.outsides[task]
        if outside.withdraws:  # behind the writes that are on their way; nothing is drawn for it
            due = max(self.clock.now_ns, self._outside_due_ns.get(task, 0))
            self.clock.at(due, outside.forget, incarnation, before_number)

    def now_ns(self) -> int:
        return self.clock.now_ns

    def warn(self, text: str, **fields: str | int) -> None:
        self.world.note(f"warning: {text}")
        self.world.warnings.append((text, fields))

    def end(self, reason: str) -> None:
        self.world.note(f"slot {self.id} ends: {reason or 'released'}")
        self.kill()
