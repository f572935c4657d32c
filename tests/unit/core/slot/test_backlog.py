"""Backlog of a task as its slot reports it: the coordinator decides by it which task has caught up."""

from __future__ import annotations

from clonos.core.channel.credit import cost_bytes
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, SlotId
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskCounter
from clonos.core.ports.task_port import TaskEmission
from clonos.core.slot.slot_events import MessageReceived, PeerBack, StepEmitted
from clonos.core.wire.channel_messages import Batch, Position
from tests.harnesses.sample_plans import shuffle
from tests.harnesses.slot_harness import LIFE, SlotHarness

COUNT = 2
"""The first receiver of ``shuffle(2)``; its inputs are channels 0 and 2, its sources live in slots 10 and 11."""
INPUTS = {ChannelId(0): SlotId(10), ChannelId(2): SlotId(11)}


class Receiver(SlotHarness):
    """A slot that hosts a task with two inputs, whose senders the test speaks for."""

    def __init__(self) -> None:
        super().__init__(Options(), shuffle(2), COUNT)
        assert [channel.id for channel in self.plan.inputs[self.task]] == list(INPUTS)
        self.ordinals = dict.fromkeys(INPUTS, 0)
        self.sent_seq = dict.fromkeys(INPUTS, 0)
        self.begin()

    def session(self, channel: ChannelId) -> int:
        return self.slot.hosted[self.task].inputs.receivers[channel].session

    def send(self, channel: ChannelId, count: int) -> None:
        """The sender sends ``count`` elements."""
        head = channel, LIFE, LIFE, self.session(channel), self.ordinals[channel]
        batch = Batch(*head, self.sent_seq[channel], ElementKind.ROWS, count, CheckpointId(0), ())
        self.ordinals[channel] += 1
        self.sent_seq[channel] += count
        self.post(MessageReceived(INPUTS[channel], batch, b"x" * count))

    def heartbeat(self, channel: ChannelId, produced_seq: int) -> None:
        """The sender's heartbeat: it has produced all elements below ``produced_seq``."""
        head = channel, LIFE, LIFE, self.session(channel), self.ordinals[channel]
        self.ordinals[channel] += 1
        self.post(MessageReceived(INPUTS[channel], Position(*head, self.sent_seq[channel], produced_seq, ())))

    def process(self, channel: ChannelId, next_seq: int, count: int) -> None:
        """The task has processed a batch of ``count`` elements, and with it all below ``next_seq``."""
        consumed = ((channel, next_seq, cost_bytes(count, count)),)
        self.post(StepEmitted(self.task, self.thread, TaskEmission(b"", consumed=consumed)))

    def backlog(self) -> int | None:
        """The backlog that the slot reports."""
        self.tick()
        assert self.status.tasks[0].phase == "live"
        return self.counters.get(TaskCounter.BACKLOG_ELEMENTS)


def test_the_backlog_is_produced_minus_processed_over_all_senders() -> None:
    receiver = Receiver()
    first, second = INPUTS
    receiver.send(first, 10)
    receiver.heartbeat(first, produced_seq=25)  # 15 of them wait for credit
    receiver.heartbeat(second, produced_seq=4)
    assert receiver.backlog() == 29
    receiver.process(first, next_seq=10, count=10)
    assert receiver.backlog() == 19
    receiver.send(second, 4)
    assert receiver.backlog() == 19  # sent or not, they wait
    receiver.process(second, next_seq=4, count=4)
    receiver.send(first, 15)
    receiver.process(first, next_seq=25, count=15)
    assert receiver.backlog() == 0


def test_input_that_arrived_since_the_senders_heartbeat_counts_towards_the_backlog() -> None:
    receiver = Receiver()
    for channel in INPUTS:
        receiver.heartbeat(channel, produced_seq=0)
    assert receiver.backlog() == 0
    receiver.send(next(iter(INPUTS)), 3)
    assert receiver.backlog() == 3


def test_the_backlog_is_unknown_until_every_sender_has_reported_in_this_session() -> None:
    receiver = Receiver()
    first, second = INPUTS
    receiver.send(first, 1)  # elements alone do not tell what waits behind them
    receiver.heartbeat(second, produced_seq=0)
    assert receiver.backlog() is None
    receiver.heartbeat(first, produced_seq=1)
    assert receiver.backlog() == 1
    receiver.post(PeerBack(INPUTS[second]))  # its connection broke: a new session begins
    assert receiver.backlog() is None


def test_a_source_has_no_backlog() -> None:
    bench = SlotHarness(Options())
    bench.begin()
    bench.tick()
    assert bench.counters[TaskCounter.BACKLOG_ELEMENTS] == 0


def test_a_sender_reports_its_produced_elements_with_or_without_credit() -> None:
    bench = SlotHarness(Options())
    bench.begin()
    bench.state(0, session=2, credit_bytes=1)  # for one element
    bench.emit((0, b"sent"), (0, b"waits"), (0, b"waits"), (1, b"sent"))
    bench.shell.sent.clear()
    bench.tick()
    positions = [message for _, message, _ in bench.shell.sent if isinstance(message, Position)]
    assert [(p.channel, p.next_seq, p.produced_seq) for p in positions] == [(0, 1, 3), (1, 1, 1)]
