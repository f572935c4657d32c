"""Reports of a task to the coordinator, repeated until answered: a failure, and its next step (protocol 6.9)."""

from __future__ import annotations

from clonos.core.model.ids import COORDINATOR, ChannelId, Incarnation, TaskId
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.wire.recovery_messages import AnnounceAck, AnnounceStep, Recourse, TaskFailed


class TaskReports:
    """Reports of one incarnation, repeated at the heartbeat."""

    __slots__ = ("announced_step", "failed", "incarnation", "shell", "task")

    def __init__(self, task: TaskId, incarnation: Incarnation, shell: EffectCollector) -> None:
        self.task, self.incarnation, self.shell = task, incarnation, shell
        self.failed: TaskFailed | None = None
        self.announced_step: AnnounceStep | None = None  # what a task in single-step mode waits to have acknowledged

    @property
    def is_retried(self) -> bool:
        """Whether nothing has failed that another incarnation would not get over."""
        return self.failed is None or self.failed.recourse in (Recourse.RETRY, Recourse.ELSEWHERE)

    def fail(self, failed: TaskFailed) -> None:
        """Reports that something has failed that the incarnation needs."""
        self.failed = failed
        self.shell.send(COORDINATOR, failed)

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Announces the element that a task in single-step mode is about to take."""
        self.announced_step = AnnounceStep(self.task, self.incarnation, channel, first_seq)
        self.shell.send(COORDINATOR, self.announced_step)

    def on_acknowledged(self, announce_ack: AnnounceAck) -> bool:
        """Returns whether this acknowledges the step that the task waits with."""
        announced = self.announced_step
        if announced is None or (announced.channel, announced.first_seq) != (
            announce_ack.channel,
            announce_ack.first_seq,
        ):
            return False
        self.announced_step = None
        return True

    def tick(self) -> None:
        """Repeats the reports."""
        for report in (self.failed, self.announced_step):
            if report is not None:
                self.shell.send(COORDINATOR, report)
