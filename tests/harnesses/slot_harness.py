"""One real slot with a source, two receivers that the test speaks for, and a disk in the test's hand."""

from __future__ import annotations

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import COORDINATOR, ChannelId, CheckpointId, Incarnation, SlotId, TaskId, ThreadId, log_of
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports import slot_effects as effect
from clonos.core.ports.task_port import Output, TaskEmission
from clonos.core.slot.slot import Slot
from clonos.core.slot.slot_events import (
    Event,
    HeartbeatDue,
    LogEndReached,
    MessageReceived,
    SegmentLoaded,
    SegmentSpilled,
    SinkOpened,
    SnapshotWritten,
    StepEmitted,
)
from clonos.core.wire.channel_messages import Batch, ChannelHandshake
from clonos.core.wire.control_messages import Completed, Release, SlotStatus
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import TaskFailed
from tests.harnesses.fake_disk import FakeDisk
from tests.harnesses.recording_shell import RecordingShell
from tests.harnesses.sample_plans import number, placement, shuffle, view
from tests.unit.inflight.samples import snapshot

PLENTY_BYTES = 1 << 40
LIFE = Incarnation(number(1))


class HarnessShell(RecordingShell):
    """Keeps what it is asked for as it is."""

    def __init__(self, plan: Plan) -> None:
        self.disk = FakeDisk()
        self.sent: list[tuple[SlotId, Message, bytes]] = []
        self.gates: dict[TaskId, bool] = {}
        self.warnings: list[str] = []
        super().__init__(plan)

    def spill(self, asked: effect.WriteSegment | effect.LoadSegment | effect.DeleteSegment) -> None:
        match asked:
            case effect.WriteSegment(segment, payloads):
                self.disk.write_segment(segment, payloads)
            case effect.LoadSegment(segment):
                self.disk.load(segment)
            case effect.DeleteSegment(segment):
                self.disk.delete(segment)

    def send(self, asked: effect.SendMessage) -> None:
        self.sent.append((asked.slot, asked.message, bytes(asked.payload)))

    def set_output_budget(self, asked: effect.SetOutputBudget) -> None:
        self.gates[asked.task] = asked.budget_bytes <= 0

    def warn(self, asked: effect.Warn) -> None:
        self.warnings.append(asked.text)

    def write_to_sink(self, asked: effect.WriteToSink) -> None:
        self.sent.append((SlotId(0), Release(SlotId(0), f"outside {asked.first_seq}"), asked.payload))


class SlotHarness:
    """The slot hosts ``task`` of a plan, every other task lives in a slot of its own. Channels: those that it sends."""

    def __init__(self, options: Options, plan: Plan | None = None, task: int = 0) -> None:
        self.plan = plan or shuffle(2)
        self.task = TaskId(task)
        self.shell = HarnessShell(self.plan)
        self.disk = self.shell.disk
        self.slot = Slot(SlotId(1), self.plan, options, self.shell.new_mirror)
        self.disk.on_spilled = lambda *outcome: self.post(SegmentSpilled(*outcome))
        self.disk.on_loaded = lambda *outcome: self.post(SegmentLoaded(*outcome))
        self.options = options
        self.completed = 0
        self.positions = {channel.id: 0 for channel in self.plan.outputs[self.task]}
        self.placements = [placement(t, LIFE, 1 if t == task else t + 10) for t in range(len(self.plan.tasks))]
        self.post(MessageReceived(COORDINATOR, view(1, self.placements)))

    def post(self, event: Event) -> None:
        """An event, and all that it leads to."""
        self.shell.perform(self.slot.step(event))

    @property
    def thread(self) -> ThreadId:
        """Of the task."""
        return self.slot.hosted[self.task].thread

    @property
    def budget_failures(self) -> list[TaskFailed]:
        """What the coordinator was told."""
        return [message for _, message, _ in self.shell.sent if isinstance(message, TaskFailed)]

    @property
    def status(self) -> SlotStatus:
        """The latest one."""
        return [message for _, message, _ in self.shell.sent if isinstance(message, SlotStatus)][-1]

    def finishes(self) -> bool:
        """Whether the latest status says that a soft limit is passed."""
        return self.status.is_over_soft_limit

    @property
    def counters(self) -> dict[str, int]:
        """Of the task, as its latest status says."""
        return dict(self.status.tasks[0].counters)

    def is_out_of_budget(self) -> bool:
        """Whether the task may not begin a step."""
        return self.shell.gates.get(self.task, False)

    def state(self, channel: int, next_seq: int = 0, session: int = 1, credit_bytes: int = PLENTY_BYTES) -> None:
        """The receiver of a channel opens a session."""
        handshake = ChannelHandshake(
            ChannelId(channel), number(1), LIFE, LIFE, session, next_seq, next_seq, credit_bytes, ()
        )
        self.post(MessageReceived(SlotId(self.plan.channels[channel].receiving_task + 10), handshake))

    def begin(self) -> None:
        """All receivers state; the task starts and goes live."""
        for channel in self.plan.outputs[self.task]:
            if channel.receiver is not None:
                self.state(channel.id)
            else:
                self.post(SinkOpened(self.task, LIFE, 0, None))
        self.post(LogEndReached(self.task, self.thread, dict(self.positions)))

    def emit(self, *outputs: tuple[int, bytes], log: bytes = b"") -> None:
        """The task has done a step: one element on each channel named."""
        made = []
        for channel, payload in outputs:
            made.append(Output(ChannelId(channel), ElementKind.ROWS, 1, CheckpointId(0), payload))
            self.positions[ChannelId(channel)] += 1
        self.post(StepEmitted(self.task, self.thread, TaskEmission(log, tuple(made))))

    def complete(self) -> None:
        """A barrier goes out on all channels, its checkpoint completes."""
        self.completed += 1
        made = []
        for channel in self.plan.outputs[self.task]:
            if channel.receiver is not None:
                made.append(Output(channel.id, ElementKind.BARRIER, 1, CheckpointId(self.completed), b""))
                self.positions[channel.id] += 1
        taken = snapshot(self.completed, tuple(self.positions.items()), self.task, LIFE)
        self.post(StepEmitted(self.task, self.thread, TaskEmission(b"", tuple(made), snapshot=taken)))
        for name in list(self.shell.written):
            del self.shell.written[name]
            self.post(SnapshotWritten(name, b"encoded", ""))
        ends = tuple((t, LIFE, self.slot.hosted[self.task].logs.end_bytes(log_of(TaskId(t)))) for t in self.plan.tasks)
        self.post(MessageReceived(COORDINATOR, Completed(CheckpointId(self.completed), 1, ends)))

    def tick(self, heartbeats: int = 1) -> None:
        """Time passes."""
        for _ in range(heartbeats):
            self.shell.now += self.options.heartbeat_ms * 1_000_000
            self.post(HeartbeatDue(self.shell.now))

    def received(self, channel: int) -> list[bytes]:
        """Payloads of the batches that were sent on a channel, in order."""
        return [
            payload
            for _, message, payload in self.shell.sent
            if isinstance(message, Batch) and message.channel == channel
        ]
