"""One incarnation of a task: a deterministic function of its input and its causal log (protocol 2 and 6).

It runs in a thread of its own (a greenlet in the simulated world), and all its effects go through its ``TaskPort``. It
replays the log entry by entry; where the log ends it goes live and records what it decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn, assert_never, cast

from clonos.core.channel.credit import cost_bytes
from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, SnapshotChain
from clonos.core.log import determinants as d
from clonos.core.model.element_kind import LAST_BARRIER, ElementKind
from clonos.core.model.errors import ReplayDiverged
from clonos.core.model.ids import CheckpointId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import CallingChain, Chain, ChainSnapshot, Pieces, ReadyPieces, StepFailed
from clonos.core.ports.recorder import running
from clonos.core.ports.task_port import (
    Activation,
    CutAt,
    Delivered,
    Finished,
    Journalled,
    PartReported,
    ReadLimit,
    ReplayExtended,
    Resumed,
    Suspended,
    TaskEmission,
    TaskPort,
    Triggered,
)
from clonos.core.ports.task_snapshot import Snapshot, stops_at
from clonos.core.task.divergence import raise_explained
from clonos.core.task.inputs import InputQueue, blocked_inputs, open_inputs
from clonos.core.task.latency import LatencyMarks
from clonos.core.task.opening import chain_context, open_log
from clonos.core.task.source import SourceReader
from clonos.core.task.step_size import StepSize
from clonos.core.task.task_output import StepCollector, TaskOutputs
from clonos.core.task.watermarks import InputWatermarks, advance, process, timed_inputs
from clonos.core.wire.recovery_messages import InputRange


class Task:
    """Incarnation of a task. ``run`` returns when it has ended."""

    def __init__(
        self, plan: Plan, task: TaskId, chain: Chain, port: TaskPort, activation: Activation, options: Options
    ) -> None:
        self.plan, self.task, self.incarnation = plan, task, activation.incarnation
        self.chain, self.port, self.options = chain, port, options
        vertex = plan.vertices[plan.vertex_of[task]]
        self.is_source = vertex.is_source
        snapshot = activation.snapshot
        self.checkpoint = snapshot.checkpoint if snapshot else CheckpointId(0)  # label of the current epoch
        self.is_final = bool(snapshot and snapshot.final)
        self.is_suspended, self.suspension = False, 0
        self.cut = CheckpointId(0)  # checkpoint at whose barrier the task is suspended, 0: at none
        self._cut_trigger: Triggered | None = None  # of a source, which drains first
        self._is_held = False  # the barrier of the next alignment waits until what waits in the chain has left
        self.pace = StepSize(options, port, activation.is_single_step, is_columnar=vertex.reads_columns)
        self.log = open_log(plan, task, options, port, activation, self.take)
        self.log.begin_epoch(self.checkpoint)
        if self.is_source:
            self.log.count_calls_from(dict(snapshot.calls) if snapshot else {})
        self.outputs = TaskOutputs(plan, task, snapshot, activation.external_seq)
        self.collected = StepCollector(self.outputs, self.log)
        self.log.observe_positions(self.outputs.positions)
        self.marks = LatencyMarks(port, task, options.trace_every_ms)
        self.inputs = open_inputs(plan, task, snapshot, self.marks)
        self.input_of = {queue.channel: queue for queue in self.inputs}
        self.watermarks = InputWatermarks(timed_inputs(plan, self.inputs), snapshot.event_time if snapshot else None)
        self._turn = self._held_count = 0  # input that is looked at first; elements of steps that are not emitted yet
        self._snapshots = SnapshotChain(snapshot)
        self.records_in = snapshot.records_in if snapshot else 0  # since the job's start: numbers a source's records
        self.stops_at = stops_at(snapshot, activation.generation)
        self.at: InputRange | None = None  # input of the current step
        self.reading = SourceReader(self, vertex, snapshot) if vertex.is_source else None
        self._activation = activation
        has_input = self.reading.may_have_records if self.reading else lambda: any(q.pieces for q in self.inputs)
        parts = self.log, self.collected, has_input
        self._context = chain_context(plan, task, activation, options.snapshot_inline_bytes, *parts)

    # ------------------------------------------------------------------ life

    def run(self) -> None:
        """Restores, replays the log and runs live. After the end of the stream it waits until it is stopped."""
        snapshot = self._activation.snapshot
        try:
            with running(self.log):
                with self.log.opening():
                    self.chain.open(self._context, self._activation.mirror, snapshot.position if snapshot else None)
                if self.reading is not None:
                    self.reading.recover(self._activation.journal)
                while not self.is_final:
                    self._follow() if self.log.peek() is not None else self._live_step()
            if (entry := self.log.peek()) is not None:
                raise self.log.diverged(entry, "nothing more at the end of its stream")
            self.log.go_live()  # nothing to replay, but receivers' positions are still compared
            self._await_end()
        except (StepFailed, ReplayDiverged) as error:
            raise_explained(error, self.log.divergence, self.chain)
        finally:
            self.port.end_calls()
            self.chain.close()

    # ------------------------------------------------------------------ replay

    def _follow(self) -> None:
        """Replays the next entry of the log."""
        entry = self.log.peek()
        assert entry is not None
        tag, first, count, _ = entry
        if tag == d.STEP and first < len(self.inputs):
            queue = self.inputs[first]
            self._await(queue, count, entry)
            self.log.take()
            self._step(queue, count)
        elif tag == d.TIMER:
            self.log.take()
            self._fire(self.log.instant_ns_last + first)
        elif tag in (d.TRIGGER, d.LAST_TRIGGER) and self.is_source:
            self.log.take()
            self._trigger(CheckpointId(first), tag)
        elif self.reading is not None and self.reading.follow(entry):
            return
        elif tag == d.COMPLETION and self.log.follow_call(entry):
            self.log.begin_step()
            self._complete(first, entry[3])
        elif tag == d.PART and self._keep_part(first, entry[3]):
            self.log.take()
        elif tag == d.DRAIN:
            self.log.take()
            self.log.begin_step()
            self._let_go()
        elif tag == d.HELD:
            self.log.take()
            self._is_held = True
        elif tag == d.CLOCK and self.options.clock_tick_ms:
            self.log.take()
            self.log.follow_tick(first)
        else:
            raise self.log.diverged(entry, "a new step")

    def _await(self, queue: InputQueue, count: int, entry: d.Entry) -> None:
        """Waits until the next ``count`` elements of one kind are delivered."""
        while (there := queue.run_length(count)) < count:
            if there < queue.waiting_count:
                raise self.log.diverged(entry, f"a step of {there} elements, after which others follow")
            if self._held_count:
                self.emit()
            self.port.needs(queue.channel, queue.next_seq + count)
            self.take(self.port.receive(None))
        while (command := self.port.receive(0)) is not None:
            self.take(command)

    # ------------------------------------------------------------------ live

    def _live_step(self) -> None:
        """Chooses, records and makes the next step, or waits for input."""
        self.log.go_live()
        self.log.open_calls.begin()
        while not self._is_cut and (command := self.port.receive(0)) is not None:
            self.take(command)
        if self._is_cut:
            self._hold_commands_until(lambda: not self._is_cut, CutAt)
            return
        if self.is_suspended and not self.log.open_calls:
            self.port.emit(TaskEmission(self.log.drain(), suspension=self.suspension))
            self._hold_commands_until(lambda: not self.is_suspended, Resumed)
            return
        budget_bytes = self.port.budget_bytes()
        is_at_cut = self._cut_trigger is not None or self._is_held  # above a soft limit, only its barrier frees memory
        if budget_bytes <= 0 and not is_at_cut:
            if self.reading is not None:
                self.reading.hold_back()
            self.take(self.port.receive(None))
            return
        if self._take_finished() or (not self.is_suspended and self._fire_if_due()):
            return
        if self.is_suspended:
            self.take(self.port.receive(None))
            return
        if self.reading is not None:
            if self._cut_trigger is not None:
                self._drain_before(self._cut_trigger)
            else:
                self.reading.live_step(budget_bytes)
            return
        for offset in range(len(self.inputs)):
            index = (self._turn + offset) % len(self.inputs)
            queue = self.inputs[index]
            if queue.pieces and queue.blocked_by is None:
                if self._completes_cut(queue) and not self._may_complete_cut(queue):
                    continue
                limit = self.pace.limit(budget_bytes, self.log.open_calls.room)
                if queue.pieces[0].kind.is_data:
                    if not limit:
                        continue
                    self.pace.announce_step(queue.channel, queue.next_seq)
                self._turn = index + 1
                count = queue.run_length(max(limit, 1))
                self.log.begin_step()
                self.log.append(d.step(index, count))
                self._step(queue, count, is_begun=True)
                return
        if self._is_held and not self.log.open_calls and all(q.has_ended or q.blocked_by for q in self.inputs):
            self._drain()
            return
        self.take(self.port.receive(self.chain.next_timer_ns()))

    def _await_end(self) -> NoReturn:
        """Waits until this incarnation is stopped."""
        while True:
            self.port.receive(None)

    def _hold_commands_until(self, is_over: Callable[[], bool], kind: type) -> None:
        """Waits until commands of a kind end the suspension. Takes nothing else before: it may be a step."""
        held: list[Any] = []
        while not is_over():
            command = self.port.receive(None)
            self.take(command) if isinstance(command, kind) else held.append(command)
        for each in held:
            self.take(each)

    @property
    def _is_cut(self) -> bool:
        """Whether the task has passed the barrier at which it is suspended."""
        return self.cut > 0 and self.checkpoint == self.cut

    def _completes_cut(self, queue: InputQueue) -> bool:
        """Whether the next element of an input, a barrier or its end, would complete the alignment at the cut."""
        if not self.cut or queue.pieces[0].kind not in (ElementKind.BARRIER, ElementKind.END):
            return False
        others = [other.blocked_by for other in self.inputs if other is not queue and not other.has_ended]
        is_end = queue.pieces[0].kind is ElementKind.END
        return None not in others and (self.cut in others if is_end else queue.pieces[0].checkpoint == self.cut)

    def _may_complete_cut(self, queue: InputQueue) -> bool:
        """Lets the rows go that wait in the chain. Returns False while a call is open."""
        if queue.pieces[0].kind is ElementKind.END:  # it may fire timers, so what waits leaves after it
            self.log.append(d.numbers(d.HELD))
            self._is_held = True
            return True
        if not self.log.open_calls:
            self._drain()
        return not self.log.open_calls

    def _drain_before(self, trigger: Triggered) -> None:
        """Lets a source put the barrier of the cut once no call is open and nothing waits; it reads nothing before."""
        if trigger.checkpoint == self.cut and self.log.open_calls:
            self.take(self.port.receive(self.chain.next_timer_ns()))
        else:
            self._put_barrier_of_cut(trigger)

    def _put_barrier_of_cut(self, trigger: Triggered) -> None:
        self._cut_trigger = trigger
        if trigger.checkpoint == self.cut:
            if not self.log.open_calls:
                self._drain()
            if self.log.open_calls:
                return
        self._cut_trigger = None
        self._put_barrier(trigger)

    def _drain(self) -> None:
        """Lets the rows go that wait in the chain; no call may be open. Calls that are made now have to end first, and
        what they add leaves by another entry."""
        self.log.begin_step()
        self.log.append(d.numbers(d.DRAIN))
        self._let_go()
        self.log.open_calls.begin()

    def _let_go(self) -> None:
        self.at = None
        self.chain.drain()
        self.emit()
        if self._is_held and not self.log.open_calls:
            self._is_held = False
            self._align_or_end()

    def _fire_if_due(self) -> bool:
        due_ns = self.chain.next_timer_ns()
        if due_ns is None or due_ns > self.port.now_ns():
            return False
        instant_ns = max(self.log.instant_ns_last, self.port.now_ns())
        self.log.append(d.numbers(d.TIMER, instant_ns - self.log.instant_ns_last))
        self._fire(instant_ns)
        return True

    def take(self, command: Any) -> None:
        if isinstance(command, Delivered):
            self.input_of[command.channel].put(command)
        elif isinstance(command, Journalled | ReadLimit):
            assert self.reading is not None, self.task
            self.reading.take(command)
        elif isinstance(command, ReplayExtended):
            self.log.extend(command.log, command.is_all)
            if command.is_single_step:
                self.pace = StepSize(self.options, self.port, True, is_columnar=self.pace.is_columnar)
        elif isinstance(command, Finished | PartReported):
            self.log.open_calls.finish(command)
        elif isinstance(command, Suspended):
            self.is_suspended, self.suspension = True, command.number
        elif isinstance(command, Resumed):
            self.is_suspended = False
        elif isinstance(command, CutAt):
            self.cut = command.checkpoint
        elif isinstance(command, Triggered) and self.reading is not None and self.log.live:
            is_due = self.reading.heed(command)
            if self.checkpoint < command.checkpoint == self.cut:
                self._put_barrier_of_cut(command)
            elif is_due:
                self._put_barrier(command)

    # ------------------------------------------------------------------ steps

    def _step(self, queue: InputQueue, count: int, is_begun: bool = False) -> None:
        """Processes the next ``count`` elements of an input: records and the watermarks between them, or a barrier, or
        the end."""
        if not is_begun:
            self.log.begin_step()
        self.at = InputRange(queue.channel, queue.next_seq, count)
        match queue.pieces[0].kind:
            case ElementKind.BARRIER:
                _, (checkpoint, is_last) = queue.take(count)
                if is_last:
                    self._stop_at(checkpoint)
                self._align(queue, checkpoint)
            case ElementKind.END:
                queue.take(count)
                queue.end()
                advance(self.chain, self.watermarks.end())
                self._align_or_end()
            case ElementKind.ROWS | ElementKind.COLUMNS | ElementKind.WATERMARK:
                self._process(queue, count)
            case _:
                assert_never(queue.pieces[0].kind)

    def _process(self, queue: InputQueue, count: int) -> None:
        """Processes records and the watermarks between them in parts, which follow from the elements alone."""
        began_ns = self.pace.begin()
        first_seq, watermarks = queue.next_seq, 0
        while (passed := queue.next_seq - first_seq) < count:
            kind, batch = queue.take(count - passed)
            try:
                if kind is ElementKind.WATERMARK:
                    watermarks += 1
                    advance(self.chain, self.watermarks.take(queue.channel, batch))
                    continue
                if kind is ElementKind.COLUMNS:
                    self.pace.expect_columns()
                process(self.chain, kind, queue.port, batch)
            except StepFailed as failed:
                failed.move(None if kind is ElementKind.WATERMARK else passed)
                raise
        if watermarks:  # the cost and the output of timers are not those of a record, so later steps keep their size
            self.records_in += count - watermarks
            self.emit()
        else:
            self.finish_step(count, began_ns)

    def begin_read(self, count: int | None) -> None:
        """Notes that the current step reads ``count`` records of a source; None: it has not begun."""
        self.at = InputRange(None, self.records_in, count) if count else None

    def finish_step(self, count: int, began_ns: int) -> None:
        """Ends a step over ``count`` elements and emits it, in replay with the complete steps after it in the log."""
        self.pace.measure(count, began_ns)
        self.records_in += count
        self._held_count += count
        if self.outputs.are_columnar:
            self.pace.expect_columns()
        if not self.log.begins_with_whole_step or self._held_count >= self.options.step_records_max:
            self.pace.produced(self._held_count, self.emit())

    def _fire(self, instant_ns: int) -> None:
        self.at = None
        self.log.advance_to(instant_ns)
        self.chain.fire_timers(instant_ns)
        self.emit()

    def _take_finished(self) -> bool:
        """Hands one outcome of an asynchronous call to user code, or keeps a part of one."""
        finished = self.log.open_calls.take_finished()
        if finished is None:
            return False
        if isinstance(finished, PartReported):
            self._record_part(finished)
            return True
        self.log.begin_step()
        call = self.log.open_calls.close(finished.number)
        self.marks.complete(finished.number, self.log.open_calls.oldest)
        assert call is not None, self.task
        self.log.append(d.completion(finished.number, call.asked, finished.outcome))
        self._complete(finished.number, finished.outcome)
        return True

    def _record_part(self, reported: PartReported) -> None:
        if not self._keep_part(reported.number, reported.data):
            if reported.logged is not None:  # by a coroutine or thread that the call has left behind
                reported.logged(False)
            return
        self.log.append(d.part(reported.number, reported.asked, reported.data))
        self.emit()
        if reported.logged is not None:
            self.port.when_replicated(self.log.end_bytes, partial(reported.logged, True))

    def _keep_part(self, number: int, data: bytes) -> bool:
        """Keeps a part of an asynchronous call. Returns False if no such call is open."""
        part = self.log.open_calls.take_part(number, data)
        if part is None:
            return False
        self.at = None
        self.log.account.count_outcome(part[1])
        cast(CallingChain, self.chain).take_part(number, *part)
        return True

    def _complete(self, number: int, outcome: bytes) -> None:
        self.at = None
        self.log.account.count_outcome(outcome)
        cast(CallingChain, self.chain).complete(number, outcome)
        self.end_or_emit()

    # ------------------------------------------------------------------ barriers and end of stream

    def _put_barrier(self, trigger: Triggered) -> None:
        """Records a trigger of a source and puts its barrier, unless that one or a later one has left."""
        if trigger.checkpoint > self.checkpoint:
            tag = d.LAST_TRIGGER if trigger.then_pause else d.TRIGGER
            self.log.append(d.numbers(tag, trigger.checkpoint))
            self._trigger(trigger.checkpoint, tag)

    def _trigger(self, checkpoint: CheckpointId, tag: int) -> None:
        if tag == d.LAST_TRIGGER:
            self._stop_at(checkpoint)
        self._barrier(checkpoint)

    def _stop_at(self, checkpoint: CheckpointId) -> None:
        """Notes that the job stops at the barrier of a checkpoint. So it does at all later ones."""
        self.stops_at = min(self.stops_at or checkpoint, checkpoint)

    @property
    def is_at_stop(self) -> bool:
        """Whether the job stops at the current barrier."""
        return 0 < self.stops_at <= self.checkpoint

    def _align(self, queue: InputQueue, checkpoint: CheckpointId) -> None:
        queue.block(checkpoint)
        self._align_or_end()

    def _align_or_end(self) -> None:
        """Completes an alignment: a barrier stands for all earlier ones of its channel, the end of stream for all later
        ones. The earliest one leaves first, because a task after this one may wait for it with full channels."""
        open_queues = [queue for queue in self.inputs if not queue.has_ended]
        if not open_queues:
            self.end_or_emit()
            return
        if self._is_held or any(queue.blocked_by is None for queue in open_queues):
            self.emit()
            return
        earliest = min(CheckpointId(queue.blocked_by or 0) for queue in open_queues)
        for queue in open_queues:
            if queue.blocked_by == earliest:
                queue.unblock()
        self._barrier(earliest)

    def _barrier(self, checkpoint: CheckpointId) -> None:
        """Ends an epoch: the barrier leaves with the snapshot and its log entry in one indivisible emission."""
        self.checkpoint = checkpoint
        self.outputs.control(ElementKind.BARRIER, checkpoint, LAST_BARRIER if self.is_at_stop else b"")
        self.emit(self._snapshot(is_final=False))
        self.log.begin_epoch(checkpoint)
        self.pace.barrier()
        if self.reading is not None:
            self.reading.begin_epoch()

    def end_or_emit(self) -> None:
        """Ends the stream after the last asynchronous outcome, since the last timers may request further calls."""
        reading = self.reading
        has_ended = reading.has_read_all if reading is not None else all(queue.has_ended for queue in self.inputs)
        if has_ended and not self.log.open_calls:
            self.at = None
            self.chain.end_of_input()
            if not self.log.open_calls:
                self._end()
                return
        self.emit()

    def _end(self) -> None:
        self.outputs.control(ElementKind.END, CheckpointId(0))
        self.is_final = True
        self.checkpoint = CheckpointId(self.checkpoint + 1)
        self.emit(self._snapshot(is_final=True))

    def _snapshot(self, is_final: bool) -> Taken:
        """Takes the state at a barrier, full the first time, and the whole state beside it when the chain is long."""
        # The label of a final state is one above that of the last barrier, so it counts for all later checkpoints.
        changes = self.chain.snapshot(self.checkpoint, self._snapshots.is_empty)
        if self._activation.is_shadow and not self.log.live:
            changes = encode_now(changes)  # it may be stored much later
        is_due = self.log.live and self._snapshots.is_long(self.options.snapshot_chain_max)
        return Taken(changes, self.chain.whole_state() if is_due and not is_final else None, is_final)

    def _encode_snapshot(self, taken: Taken, log_offset_bytes: int) -> Snapshot:
        return Snapshot(
            format=SNAPSHOT_FORMAT,
            task=self.task,
            incarnation=self.incarnation,
            checkpoint=self.checkpoint,
            previous=self._snapshots.append(self.checkpoint, taken.whole is not None),
            inputs=tuple((queue.channel, queue.next_seq) for queue in self.inputs),
            outputs=tuple(sorted(self.outputs.positions().items())),
            ended=tuple(queue.channel for queue in self.inputs if queue.has_ended),
            log_offset_bytes=log_offset_bytes,
            instant_ns=self.log.instant_ns_last,
            final=taken.is_final,
            position=taken.changes.position,
            changes=taken.changes.changes,
            chain_length=self._snapshots.length,
            records_in=self.records_in,
            journal_offset_bytes=self.reading.journal_end_bytes if self.reading is not None else 0,
            calls=tuple(sorted((self.log.calls or {}).items())),
            event_time=self.watermarks.event_time(),
            blocked=blocked_inputs(self.inputs),
            metrics=self.log.metric_table.families(),
            stops_at=self.stops_at,
            waiting=taken.changes.waiting,
            sinks=taken.changes.sinks,
        )

    # ------------------------------------------------------------------ emission

    def emit(self, taken: Taken | None = None) -> int:
        """Emits the step, with the snapshot at a barrier. Returns the credit used on the channel that receives most."""
        records, self._held_count = self._held_count, 0
        outputs = self.outputs.drain()
        cost = max([cost_bytes(output.count, len(output.payload)) for output in outputs], default=0)
        read_bytes, reached_ns = (0, None) if self.reading is None else self.reading.progress
        self.port.emit(
            TaskEmission(
                log=self.log.drain(),
                outputs=outputs,
                consumed=tuple([queue.take_freed() for queue in self.inputs if queue.freed_bytes]),
                snapshot=None if taken is None else self._encode_snapshot(taken, self.log.end_bytes_followed),
                prepared=self.collected.parts(),
                records_in=self.records_in,
                journal_read_bytes=read_bytes,
                cost_bytes=cost,
                more=None if taken is None else taken.changes.more,
                whole=None if taken is None else taken.whole,
                has_reached_limit=self.collected.has_reached_limit,
                reached_ns=reached_ns,
                mark=self.marks.leave(records, outputs, self.log.open_calls.newest),
            )
        )
        return cost


class Taken(NamedTuple):
    """State taken at a barrier or at the end of the stream."""

    changes: ChainSnapshot
    whole: Pieces | None
    is_final: bool


def encode_now(changes: ChainSnapshot) -> ChainSnapshot:
    """Encodes what another thread would encode later, so that the state does not stay frozen."""
    if changes.more is None:
        return changes
    ready = ReadyPieces(changes.more)
    changes.more.release()
    return changes._replace(more=ready)
