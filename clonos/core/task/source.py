"""Source side of a task: reads splits or a journal where other tasks take elements from channels (protocol 2 and 7)."""

from __future__ import annotations

from typing import Any, Protocol, cast

from clonos.core.log import determinants as d
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan, Vertex
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.ports.operator_chain import Chain, JournalledChain, NothingToRead, TimedChain, WatchingChain
from clonos.core.ports.task_port import Journalled, ReadLimit, TaskPort, Triggered
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.task.latency import LatencyMarks
from clonos.core.task.poll_backoff import PollBackoff
from clonos.core.task.record_or_replay import TaskLog
from clonos.core.task.step_size import StepSize

POLL_AGAIN_NS = 5_000_000
"""Pause of a source after it found nothing to read."""


class ReadingTask(Protocol):
    """Task as its source reader sees it."""

    plan: Plan
    options: Options
    chain: Chain
    port: TaskPort
    log: TaskLog
    pace: StepSize
    marks: LatencyMarks
    records_in: int

    def take(self, command: Any) -> None:
        """Does what a command of the slot says."""

    def begin_read(self, count: int | None) -> None:
        """Notes that the current step reads ``count`` records of a source; None: it has not begun."""

    def finish_step(self, count: int, began_ns: int) -> None:
        """Counts the elements of a step that the chain has processed, and emits it."""

    def emit(self) -> int:
        """Emits the step."""

    def end_or_emit(self) -> None:
        """Ends the stream if nothing is open any more; otherwise emits the step."""


class SourceReader:
    """Input of one incarnation of a source task."""

    def __init__(self, task: ReadingTask, vertex: Vertex, snapshot: Snapshot | None) -> None:
        self.task = task
        self.is_paused = self._is_to_end = False
        self.has_read_all = False
        self._has_found_nothing = False  # at the last poll
        self._poll_backoff = PollBackoff()
        self._last_trigger: Triggered | None = None  # waits until the task has read what its producer counts as taken
        self.watch = cast(WatchingChain, task.chain) if vertex.is_watching else None
        self.drift: DriftAlignment | None = None
        if vertex.is_timed:
            self.drift = DriftAlignment(cast(TimedChain, task.chain), task.plan, task.options)
        self.journal: JournalReader | None = None
        if vertex.is_journalled:
            offset_bytes = snapshot.journal_offset_bytes if snapshot else 0
            self.journal = JournalReader(cast(JournalledChain, task.chain), task.port, offset_bytes)

    def heed(self, trigger: Triggered) -> bool:
        """Reads nothing more after a barrier that the job stops at, or at which the input is to end.

        Returns whether the barrier is due. One that the job stops at waits until the task has read all that was
        acknowledged to its producer, so that the output of the stopped job has it.
        """
        if trigger.then_pause and self.journal is not None and self.journal.has_readable:
            self._last_trigger = trigger
            return False
        self.is_paused = self.is_paused or trigger.then_pause
        self._is_to_end = self._is_to_end or trigger.then_end
        return True

    @property
    def journal_end_bytes(self) -> int:
        """End of the part of the journal that the chain was fed, 0 without a journal."""
        return self.journal.end_bytes if self.journal is not None else 0

    @property
    def progress(self) -> tuple[int, int | None]:
        """End of the part of the journal that the chain has read, 0 without a journal; and the lowest watermark of the
        splits, None without watermarks.
        """
        read_bytes = self.journal.read_bytes if self.journal is not None else 0
        return read_bytes, None if self.drift is None else self.drift.reached_ns

    def may_have_records(self) -> bool:
        """Returns whether there may be records that the source has not read: it found some at its last poll, or was
        held back since."""
        return not self._has_found_nothing

    def hold_back(self) -> None:
        """Notes that the source reads nothing although there may be records."""
        self._has_found_nothing = False
        if self.drift is not None:
            self.drift.hold_back()

    def recover(self, data: bytes) -> None:
        """Feeds the gathered journal."""
        if self.journal is not None:
            self.journal.recover(data)

    def take(self, command: Journalled | ReadLimit) -> None:
        """Feeds the next bytes of the journal, or takes over how far the source may read."""
        if isinstance(command, Journalled):
            if self.journal is not None:
                self.journal.feed(command.data)
        elif self.drift is not None:
            self.drift.limit(command.watermark_ns_max)

    def follow(self, entry: d.Entry) -> bool:
        """Replays an entry of a source. Returns False if the entry is not one of a source's."""
        tag, first, count, data = entry
        log = self.task.log
        if tag == d.READ:
            log.take()
            if self.journal is not None:
                self.journal.require(count)
            self._read(first, count)
        elif tag == d.SPLITS and self.watch is not None:
            log.take()
            self.watch.add_splits(data)
        elif tag == d.END:
            log.take()
            log.begin_step()
            self._end()
        else:
            return False
        return True

    def live_step(self, budget_bytes: int) -> None:
        """Reads the records that are available, up to the limit of a step."""
        task = self.task
        if self.drift is not None and self.drift.take_report():
            task.emit()
        if self._last_trigger is not None and self.journal is not None and not self.journal.has_readable:
            trigger, self._last_trigger = self._last_trigger, None
            task.take(trigger)
            return
        if self.is_paused or self.has_read_all:
            task.take(task.port.receive(task.chain.next_timer_ns() if self.has_read_all else None))
            return
        if self.journal is not None:
            self.journal.open()
        task.begin_read(None)
        now_ns = task.port.now_ns()
        if self.watch is not None and (splits := self.watch.discover_splits(now_ns)):
            task.log.append(d.blob(d.SPLITS, splits))
            self.watch.add_splits(splits)
        if now_ns < self._poll_backoff.until_ns:
            task.take(task.port.receive(self._poll_backoff.until_ns))
            return
        began_ns = task.pace.begin()
        is_released = self.journal.is_released if self.journal is not None else not self._is_ahead()
        limit = task.pace.limit(budget_bytes, task.log.open_calls.room) if is_released else 0
        found = task.chain.poll(limit) if limit else NothingToRead.NOW
        self._has_found_nothing = bool(limit) and isinstance(found, NothingToRead)
        if self._is_to_end:
            found = NothingToRead.ALL_READ
        if found is NothingToRead.NOW:
            if limit and self.watch is None:
                self._poll_backoff.found_nothing()
            due_ns = task.chain.next_timer_ns()
            again_ns = now_ns + POLL_AGAIN_NS
            task.take(task.port.receive(again_ns if due_ns is None else min(due_ns, again_ns)))
            return
        if found is NothingToRead.ALL_READ:
            task.log.begin_step()
            task.log.append(d.numbers(d.END))
            self._end()
            return
        split, count = found
        if count:
            task.pace.announce_step(None, task.records_in)
            task.marks.read(now_ns)
        task.log.begin_step()
        task.log.append(d.numbers(d.READ, split, count))
        self._read(split, count, is_begun=True)
        if count:
            self._poll_backoff.measure(count, limit, now_ns, task.pace.begin() - began_ns)

    def _is_ahead(self) -> bool:
        return self.drift is not None and self.drift.is_ahead()

    def _read(self, split: int, count: int, is_begun: bool = False) -> None:
        task = self.task
        if not is_begun:
            task.log.begin_step()
        task.begin_read(count)
        began_ns = task.pace.begin()
        task.chain.read(split, count)
        if count:
            task.finish_step(count, began_ns)
        else:
            task.end_or_emit()

    def begin_epoch(self) -> None:
        """Lets the source end again: it does in each epoch with open calls."""
        self.has_read_all = False

    def _end(self) -> None:
        self.has_read_all = True
        self.task.end_or_emit()


class DriftAlignment:
    """Drift alignment of one incarnation of a source: it reads no more while it is too far ahead of the slowest source
    (protocol 2.2). That it waits is in no log, because what it reads is."""

    __slots__ = ("_chain", "_is_report_due", "_watermark_ns_max")

    def __init__(self, chain: TimedChain, plan: Plan, options: Options) -> None:
        is_on = plan.has_drift_limit(options)
        self._chain, self._is_report_due = chain, is_on
        self._watermark_ns_max = INSTANT_NS_MIN if is_on else END_OF_TIME_NS  # it waits for the first limit

    def limit(self, watermark_ns_max: int) -> None:
        """Takes over the instant above which the source reads nothing."""
        self._watermark_ns_max = watermark_ns_max

    @property
    def reached_ns(self) -> int:
        """Instant that the source reports: other sources may be ahead of it by the drift."""
        return self._chain.reached_ns()

    def take_report(self) -> bool:
        """Returns True once, because a restored source that finds nothing to read has to report too."""
        is_due, self._is_report_due = self._is_report_due, False
        return is_due

    def is_ahead(self) -> bool:
        """Returns whether the source has to wait. A source that is idle, or has no watermark yet, reads on."""
        if not self._watermark_ns_max < self._chain.reached_ns() < END_OF_TIME_NS:
            return False
        self.hold_back()
        return True

    def hold_back(self) -> None:
        """Notes that the source reads nothing, so that none of its splits is taken for idle."""
        self._chain.hold_back()


class JournalReader:
    """Reader of one incarnation's journal: what the chain was fed and what it has read (protocol 7)."""

    __slots__ = ("_chain", "_is_wanted", "_port", "end_bytes", "is_released")

    def __init__(self, chain: JournalledChain, port: TaskPort, offset_bytes: int) -> None:
        self._chain, self._port = chain, port
        self.end_bytes = offset_bytes  # end of what the chain was fed
        self.is_released = True  # whether a live task may read what was fed
        self._is_wanted = True

    @property
    def read_bytes(self) -> int:
        """Offset up to which the chain has read."""
        return self.end_bytes - self._chain.unread_bytes()

    @property
    def has_readable(self) -> bool:
        """Whether the chain has records that a live task may read."""
        return self.is_released and self._chain.unread_bytes() > 0

    def recover(self, data: bytes) -> None:
        """Feeds the gathered journal, for replay only, because some keepers may lack a part of it."""
        self.feed(data)
        self.is_released = not data

    def feed(self, data: bytes) -> None:
        """Feeds the next bytes, which every keeper holds together with everything gathered."""
        self._is_wanted &= self._chain.feed(data)
        self.end_bytes += len(data)
        self.is_released = True

    def require(self, count: int) -> None:
        """Checks that replay finds the next ``count`` records. Otherwise it reports the journal as lost."""
        found = self._chain.poll(count)
        if isinstance(found, NothingToRead) or found[1] < count:
            self._port.lose_journal()

    def open(self) -> None:
        """Requests more input once the task is live, unless the journal has ended. Requests once only."""
        if self._is_wanted:
            self._is_wanted = False
            self._port.open_journal()
