"""Performs the effects of a slot's machine: one method for each, all in the I/O thread. None of them blocks.

Owns the threads around the machine: tasks, sinks, producers, checkpoint store and local disk.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from msgspec.structs import replace

from clonos.core.model.ids import COORDINATOR, Incarnation, SlotId, TaskId, ThreadId
from clonos.core.model.progress import TaskCounter
from clonos.core.ports import slot_effects as effect
from clonos.core.slot.slot_events import SegmentLoaded, SegmentSpilled
from clonos.core.wire.capture_messages import CapturedElements
from clonos.core.wire.control_messages import Peek, Peeked, SlotStatus, Snapshotted, TaskStatus, Warned
from clonos.core.wire.stack_messages import SampleTask, ShowThreads
from clonos.core.wire.trace_messages import StepsTraced
from clonos.io.epochs.page_files import PageSaver
from clonos.io.local.local_folder import LocalFolder
from clonos.io.local.spill import SpillFolder
from clonos.io.net.transport import Transport
from clonos.io.store.store import CheckpointStore
from clonos.operators.connector_contract import ImmediateSink, WriterIdentity
from clonos_standby.slot.hang_watch import HangWatch
from clonos_standby.slot.journal_thread import JournalThreads
from clonos_standby.slot.sink_thread import SinkThread
from clonos_standby.slot.surroundings import SlotSurroundings
from clonos_standby.slot.task_thread import TaskThread
from clonos_standby.stacks import StackAnswers
from clonos_standby.store_thread import SnapshotStore

logger = logging.getLogger("clonos.slot")

JOIN_TIMEOUT_S = 1.0


class EffectExecutor:
    """``performers``: what performs an effect, by its type. ``ending``: why the slot shall end; None: it shall not."""

    def __init__(
        self,
        slot_id: SlotId,
        context: SlotSurroundings,
        transport: Transport,
        folder: LocalFolder,
        store: CheckpointStore,
    ) -> None:
        self._id, self._context = slot_id, context
        self._transport, self._folder = transport, folder
        self.ending: str | None = None
        self._tasks: dict[tuple[TaskId, ThreadId], TaskThread] = {}
        self._sinks: dict[tuple[TaskId, Incarnation], SinkThread] = {}
        self._threads: list[Thread] = []
        self._hangs = HangWatch(self._warn)
        self._stacks = StackAnswers(lambda shown: context.inbox.put(transport.send, COORDINATOR, shown))
        self._pages = PageSaver(lambda *saved: context.inbox.put(transport.send, COORDINATOR, *saved))
        self._producers = JournalThreads(context)
        self._snapshots = SnapshotStore(store, context, context.new_mirror)
        self._spill = SpillFolder(
            folder.path / "spill",
            lambda *outcome: context.post(SegmentSpilled(*outcome)),
            lambda *outcome: context.post(SegmentLoaded(*outcome)),
            context.faults,
        )
        self.performers: dict[type, Callable[[Any], None]] = {
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
            effect.DropReadAhead: self._drop_read_ahead,
            effect.OpenSink: self._open_sink,
            effect.WriteToSink: self._write_to_sink,
            effect.ForgetSinkOutput: self._forget_sink_output,
            effect.AcknowledgeSource: self._acknowledge_source,
            effect.CloseSink: self._close_sink,
            effect.WriteSegment: self._write_segment,
            effect.LoadSegment: self._load_segment,
            effect.DeleteSegment: self._delete_segment,
            effect.OpenProducer: self._open_producer,
            effect.HoldProducer: self._hold_producer,
            effect.AcknowledgeProducer: self._acknowledge_producer,
            effect.CloseProducer: self._close_producer,
            effect.Warn: self._warn,
            effect.RefuseMessage: self._refuse_message,
            effect.EndSlot: self._end_slot,
        }

    def close(self) -> list[str]:
        """Ends the threads. Returns the names of those that still run: user code that waits for the world ends with the
        process."""
        for thread in self._tasks.values():
            thread.stop()
        for sink in self._sinks.values():
            sink.close()
        self._threads += self._producers.close_all()
        self._snapshots.close()
        self._spill.close()
        self._stacks.close()
        self._pages.close()
        deadline_s = time.monotonic() + JOIN_TIMEOUT_S
        for each in self._threads:
            each.join(max(0.0, deadline_s - time.monotonic()))
        return [each.name for each in self._threads if each.is_alive()]

    # ------------------------------------------------------------------ messages and the process

    def look_for_hangs(self, now_ns: int) -> None:
        """Warns of tasks that have been in one step for too long."""
        self._hangs.look(self._tasks.values(), now_ns)

    def peek(self, asked: Peek) -> None:
        """Sends the driver the next rows that a step of a task emits."""

        def show(rows: bytes) -> None:  # in the thread of the task
            self._context.inbox.put(self._transport.send, COORDINATOR, Peeked(asked.task, asked.number, rows))

        for (task, _), thread in self._tasks.items():
            if task == asked.task:
                thread.peek(asked.step, asked.rows_max, show)

    def show_stacks(self, asked: ShowThreads | SampleTask) -> None:
        """Sends the driver the stacks of the threads of this process, or samples of that of a task."""
        wanted = asked.task if isinstance(asked, SampleTask) else None
        self._stacks.answer(asked, [thread for (task, _), thread in self._tasks.items() if task == wanted])

    def _send(self, asked: effect.SendMessage) -> None:
        message = asked.message
        if type(message) is SlotStatus:
            tasks = tuple([self._with_figures(status) for status in message.tasks])
            message = replace(message, tasks=tasks, cpu_ms=cpu_ms(), resident_bytes=resident_bytes())
            if traced := tuple([step for thread in self._tasks.values() for step in thread.take_traced()]):
                self._transport.send(COORDINATOR, StepsTraced(traced))
        elif type(message) is CapturedElements and message.file:
            self._pages.save(message, asked.payload)
            return
        elif type(message) is Snapshotted:
            message = replace(message, size_bytes=self._snapshots.size_bytes(message.objects[-1]))
        self._transport.send(asked.slot, message, asked.payload)

    def _with_figures(self, status: TaskStatus) -> TaskStatus:
        """Adds what the task's thread has measured: its times, its calls, its state in columns, its hottest key and the
        metrics of user code. Before that thread begins, how much of the task's state has been read."""
        if (permille := self._snapshots.restored_permille(status.task, status.incarnation)) is not None:
            return replace(status, counters=(*status.counters, (TaskCounter.RESTORED_PERMILLE, permille)))
        found = [
            t for (task, _), t in self._tasks.items() if task == status.task and t.incarnation == status.incarnation
        ]
        if not found:
            return status
        thread = found[-1]
        counters = (*status.counters, *thread.figures())
        figures = {"counters": counters, "hot_key": thread.hot_key(), "metrics": thread.metrics()}
        return replace(status, **figures, latencies=thread.latencies())

    def _warn(self, asked: effect.Warn) -> None:
        """Sends a warning of the job, which is also a line in the driver's log."""
        fields = tuple((name, str(value)) for name, value in sorted(asked.fields.items()))
        self._transport.send(COORDINATOR, Warned(self._id, asked.text, fields))

    def _refuse_message(self, asked: effect.RefuseMessage) -> None:
        raise asked.error

    def _end_slot(self, asked: effect.EndSlot) -> None:
        self.ending = asked.reason

    # ------------------------------------------------------------------ tasks

    def _start_task(self, asked: effect.StartTask) -> None:
        folder = self._folder.path / f"task-{asked.task}-{asked.thread}"
        started = TaskThread(self._context, asked.task, asked.thread, asked.activation, folder)
        self._tasks[asked.task, asked.thread] = started
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(started.thread)
        started.thread.start()

    def _put_command(self, asked: effect.PutCommand) -> None:
        if (found := self._tasks.get((asked.task, asked.thread))) is not None:
            found.put(asked.command)

    def _stop_task(self, asked: effect.StopTask) -> None:
        if (found := self._tasks.pop((asked.task, asked.thread), None)) is not None:
            found.stop()

    def _let_go_live(self, asked: effect.LetGoLive) -> None:
        if (found := self._tasks.get((asked.task, asked.thread))) is not None:
            found.release()

    def _report_replicated(self, asked: effect.ReportReplicated) -> None:
        if (found := self._tasks.get((asked.task, asked.thread))) is not None:
            found.replicate_to(asked.end_bytes)

    def _confirm_announcement(self, asked: effect.ConfirmAnnouncement) -> None:
        if (found := self._tasks.get((asked.task, asked.thread))) is not None:
            found.note()

    def _set_output_budget(self, asked: effect.SetOutputBudget) -> None:
        if (found := self._tasks.get((asked.task, asked.thread))) is not None:
            found.output_budget.allow(asked.budget_bytes, asked.handled_bytes)

    # ------------------------------------------------------------------ store and disk

    def _write_snapshot(self, asked: effect.WriteSnapshot) -> None:
        self._snapshots.write(asked.name, asked.snapshot, asked.more)

    def _write_whole_state(self, asked: effect.WriteWholeState) -> None:
        self._snapshots.write_whole(asked.name, asked.snapshot, asked.whole)

    def _read_snapshots(self, asked: effect.ReadSnapshots) -> None:
        self._snapshots.read(asked.purpose, asked.names)

    def _read_ahead(self, asked: effect.ReadAhead) -> None:
        self._snapshots.read_ahead(asked)

    def _drop_read_ahead(self, _asked: effect.DropReadAhead) -> None:
        self._snapshots.drop_read_ahead()

    def _write_segment(self, asked: effect.WriteSegment) -> None:
        self._spill.write_segment(asked.segment, asked.payloads)

    def _load_segment(self, asked: effect.LoadSegment) -> None:
        self._spill.load(asked.segment)

    def _delete_segment(self, asked: effect.DeleteSegment) -> None:
        self._spill.delete(asked.segment)

    # ------------------------------------------------------------------ sinks and producers

    def _open_sink(self, asked: effect.OpenSink) -> None:
        image, task = self._context.image, asked.task
        plan = image.plan
        sink = image.sink_of(plan.vertex_of[task])
        assert isinstance(sink, ImmediateSink), sink
        channel = next(channel.id for channel in plan.outputs[task] if channel.receiver is None)
        identity = WriterIdentity(asked.job_id, plan.task_name(task), asked.generation, asked.incarnation)
        step = image.sink_step(plan.vertex_of[task])
        opened = SinkThread(self._context, sink, identity, asked.restored_number, task, channel, step=step)
        self._sinks[task, asked.incarnation] = opened
        self._threads.append(opened.thread)

    def _write_to_sink(self, asked: effect.WriteToSink) -> None:
        if (found := self._sinks.get((asked.task, asked.incarnation))) is not None:
            found.write(asked.first_seq, asked.count, asked.kind, asked.payload)

    def _forget_sink_output(self, asked: effect.ForgetSinkOutput) -> None:
        if (found := self._sinks.get((asked.task, asked.incarnation))) is not None:
            found.forget(asked.before_number)

    def _acknowledge_source(self, asked: effect.AcknowledgeSource) -> None:
        image = self._context.image
        try:
            image.acknowledge(image.plan.vertex_of[asked.task], asked.position)
        except Exception as error:  # noqa: BLE001 connectors may raise anything; the next checkpoint repeats it
            logger.info("the source of %s failed to acknowledge: %r", image.plan.task_name(asked.task), error)

    def _close_sink(self, asked: effect.CloseSink) -> None:
        if (found := self._sinks.pop((asked.task, asked.incarnation), None)) is not None:
            found.close()

    def _open_producer(self, asked: effect.OpenProducer) -> None:
        life = asked.task, asked.incarnation
        cursors = [t.journal_cursor for (task, _), t in self._tasks.items() if (task, t.incarnation) == life]
        self._producers.open(*life, asked.offset_bytes, cursors[-1] if cursors else None)

    def _hold_producer(self, asked: effect.HoldProducer) -> None:
        self._producers.hold(asked.task, asked.incarnation, asked.is_held)

    def _acknowledge_producer(self, asked: effect.AcknowledgeProducer) -> None:
        self._producers.acknowledge(asked.task, asked.incarnation, asked.offset_bytes)

    def _close_producer(self, asked: effect.CloseProducer) -> None:
        self._producers.close(asked.task, asked.incarnation)


_STATM = Path("/proc/self/statm")
_RESIDENT_FIELD = 1


def cpu_ms() -> int:
    """Returns the processor time of all threads since the process began."""
    return time.process_time_ns() // 1_000_000


def resident_bytes() -> int:
    """Returns the memory of the process that is in RAM; 0 where the system does not say it."""
    try:
        return int(_STATM.read_bytes().split()[_RESIDENT_FIELD]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
