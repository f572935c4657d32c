"""A process of the simulated world: the real ``Slot``, whose effects are performed in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.checkpoint.snapshot import encode_snapshot, standby_payload
from clonos.core.checkpoint.warm_states import WarmKey, WarmStates
from clonos.core.model.ids import COORDINATOR, Incarnation, SlotId, TaskId, ThreadId
from clonos.core.model.plan import Plan
from clonos.core.ports import slot_effects as effect
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.slot_effects import ReadPurpose, TaskRead
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.slot.slot_events import (
    HeartbeatDue,
    SinkConfirmed,
    SinkOpened,
    SinkWriterFenced,
    SnapshotsRead,
    SnapshotWritten,
    WarmedUp,
    WholeStateWritten,
)
from clonos.core.wire.control_messages import Register
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.sim.environment import SimEnvironment
from clonos_chaos.sim.external_systems import SimExternalSystem, SimFenced
from clonos_chaos.sim.producer_connections import SimProducerConnections
from clonos_chaos.sim.rare_situations import FENCED_AT_SINK, HOT_TAKEOVER, WITHDRAWN
from clonos_chaos.sim.sim_process import SimProcess
from clonos_chaos.sim.sim_spill import SimSpill
from clonos_chaos.sim.sim_task import SimTask
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS


class SimSlot(SimProcess):
    """Performs the effects of its machine."""

    def __init__(self, world: SimEnvironment, slot_id: SlotId, domain: str) -> None:
        super().__init__(world, slot_id, domain)
        self.tasks: dict[tuple[TaskId, ThreadId], SimTask] = {}
        self.spill = SimSpill(self)
        self.producers = SimProducerConnections(self)
        self.performers = {
            effect.SendMessage: self._send,
            effect.StartTask: self._start_task,
            effect.PutCommand: self._put_command,
            effect.StopTask: self._stop_task,
            effect.LetGoLive: self._let_go_live,
            effect.ReportReplicated: self._report_replicated,
            effect.ConfirmAnnouncement: self._confirm_announcement,
            effect.SetOutputBudget: self._set_output_budget,
            effect.WriteSnapshot: self._write_snapshot,
            effect.WriteWholeState: self._write_whole_state,
            effect.ReadSnapshots: self._read_snapshots,
            effect.ReadAhead: self._read_ahead,
            effect.DropReadAhead: lambda _: self._drop_read_ahead(),
            effect.OpenSink: self._open_sink,
            effect.WriteToSink: self._write_to_sink,
            effect.ForgetSinkOutput: self._forget_sink_output,
            effect.AcknowledgeSource: lambda _: None,
            effect.CloseSink: self._close_sink,
            effect.WriteSegment: lambda asked: self.spill.write_segment(asked.segment, asked.payloads),
            effect.LoadSegment: lambda asked: self.spill.load(asked.segment),
            effect.DeleteSegment: lambda asked: self.spill.delete(asked.segment),
            effect.OpenProducer: lambda asked: self.producers.open(asked.task, asked.incarnation, asked.offset_bytes),
            effect.HoldProducer: lambda asked: self.producers.hold(asked.task, asked.incarnation, asked.is_held),
            effect.AcknowledgeProducer: lambda asked: self.producers.acknowledge(
                asked.task, asked.incarnation, asked.offset_bytes
            ),
            effect.CloseProducer: lambda asked: self.producers.close(asked.task, asked.incarnation),
            effect.Warn: self._warn,
            effect.RefuseMessage: self._refuse_message,
            effect.EndSlot: self._end_slot,
        }
        self._warm = WarmStates({})
        self._is_silent = False
        self._external_due_ns: dict[str, int] = {}

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
        self.run(self.handle, HeartbeatDue(self.clock.now_ns))
        self.clock.after(25 * MILLISECOND_NS, self.tick)

    def kill(self) -> None:
        """SIGKILL."""
        self.is_dead = True
        for task in list(self.tasks.values()):
            task.kill()

    # ------------------------------------------------------------------ effects

    def _send(self, asked: effect.SendMessage) -> None:
        self.world.network.send(self.id, asked.slot, asked.message, asked.payload)

    def _start_task(self, asked: effect.StartTask) -> None:
        if not asked.activation.is_shadow:
            self.world.oracle.started(self.id, asked.task, asked.activation.incarnation)
        started = self.tasks[asked.task, asked.thread] = SimTask(self, asked.task, asked.thread, asked.activation)
        started.start()

    def _put_command(self, asked: effect.PutCommand) -> None:
        found = self.tasks.get((asked.task, asked.thread))
        if found is not None:
            found.put(asked.command)

    def _stop_task(self, asked: effect.StopTask) -> None:
        stopped = self.tasks.pop((asked.task, asked.thread), None)
        if stopped is not None:
            self.clock.at(self.clock.now_ns, stopped.kill)
            stopped.output_budget.allow(-UNLIMITED, 0)  # no further step

    def _let_go_live(self, asked: effect.LetGoLive) -> None:
        self.tasks[asked.task, asked.thread].release()
        self.world.reach(FaultPoint.LIVE, asked.task)
        if self.tasks[asked.task, asked.thread].began_as_shadow:
            self.world.oracle.started(self.id, asked.task, self.slot.hosted[asked.task].incarnation)
            self.world.count(HOT_TAKEOVER)

    def _report_replicated(self, asked: effect.ReportReplicated) -> None:
        self.tasks[asked.task, asked.thread].replicated_to(asked.end_bytes)

    def _confirm_announcement(self, asked: effect.ConfirmAnnouncement) -> None:
        self.tasks[asked.task, asked.thread].note()

    def _set_output_budget(self, asked: effect.SetOutputBudget) -> None:
        found = self.tasks.get((asked.task, asked.thread))
        if found is not None:
            found.output_budget.allow(asked.budget_bytes, asked.handled_bytes)

    def _write_snapshot(self, asked: effect.WriteSnapshot) -> None:
        self.clock.after(self._store_delay_ns(), self._written, asked.name, asked.snapshot, asked.more)

    def _write_whole_state(self, asked: effect.WriteWholeState) -> None:
        self.clock.after(self._store_delay_ns(), self._whole_written, asked.name, asked.snapshot, asked.whole)

    def _store_delay_ns(self) -> int:
        return self.clock.between(100_000, self.world.settings.store_ns_max)

    def _written(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        """State becomes bytes only now: the task may have gone on."""
        if self.is_dead:
            return  # never finished: what is torn has no name yet
        if self.world.fails_in_store():
            self.run(self.handle, SnapshotWritten(name, b"", "the simulated store failed"))
            return
        pieces = self.world.store[name] = (encode_snapshot(snapshot), *(more or ()))
        if more is not None:
            more.release()
        self.world.reach(FaultPoint.SNAPSHOT_WRITTEN, TaskId(int(name.split("/")[1])))
        is_sent = more is None or self.clock.between(0, 3)  # what is long is fetched
        self.run(self.handle, SnapshotWritten(name, standby_payload(pieces) if is_sent else b"", ""))

    def _whole_written(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        if self.is_dead:
            return
        if not self.world.fails_in_store():
            self.world.store[name] = (encode_snapshot(snapshot), *whole)
            self.world.reach(FaultPoint.WHOLE_STATE_WRITTEN, snapshot.task)
            self.run(self.handle, WholeStateWritten(name))
        whole.release()

    def _read_snapshots(self, asked: effect.ReadSnapshots) -> None:
        mirror = self.new_mirror(asked.purpose.task)  # its number may mean another task when it was read
        warm = self._warm if isinstance(asked.purpose, TaskRead) else WarmStates({})
        task = self.slot.plan.task_name(asked.purpose.task)
        if warm.widths != self.slot.plan.widths:
            warm = WarmStates({})
        self.clock.after(self._store_delay_ns(), self._read, asked.purpose, asked.names, mirror, WarmKey(task), warm)

    def _read(
        self, purpose: ReadPurpose, names: tuple[str, ...], mirror: Mirror, key: WarmKey, warm: WarmStates
    ) -> None:
        store = self.world.store
        missing = [name for name in names if name not in store]
        if missing and isinstance(purpose, TaskRead) and not self.is_dead:
            self.world.fail(f"snapshot {missing} of {purpose} is not in the store")
        if missing or self.world.fails_in_store():
            self.run(self.handle, SnapshotsRead(purpose, None, f"missing {missing}"))
            return
        restored = warm.take(key, names, store.__getitem__, lambda: mirror)
        self.run(self.handle, SnapshotsRead(purpose, restored, ""))

    def _read_ahead(self, asked: effect.ReadAhead) -> None:
        plan = self.slot.plan.with_widths(dict(asked.widths))
        if self._warm.is_ended or self._warm.widths != plan.widths:
            self._drop_read_ahead()
            self._warm = WarmStates(plan.widths)
        self.clock.after(self._store_delay_ns(), self._ahead, asked, plan, self._warm)

    def _ahead(self, asked: effect.ReadAhead, plan: Plan, warm: WarmStates) -> None:
        """Reads chains with which tasks go on. The driver of the world divides others, so nothing is read of them."""
        store = self.world.store
        self.world.reach(FaultPoint.READ_AHEAD)
        for task in asked.tasks:
            for source in task.sources:
                number = plan.task_named(task.task)
                has_all = all(name in store for name in source.objects) and not self.world.fails_in_store()
                if has_all and number is not None and not source.vertex and not warm.is_ended:
                    new_mirror = partial(self.world.job.new_mirror, plan.vertex_of[number])
                    warm.extend(WarmKey(task.task), source.objects, store.__getitem__, new_mirror)
        if not self.is_dead and not warm.is_ended:
            self.run(self.handle, WarmedUp(asked.number))

    def _drop_read_ahead(self) -> None:
        self._warm.is_ended = True
        self._warm = WarmStates({})

    def _open_sink(self, asked: effect.OpenSink) -> None:
        self._external(asked.task, self._register_external, asked.incarnation, asked.generation, asked.restored_number)

    def _external(self, task: TaskId, call: Callable[..., None], *arguments: Any) -> None:
        external = self._external_of(task)  # a number may mean another task when the call arrives
        due = self.clock.now_ns + self.clock.between(10_000, self.world.settings.external_ns_max)
        due = self._external_due_ns[external.task_name] = max(due, self._external_due_ns.get(external.task_name, 0))
        self.clock.at(due, call, external, task, *arguments)

    def _external_of(self, task: TaskId) -> SimExternalSystem:
        return self.world.externals.named(self.slot.plan.task_name(task))

    def _register_external(
        self,
        external: SimExternalSystem,
        task: TaskId,
        incarnation: Incarnation,
        generation: int,
        restored_number: int,
    ) -> None:
        # A request that has left reaches the external system even if the process has died since.
        withdrawn = external.withdrawn
        try:
            number, superseded = external.register(generation, incarnation, restored_number)
        except SimFenced as fenced:
            self._refused(task, incarnation, fenced)
            return
        if external.withdrawn > withdrawn:
            self.world.count(WITHDRAWN)
        self.world.reach(FaultPoint.SINK_OPENED, task)
        self.clock.after(
            self.clock.between(10_000, self.world.settings.external_ns_max),
            self.run,
            self.handle,
            SinkOpened(task, incarnation, number, superseded, external.knows_output),
        )

    def _refused(self, task: TaskId, incarnation: Incarnation, fenced: SimFenced) -> None:
        self.world.count(FENCED_AT_SINK)
        delay_ns = self.world.settings.external_ns_max
        generation, by = fenced.by
        self.clock.after(
            delay_ns, self.run, self.handle, SinkWriterFenced(task, incarnation, generation, Incarnation(by))
        )

    def _close_sink(self, asked: effect.CloseSink) -> None:
        """Closes the sink; writes in transit still arrive, and are refused once a successor has registered."""

    def _write_to_sink(self, asked: effect.WriteToSink) -> None:
        self._external(asked.task, self._write_external, asked.incarnation, asked.first_seq, asked.count, asked.payload)

    def _write_external(
        self,
        external: SimExternalSystem,
        task: TaskId,
        incarnation: Incarnation,
        first_seq: int,
        count: int,
        payload: bytes,
    ) -> None:
        if self.is_dead and (self._is_silent or self.clock.rng.random() < 0.5):
            self._is_silent = True  # died before it left, and so did all after it
            return
        try:
            number = external.write(incarnation, first_seq, count, payload)
        except SimFenced as fenced:
            self._refused(task, incarnation, fenced)
            return
        self.world.reach(FaultPoint.SINK_WRITTEN, task)
        self.clock.after(
            self.clock.between(10_000, self.world.settings.external_ns_max),
            self.run,
            self.handle,
            SinkConfirmed(task, incarnation, number),
        )

    def _forget_sink_output(self, asked: effect.ForgetSinkOutput) -> None:
        external = self._external_of(asked.task)
        if external.withdraws:  # after the writes that are on their way; nothing is drawn for it
            due = max(self.clock.now_ns, self._external_due_ns.get(external.task_name, 0))
            self.clock.at(due, external.forget, asked.incarnation, asked.before_number)

    def _warn(self, asked: effect.Warn) -> None:
        self.world.note(f"warning: {asked.text}")
        task = asked.fields.get("task")
        fields = dict(asked.fields)
        if isinstance(task, int):
            fields["name"] = self.slot.plan.task_name(task)
        self.world.warnings.append((asked.text, fields))

    def _refuse_message(self, asked: effect.RefuseMessage) -> None:
        raise asked.error

    def _end_slot(self, asked: effect.EndSlot) -> None:
        self.world.note(f"slot {self.id} ends: {asked.reason or 'released'}")
        self.kill()
