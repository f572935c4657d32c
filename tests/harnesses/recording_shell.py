"""Effects of a slot as text: what it asks of its process is written down as people read it, and not performed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.log import determinants as d
from clonos.core.log.determinants import NAMES, LogReader
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import (
    COORDINATOR,
    ChannelId,
    Incarnation,
    LogId,
    TaskId,
    ThreadId,
    journal_of,
    owner_of,
)
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskCounter
from clonos.core.model.watermark import Activity, decode_watermark, encode_watermark
from clonos.core.ports import slot_effects as effect
from clonos.core.ports.operator_chain import Mirror
from clonos.core.ports.slot_effects import Effect, ShadowRead, TaskRead
from clonos.core.ports.task_port import Delivered, Journalled
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire import message_codec
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import SlotStatus, Snapshotted, Suspicion, TaskStatus, View
from clonos.core.wire.log_delta import Delta, Length
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import (
    AnnounceStep,
    JournalLost,
    LogLost,
    LogReply,
    LogRequest,
    SinkFenced,
    TaskFailed,
)
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from tests.harnesses.recording_chain import RecordingMirror


def elements_of(text: str) -> tuple[ElementKind, int, bytes]:
    """Kind, count and payload of a batch: rows, ``end``, ``watermark:5`` or ``watermark:idle``."""
    if text == "end":
        return ElementKind.END, 1, b""
    if text.startswith("watermark:"):
        content = text.removeprefix("watermark:")
        watermark = Activity[content.upper()] if content.isalpha() else int(content)
        return ElementKind.WATERMARK, 1, encode_watermark(watermark)
    return ElementKind.ROWS, len(text), text.encode()


def entries_of(text: str) -> bytes:
    """``s3,k,t1`` as the bytes of these entries."""
    made = {
        "s": lambda n: d.step(0, n),
        "k": lambda n: d.numbers(d.CLOCK, n),
        "r": lambda n: d.numbers(d.READ, 0, n),
        "t": lambda n: d.numbers(d.TRIGGER, n),
        "i": lambda n: d.blob(d.INTENT, b"x" * n),
    }
    return b"".join(made[word[0]](int(word[1:] or 0)) for word in text.split(",") if word)


class Words:
    """Names of a plan's tasks, channels and incarnations, short; and of what messages say."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def task(self, task: int) -> str:
        """``a``"""
        return self.plan.task_name(task).removesuffix("/0")

    def log_name(self, log: LogId) -> str:
        """``a``, and ``a*`` for its journal."""
        owner = owner_of(log)
        return self.task(owner) + "*" * (log == journal_of(owner))

    def life(self, task: int, incarnation: int) -> str:
        """``b.2``: the incarnation of b that began with the second view of its term."""
        return f"{self.task(task)}.{incarnation & 0xFFFFFFFF}"

    def channel(self, channel: int) -> str:
        found = self.plan.channels[channel]
        receiver = "sink" if found.receiver is None else self.task(found.receiver)
        return f"{self.task(found.sender)}->{receiver}"

    def log(self, data: bytes) -> str:
        reader, entries = LogReader(data), []
        while not reader.at_end:
            tag, first, count, _ = reader.next()
            entries.append(
                f"{NAMES[tag].lower()}" + (f" {first}" if first or count else "") + f"x{count}" * bool(count)
            )
        return ", ".join(entries)

    def delta(self, delta: Delta) -> str:
        start = f"{delta.offset_bytes}{'!' if delta.restart else ''}"
        is_journal = delta.log == journal_of(owner_of(delta.log))
        data = delta.data.decode() if is_journal else self.log(delta.data)
        return f"{self.log_name(delta.log)}[{start}: {data}]".replace(": ]", "]")

    def deltas(self, deltas: tuple[Delta, ...]) -> str:
        return " ".join(map(self.delta, deltas)) or "nothing"

    def lengths(self, lengths: tuple[Length, ...]) -> str:
        return " ".join(f"{self.log_name(length.log)}:{length.end_bytes}" for length in lengths) or "nothing"

    def elements(self, kind: ElementKind, count: int, checkpoint: int, payload: bytes | memoryview) -> str:
        if kind is ElementKind.BARRIER:
            return f"barrier {checkpoint}"
        if kind is ElementKind.WATERMARK:
            watermark = decode_watermark(payload)
            return watermark.name.lower() if isinstance(watermark, Activity) else f"watermark {watermark}"
        return "end" if kind is ElementKind.END else f"{bytes(payload).decode()} ({count})"

    def ends(self, message: Batch | Position | ChannelHandshake) -> tuple[str, str]:
        """Sender and receiver of its channel."""
        channel = self.plan.channels[message.channel]
        return self.life(channel.sender, message.sender), self.life(channel.receiving_task, message.receiver)

    def message(self, message: Message, payload: bytes | memoryview) -> str:
        """What is sent, in one line."""
        plan = self.plan
        match message:
            case Batch():
                what = self.elements(message.kind, message.count, message.checkpoint, payload)
                ends = " to ".join(self.ends(message))
                place = f"session {message.session}, message {message.ordinal}"
                tail = f" with {self.deltas(message.deltas)}" if message.deltas else ""
                return f"batch {ends}, {place}: {what} from {message.first_seq}{tail}"
            case Position():
                ends = " to ".join(self.ends(message))
                place = f"session {message.session}, message {message.ordinal}"
                tail = f" with {self.deltas(message.deltas)}" if message.deltas else ""
                return f"position {ends}, {place}: all below {message.next_seq}{tail}"
            case ChannelHandshake():
                ends = " to ".join(reversed(self.ends(message)))
                has = f", holds {self.lengths(message.lengths)}" if message.lengths else ""
                numbers = f"next {message.next_seq}, received {message.received_up_to}, credit {message.credit_bytes}"
                return f"handshake {ends}, session {message.session}: {numbers}{has}"
            case LogRequest(task, incarnation, _, holder, is_keeper):
                whom = f"the keeper of {self.task(holder)}" if is_keeper else self.task(holder)
                return f"log request of {self.life(task, incarnation)} to {whom}"
            case LogReply(task, incarnation, _, holder, is_keeper, _, replicas):
                who = f"the keeper of {self.task(holder)}" if is_keeper else self.task(holder)
                return f"log reply to {self.life(task, incarnation)} from {who}: {self.deltas(replicas)}"
            case AppendLog(task, incarnation, is_whole, deltas, start):
                journal = f", journal from {start}" if plan.is_journalled(task) else ""
                return f"append log {self.life(task, incarnation)}{' all' * is_whole}: {self.deltas(deltas)}{journal}"
            case AppendAck(task, incarnation, _, is_ready, lengths):
                return (
                    f"append ack {self.life(task, incarnation)}{' not ready' * (not is_ready)}: {self.lengths(lengths)}"
                )
            case StandbyUpdate(task, incarnation, checkpoint, previous, objects):
                base = "full" if previous is None else f"on {previous}"
                return f"standby update {self.life(task, incarnation)}: {checkpoint} {base}, of {len(objects)}"
            case SlotStatus(_, number, completed, tasks, standbys, keepers):
                parts = [f"{self.life(t.task, t.incarnation)} {t.phase}{_waiting(t)}" for t in tasks]
                parts += [f"standby of {self.task(task)} at {checkpoint}" for task, checkpoint in standbys]
                parts += [f"keeper of {self.life(task, incarnation)}" for task, incarnation in keepers]
                return f"status view {number & 0xFFFFFFFF}, completed {completed}: {', '.join(parts) or 'nothing'}"
            case Snapshotted(task, incarnation, checkpoint, objects, offset, prepared, final):
                what = f"{checkpoint}{' final' * final} of {len(objects)}, log {offset}"
                return f"snapshotted {self.life(task, incarnation)}: {what}" + f", prepared {len(prepared)}" * bool(
                    prepared
                )
            case View(number=number):
                return f"view {number & 0xFFFFFFFF}, as it is installed here"
            case Suspicion(_, suspect, _, is_gone):
                return f"suspicion of {suspect}: {'gone' if is_gone else 'silent'}"
        return self.report(message)

    def report(self, message: Message) -> str:
        """What is reported of a task that cannot go on by itself."""
        match message:
            case LogLost(task, incarnation, channel_id, position, received_up_to):
                where = "the log itself" if channel_id is None else self.channel(channel_id)
                return f"log lost {self.life(task, incarnation)}: {where} at {position}, received {received_up_to}"
            case JournalLost(task, incarnation):
                return f"journal lost {self.life(task, incarnation)}"
            case SinkFenced(task, incarnation, generation, by):
                who = f"{self.life(task, by)} of generation {generation & 0xFFFFFFFF}"
                return f"sink fenced {self.life(task, incarnation)}: by {who}"
            case TaskFailed(task=task, incarnation=incarnation, error=error):
                return f"failed {self.life(task, incarnation)}: {error}"
            case AnnounceStep(task, incarnation, channel_id, first_seq):
                where = "what it reads" if channel_id is None else self.channel(channel_id)
                return f"announce step {self.life(task, incarnation)}: {first_seq} of {where}"
        raise AssertionError(message)


def _waiting(status: TaskStatus) -> str:
    found = dict(status.counters)
    elements, data = found.get(TaskCounter.BACKLOG_ELEMENTS, 0), found.get(TaskCounter.BACKLOG_BYTES, 0)
    return f", {elements} elements wait" * bool(elements) + f", {data} bytes wait" * bool(data)


class RecordingShell:
    """Writes down effects instead of performing them. ``lines``: what was asked for since it was last emptied."""

    def __init__(self, plan: Plan) -> None:
        self.words = Words(plan)
        self.lines: list[str] = []
        self.closed: dict[tuple[TaskId, ThreadId], bool] = {}
        self.lives: dict[ThreadId, str] = {}  # of the threads that were started
        self.threads: dict[tuple[TaskId, Incarnation], ThreadId] = {}
        self.written: dict[str, Snapshot] = {}
        self.now = 0
        self.performers: dict[type, Callable[[Any], None]] = {
            effect.SendMessage: self.send,
            effect.StartTask: self.start_task,
            effect.PutCommand: self.put_command,
            effect.StopTask: self.stop_task,
            effect.LetGoLive: self.let_go_live,
            effect.ReportReplicated: self.report_replicated,
            effect.ConfirmAnnouncement: self.confirm_announcement,
            effect.SetOutputBudget: self.set_output_budget,
            effect.WriteSnapshot: self.write_snapshot,
            effect.WriteWholeState: self.write_whole_state,
            effect.ReadSnapshots: self.read_snapshots,
            effect.ReadAhead: self.read_ahead,
            effect.DropReadAhead: self.drop_read_ahead,
            effect.OpenSink: self.open_sink,
            effect.WriteToSink: self.write_to_sink,
            effect.ForgetSinkOutput: self.forget_sink_output,
            effect.AcknowledgeSource: self.acknowledge_source,
            effect.CloseSink: self.close_sink,
            effect.WriteSegment: self.spill,
            effect.LoadSegment: self.spill,
            effect.DeleteSegment: self.spill,
            effect.OpenProducer: self.open_producer,
            effect.HoldProducer: self.hold_producer,
            effect.AcknowledgeProducer: self.acknowledge_producer,
            effect.CloseProducer: self.close_producer,
            effect.Warn: self.warn,
            effect.RefuseMessage: self.refuse_message,
            effect.EndSlot: self.end_slot,
        }

    def perform(self, effects: list[Effect]) -> None:
        """Writes down all of them, in order."""
        for each in effects:
            self.performers[type(each)](each)

    def new_mirror(self, task: TaskId) -> Mirror:
        """Of the machine's standbys."""
        return RecordingMirror()

    def send(self, asked: effect.SendMessage) -> None:
        assert message_codec.decode_message(message_codec.encode_message(asked.message), "this slot") == asked.message
        receiver = "coordinator" if asked.slot == COORDINATOR else f"slot {asked.slot}"
        self.lines.append(f"{receiver} <- {self.words.message(asked.message, asked.payload)}")

    def _life(self, asked: Any) -> str:
        return self.words.life(asked.task, asked.incarnation)

    def _thread(self, asked: Any) -> str:
        return self.lives.get(asked.thread, self.words.task(asked.task))

    def start_task(self, asked: effect.StartTask) -> None:
        activation = asked.activation
        life = self.lives[asked.thread] = self.words.life(asked.task, activation.incarnation)
        self.threads[asked.task, activation.incarnation] = asked.thread
        state = f"at {activation.snapshot.checkpoint}" if activation.snapshot else "fresh"
        if isinstance(activation.mirror, RecordingMirror):
            state += f" with {activation.mirror.state}"
        log = self.words.log(activation.log)
        if activation.journal:
            state += f", journal {activation.journal.decode()}"
        self.lines.append(f"start {life} {state}, log from {activation.log_offset_bytes}: {log or 'empty'}")

    def put_command(self, asked: effect.PutCommand) -> None:
        life = self._thread(asked)
        match asked.command:
            case Delivered(channel, kind, count, skip, checkpoint, payload):
                what = self.words.elements(kind, count, checkpoint, payload)
                skipped = f", the first {skip} known" if skip else ""
                self.lines.append(f"{life} <- {what} on {self.words.channel(ChannelId(channel))}{skipped}")
            case Journalled(data):
                self.lines.append(f"{life} <- {data.decode() or 'nothing more'} of its journal")
            case command:
                self.lines.append(f"{life} <- {type(command).__name__.lower()} {tuple(command) or ''}".rstrip())

    def stop_task(self, asked: effect.StopTask) -> None:
        self.lines.append(f"stop {self._thread(asked)}")

    def let_go_live(self, asked: effect.LetGoLive) -> None:
        self.lines.append(f"{self._thread(asked)} may go live")

    def report_replicated(self, asked: effect.ReportReplicated) -> None:
        self.lines.append(f"{self._thread(asked)} is replicated up to {asked.end_bytes}")

    def confirm_announcement(self, asked: effect.ConfirmAnnouncement) -> None:
        self.lines.append(f"{self._thread(asked)} may take the step")

    def set_output_budget(self, asked: effect.SetOutputBudget) -> None:
        is_closed = asked.budget_bytes <= 0
        if is_closed != self.closed.get((asked.task, asked.thread), False):
            self.closed[asked.task, asked.thread] = is_closed
            self.lines.append(f"output budget of {self._thread(asked)} {'closed' if is_closed else 'open'}")

    def write_whole_state(self, asked: effect.WriteWholeState) -> None:
        self.lines.append(f"write {asked.name} beside it")

    def write_snapshot(self, asked: effect.WriteSnapshot) -> None:
        self.written[asked.name] = asked.snapshot
        self.lines.append(f"write {asked.name}")

    def read_snapshots(self, asked: effect.ReadSnapshots) -> None:
        purpose = asked.purpose
        if isinstance(purpose, ShadowRead):
            whom = f"shadow of {self.words.task(purpose.task)}, session {purpose.session}"
        else:
            kind = "task" if isinstance(purpose, TaskRead) else "standby"
            whom = f"{kind} {self.words.life(purpose.task, purpose.incarnation)}"
        self.lines.append(f"read for the {whom}: {' '.join(asked.names)}")

    def read_ahead(self, asked: effect.ReadAhead) -> None:
        self.lines.append(f"read ahead for change {asked.number}: {dict(asked.widths)}")

    def drop_read_ahead(self, _asked: effect.DropReadAhead) -> None:
        self.lines.append("drop what was read ahead")

    def spill(self, asked: effect.WriteSegment | effect.LoadSegment | effect.DeleteSegment) -> None:
        raise AssertionError(asked)

    def open_sink(self, asked: effect.OpenSink) -> None:
        where = f"generation {asked.generation}, from {asked.restored_number}"
        self.lines.append(f"register {self._life(asked)} with the sink's system, {where}")

    def close_sink(self, asked: effect.CloseSink) -> None:
        self.lines.append(f"close the sink of {self._life(asked)}")

    def write_to_sink(self, asked: effect.WriteToSink) -> None:
        what = self.words.elements(asked.kind, asked.count, 0, asked.payload)
        self.lines.append(f"sink <- {self._life(asked)}: {what} from {asked.first_seq}")

    def forget_sink_output(self, asked: effect.ForgetSinkOutput) -> None:
        self.lines.append(f"the sink of {self._life(asked)} may forget what lies below {asked.before_number}")

    def acknowledge_source(self, asked: effect.AcknowledgeSource) -> None:
        self.lines.append(f"the source of task {asked.task} may forget what lies before {asked.position!r}")

    def open_producer(self, asked: effect.OpenProducer) -> None:
        self.lines.append(f"producer of {self._life(asked)}: open at {asked.offset_bytes}")

    def hold_producer(self, asked: effect.HoldProducer) -> None:
        self.lines.append(f"producer of {self._life(asked)}: {'hold' if asked.is_held else 'go on'}")

    def acknowledge_producer(self, asked: effect.AcknowledgeProducer) -> None:
        self.lines.append(f"producer of {self._life(asked)}: acknowledge {asked.offset_bytes}")

    def close_producer(self, asked: effect.CloseProducer) -> None:
        self.lines.append(f"producer of {self._life(asked)}: close")

    def warn(self, asked: effect.Warn) -> None:
        self.lines.append(f"warning: {asked.text}")

    def refuse_message(self, asked: effect.RefuseMessage) -> None:
        raise asked.error

    def end_slot(self, asked: effect.EndSlot) -> None:
        self.lines.append(f"the slot ends: {asked.reason or 'done'}")


__all__ = ["RecordingShell", "Words", "decode_snapshot"]
