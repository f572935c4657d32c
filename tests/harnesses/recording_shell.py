"""A slot's shell that performs nothing and writes down, as people read it, all that it is asked for."""

from __future__ import annotations

from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.log import determinants as d
from clonos.core.log.determinants import NAMES, LogReader
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import (
    COORDINATOR,
    ChannelId,
    Incarnation,
    LogId,
    SlotId,
    TaskId,
    ThreadId,
    journal_of,
    owner_of,
)
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskCounter
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.slot_shell import ProducerConnections, ReadPurpose, ShadowRead, SlotShell, SpillStore, TaskRead
from clonos.core.ports.task_port import Activation, Command, Delivered, Journalled, TaskHandle
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire import codec
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
from tests.harnesses.channel_pair import NoDisk
from tests.harnesses.recording_chain import RecordingMirror


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
        receiver = "outside" if found.receiver is None else self.task(found.receiver)
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
                numbers = f"next {message.next_seq}, claim {message.claim}, credit {message.credit_bytes}"
                return f"statement {ends}, session {message.session}: {numbers}{has}"
            case LogRequest(task, incarnation, _, holder, is_keeper):
                whom = f"the keeper of {self.task(holder)}" if is_keeper else self.task(holder)
                return f"question of {self.life(task, incarnation)} to {whom}"
            case LogReply(task, incarnation, _, holder, is_keeper, _, replicas):
                who = f"the keeper of {self.task(holder)}" if is_keeper else self.task(holder)
                return f"answer to {self.life(task, incarnation)} from {who}: {self.deltas(replicas)}"
            case AppendLog(task, incarnation, is_whole, deltas, start):
                journal = f", journal from {start}" if plan.is_journalled(task) else ""
                return f"keep {self.life(task, incarnation)}{' all' * is_whole}: {self.deltas(deltas)}{journal}"
            case AppendAck(task, incarnation, _, is_ready, lengths):
                return f"kept {self.life(task, incarnation)}{' not ready' * (not is_ready)}: {self.lengths(lengths)}"
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
                return f"accusation of {suspect}: {'gone' if is_gone else 'silent'}"
        return self.report(message)

    def report(self, message: Message) -> str:
        """What is reported of a task that cannot go on by itself."""
        match message:
            case LogLost(task, incarnation, channel_id, position, claim):
                where = "the log itself" if channel_id is None else self.channel(channel_id)
                return f"log lost {self.life(task, incarnation)}: {where} at {position}, claimed {claim}"
            case JournalLost(task, incarnation):
                return f"journal lost {self.life(task, incarnation)}"
            case SinkFenced(task, incarnation, generation, by):
                who = f"{self.life(task, by)} of generation {generation & 0xFFFFFFFF}"
                return f"sink fenced {self.life(task, incarnation)}: by {who}"
            case TaskFailed(task=task, incarnation=incarnation, error=error):
                return f"failed {self.life(task, incarnation)}: {error}"
            case AnnounceStep(task, incarnation, channel_id, first_seq):
                where = "what it reads" if channel_id is None else self.channel(channel_id)
                return f"approaching {self.life(task, incarnation)}: {first_seq} of {where}"
        raise AssertionError(message)


def _waiting(status: TaskStatus) -> str:
    found = dict(status.counters)
    elements, data = found.get(TaskCounter.BACKLOG_ELEMENTS, 0), found.get(TaskCounter.BACKLOG_BYTES, 0)
    return f", {elements} elements wait" * bool(elements) + f", {data} bytes wait" * bool(data)


class RecordingIntakes(ProducerConnections):
    """Connections that are never made."""

    def __init__(self, shell: RecordingShell) -> None:
        self.shell = shell

    def _say(self, task: TaskId, incarnation: Incarnation, what: str) -> None:
        self.shell.said.append(f"intake of {self.shell.words.life(task, incarnation)}: {what}")

    def open(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        self._say(task, incarnation, f"open at {offset_bytes}")

    def hold(self, task: TaskId, incarnation: Incarnation, held: bool) -> None:
        self._say(task, incarnation, "hold" if held else "go on")

    def acknowledge(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        self._say(task, incarnation, f"kept up to {offset_bytes}")

    def close(self, task: TaskId, incarnation: Incarnation) -> None:
        self._say(task, incarnation, "close")


class RecordingShell(SlotShell):
    """``said``: what was asked for since it was last emptied."""

    def __init__(self, plan: Plan) -> None:
        self.words = Words(plan)
        self.said: list[str] = []
        self.closed: dict[tuple[TaskId, ThreadId], bool] = {}
        self.lives: dict[ThreadId, str] = {}  # of the threads that were started
        self.threads: dict[tuple[TaskId, Incarnation], ThreadId] = {}
        self.written: dict[str, Snapshot] = {}
        self.now = 0
        self._producers = RecordingIntakes(self)

    @property
    def spill(self) -> SpillStore:
        return NoDisk()

    @property
    def producers(self) -> ProducerConnections:
        return self._producers

    def send(self, slot: SlotId, message: Message, payload: bytes | memoryview = b"") -> None:
        assert codec.decode_message(codec.encode_message(message), "this slot") == message
        receiver = "coordinator" if slot == COORDINATOR else f"slot {slot}"
        self.said.append(f"{receiver} <- {self.words.message(message, payload)}")

    def start_task(self, task: TaskId, thread: ThreadId, activation: Activation) -> TaskHandle:
        life = self.lives[thread] = self.words.life(task, activation.incarnation)
        self.threads[task, activation.incarnation] = thread
        state = f"at {activation.snapshot.checkpoint}" if activation.snapshot else "fresh"
        if isinstance(activation.mirror, RecordingMirror):
            state += f" with {activation.mirror.state}"
        log = self.words.log(activation.log)
        if activation.journal:
            state += f", journal {activation.journal.decode()}"
        self.said.append(f"start {life} {state}, log from {activation.log_offset_bytes}: {log or 'empty'}")
        return _Handle(self, life)

    def stop_task(self, task: TaskId, thread: ThreadId) -> None:
        self.said.append(f"stop {self.lives.get(thread, self.words.task(task))}")

    def go_live(self, task: TaskId, thread: ThreadId) -> None:
        self.said.append(f"{self.lives.get(thread, self.words.task(task))} may go live")

    def replicated_to(self, task: TaskId, thread: ThreadId, end_bytes: int) -> None:
        self.said.append(f"{self.lives.get(thread, self.words.task(task))} is kept up to {end_bytes}")

    def noted(self, task: TaskId, thread: ThreadId) -> None:
        self.said.append(f"{self.lives.get(thread, self.words.task(task))} is noted")

    def set_output_budget(self, task: TaskId, thread: ThreadId, budget_bytes: int, handled_bytes: int) -> None:
        is_closed = budget_bytes <= 0
        if is_closed != self.closed.get((task, thread), False):
            self.closed[task, thread] = is_closed
            self.said.append(
                f"gate of {self.lives.get(thread, self.words.task(task))} {'closed' if is_closed else 'open'}"
            )

    def new_mirror(self, task: TaskId) -> Mirror:
        return RecordingMirror()

    def write_whole(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        self.said.append(f"write {name} beside it")

    def write_snapshot(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        self.written[name] = snapshot
        self.said.append(f"write {name}")

    def read_objects(self, purpose: ReadPurpose, names: tuple[str, ...]) -> None:
        if isinstance(purpose, ShadowRead):
            whom = f"shadow of {self.words.task(purpose.task)}, session {purpose.session}"
        else:
            kind = "task" if isinstance(purpose, TaskRead) else "standby"
            whom = f"{kind} {self.words.life(purpose.task, purpose.incarnation)}"
        self.said.append(f"read for the {whom}: {' '.join(names)}")

    def open_outside(
        self, task: TaskId, incarnation: Incarnation, generation: int, job_id: str, restored_number: int
    ) -> None:
        life = self.words.life(task, incarnation)
        self.said.append(f"register {life} with the outside, generation {generation}, from {restored_number}")

    def close_outside(self, task: TaskId, incarnation: Incarnation) -> None:
        self.said.append(f"close the outside of {self.words.life(task, incarnation)}")

    def write_outside(
        self, task: TaskId, incarnation: Incarnation, first_seq: int, count: int, kind: ElementKind, payload: bytes
    ) -> None:
        what = self.words.elements(kind, count, 0, payload)
        self.said.append(f"outside <- {self.words.life(task, incarnation)}: {what} from {first_seq}")

    def forget_outside(self, task: TaskId, incarnation: Incarnation, before_number: int) -> None:
        life = self.words.life(task, incarnation)
        self.said.append(f"the outside of {life} may forget what lies below {before_number}")

    def now_ns(self) -> int:
        return self.now

    def warn(self, text: str, **fields: str | int) -> None:
        self.said.append(f"warning: {text}")

    def end(self, reason: str) -> None:
        self.said.append(f"the slot ends: {reason or 'done'}")


class _Handle(TaskHandle):
    def __init__(self, shell: RecordingShell, life: str) -> None:
        self.shell, self.life = shell, life

    def put(self, command: Command) -> None:
        match command:
            case Delivered(channel, kind, count, skip, checkpoint, payload):
                what = self.shell.words.elements(kind, count, checkpoint, payload)
                skipped = f", the first {skip} known" if skip else ""
                self.shell.said.append(
                    f"{self.life} <- {what} on {self.shell.words.channel(ChannelId(channel))}{skipped}"
                )
            case Journalled(data):
                self.shell.said.append(f"{self.life} <- {data.decode() or 'nothing more'} of its journal")
            case _:
                self.shell.said.append(
                    f"{self.life} <- {type(command).__name__.lower()} {tuple(command) or ''}".rstrip()
                )


__all__ = ["RecordingShell", "Words", "decode_snapshot"]
