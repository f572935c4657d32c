"""Port of a task in a replay: it delivers the recorded input, takes the output, and refuses everything else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.model.errors import JobError
from clonos.core.model.ids import ChannelId
from clonos.core.ports.task_port import Command, Delivered, TaskEmission, TaskStopped
from clonos.core.task.record_or_replay import TaskLog
from clonos.core.wire.capture_messages import Elements
from clonos.replay.epoch import Epoch


class RecordEnded(TaskStopped):
    """Raised in the task where the log ends, because a replay records nothing new."""


class RecordTorn(JobError):
    """The record has less input than its log says that the task has processed."""

    task: str
    what: str
    missing: tuple[str, ...]  # sentences of the record about what it lacks

    def __str__(self) -> str:
        reason = f" It was made without {'; '.join(self.missing)}." if self.missing else ""
        return (
            f"the record of {self.task} is torn: {self.what}.{reason} Its epoch cannot be replayed beyond this place;"
            " an earlier one of the same task may be whole."
        )


class RecordedPort:
    """``TaskPort`` of a replay, in the thread that runs the task. ``emitted`` gets each emission."""

    def __init__(self, epoch: Epoch, positions: dict[ChannelId, int]) -> None:
        """``positions``: of the snapshot, the number of the next element of each input channel."""
        self.emitted: Callable[[TaskEmission], None] = lambda emission: None
        self.ended: RecordEnded | None = None  # the first one, whose traceback has the call that has no outcome
        self._epoch = epoch
        self._positions = positions
        self._waiting = {channel: deque(elements) for channel, elements in epoch.input.items()}
        self._commands: deque[Command] = deque()

    def receive(self, until_ns: int | None) -> Command | None:
        """Returns the next elements. Raises: RecordEnded."""
        if self.ended is not None:
            raise RecordEnded
        if self._commands:
            return self._commands.popleft()
        if until_ns == 0:
            return None
        self.end()

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        """Delivers the elements of a channel up to ``next_seq``. Raises: RecordTorn."""
        waiting = self._waiting.get(channel, deque())
        reached = self._positions.get(channel, 0)
        while waiting and waiting[0].first_seq < next_seq:
            element = waiting.popleft()
            skip = max(0, reached - element.first_seq)
            reached = element.first_seq + element.count
            if skip < element.count:
                self._commands.append(_delivered(channel, element, skip))
        self._positions[channel] = reached
        if reached < next_seq:
            end = f"its input from channel {channel} ends at element {reached:,}, and the log reads up to {next_seq:,}"
            raise RecordTorn(self._epoch.task, end, self._epoch.head.missing)

    def deliver_rest(self) -> None:
        """Delivers the elements that no step of the log has taken."""
        for channel, waiting in self._waiting.items():
            if waiting:
                self.needs(channel, waiting[-1].first_seq + waiting[-1].count)

    def emit(self, emission: TaskEmission) -> None:
        """Takes an emission."""
        if self.ended is not None:  # user code has caught the end of the log
            raise RecordEnded
        self.emitted(emission)

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> None:
        """Ends the replay, because the log has ended. Raises: RecordEnded."""
        self.end()

    def end(self) -> NoReturn:
        """Ends the replay. Raises: RecordEnded."""
        if self.ended is not None:
            raise RecordEnded
        self.ended = RecordEnded()
        raise self.ended

    def budget_bytes(self) -> int:
        """Returns no limit."""
        return UNLIMITED

    def now_ns(self) -> int:
        """Returns the time of the snapshot; nothing of it reaches the task's results."""
        return self._epoch.snapshot.instant_ns if self._epoch.snapshot is not None else 0

    def cost_clock_ns(self) -> int:
        """Returns 0: a replay measures no step."""
        return 0

    def await_replicated(self, log_end_bytes: int) -> None:
        """Raises: RecordEnded."""
        self.end()

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Raises: RecordEnded."""
        self.end()

    def open_journal(self) -> NoReturn:
        """Raises: RecordEnded."""
        self.end()

    def lose_journal(self) -> NoReturn:
        """Raises: RecordTorn."""
        what = "its journal ends before the log has read all of it"
        raise RecordTorn(self._epoch.task, what, self._epoch.head.missing)

    def entropy(self, count: int) -> bytes:
        """Raises: RecordEnded."""
        self.end()

    def perform(self, function: Any, key: str) -> object:
        """Raises: RecordEnded."""
        self.end()

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        """Raises: RecordEnded."""
        self.end()

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        """Raises: RecordEnded."""
        self.end()

    def end_calls(self) -> None:
        """Does nothing: a replay makes no call."""

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        """Raises: RecordEnded."""
        self.end()


def _delivered(channel: ChannelId, element: Elements, skip: int) -> Delivered:
    return Delivered(channel, element.kind, element.count, skip, element.checkpoint, element.payload)


def call_without_outcome(ended: BaseException) -> str:
    """Returns the name of the service that user code called where the log ended, "" if it called none."""
    traceback = ended.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is TaskLog.call.__code__:
            return str(traceback.tb_frame.f_locals["service"])
        traceback = traceback.tb_next
    return ""
