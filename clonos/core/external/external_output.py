"""Task's end of its keepers, and of the channel to an external system (protocol 3 and 7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from clonos.core.channel.inflight_log import Chunk, InflightLog
from clonos.core.log.causal_log import CausalLogs
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import CheckpointId, Incarnation, LogId, SlotId, TaskId
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.replication_messages import AppendAck, AppendLog

Requirement = dict[LogId, int]
"""Length that keepers must have acknowledged, by log."""


class KeeperLink:
    """Link to one keeper: what the keeper has acknowledged."""

    __slots__ = ("acknowledged", "coverage", "dirty", "is_awaited", "is_ready", "ordinal", "shipped", "slot")

    def __init__(self, slot: SlotId, coverage: Coverage | None = None) -> None:
        self.slot = slot
        self.coverage = coverage  # of the task, where sharing stops
        self.acknowledged: dict[LogId, int] = {}
        #: Invariant: nothing is acknowledged by a keeper that is not ready
        self.shipped: dict[LogId, int] = {}
        self.dirty: dict[LogId, None] = {}
        self.is_ready = False  # has acknowledged a whole ``AppendLog``, so holds all that its task held then
        self.is_awaited = False  # a message is on its way
        self.ordinal = 0  # of the next message

    def message(
        self, task: TaskId, incarnation: Incarnation, is_whole: bool, logs: CausalLogs, journal_start_bytes: int = 0
    ) -> AppendLog:
        """Returns the next message, with what has not been shipped yet."""
        ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        self.is_awaited = True
        return AppendLog(task, incarnation, is_whole, self.deltas(logs), journal_start_bytes, ordinal)

    def mark(self, log: LogId) -> None:
        """Marks a log that has grown: it is shipped with the next message."""
        self.dirty[log] = None

    def await_nothing(self) -> None:
        """Stops waiting for the acknowledgement of the last message, which may be lost."""
        self.is_awaited = False

    def deltas(self, logs: CausalLogs) -> tuple[Delta, ...]:
        """Returns what has not been shipped yet."""
        return tuple(logs.take_unshipped(self.dirty, self.shipped))

    def acknowledge(self, acknowledgement: AppendAck) -> None:
        """Takes in an acknowledgement; that of a keeper which is not ready withdraws earlier ones."""
        self.is_awaited = False
        self.is_ready = acknowledgement.is_ready
        if not acknowledgement.is_ready:
            self.acknowledged.clear()
            return
        for length in acknowledgement.lengths:
            if length.end_bytes > self.acknowledged.get(length.log, -1):
                self.acknowledged[length.log] = length.end_bytes

    def rewind(self, logs: CausalLogs, only: Iterable[LogId] | None = None) -> None:
        """Ships again what the keeper has not acknowledged: at the heartbeat, and to a keeper that is not ready."""
        for log in logs.replicas if only is None else only:
            if self.acknowledged.get(log, -1) < logs.end_bytes(log):
                self.shipped[log] = self.acknowledged.get(log, -1)
                self.dirty[log] = None

    def validate(self, logs: CausalLogs) -> None:
        """Asserts what holds between two events."""
        assert self.is_ready or not self.acknowledged, (self.slot, self.acknowledged)
        assert self.ordinal >= 0 and self.dirty.keys() <= logs.replicas.keys(), (self.slot, self.dirty)

    def satisfies(self, requirement: Requirement) -> bool:
        """Whether all that is required has been acknowledged."""
        return self.is_ready and all(
            self.acknowledged.get(log, -1) >= end or self._is_held_elsewhere(log, end)
            for log, end in requirement.items()
        )

    def _is_held_elsewhere(self, log: LogId, end_bytes: int) -> bool:
        """Whether a log of another task has been covered meanwhile: it is no longer sent to keepers."""
        coverage = self.coverage
        return coverage is not None and log != coverage.own_log and coverage.covered.get(log, 0) >= end_bytes


def held_by(links: Iterable[KeeperLink]) -> dict[SlotId, dict[LogId, int]]:
    """Returns what the ready keepers have acknowledged: per slot, the end of each log in bytes."""
    return {link.slot: link.acknowledged for link in links if link.is_ready}


class ExternalOutput:
    """Sender of the channel to an external system: releases output in order, and keeps it until it is confirmed."""

    __slots__ = ("received_up_to", "confirmed_seq", "cursor", "held_seq", "log", "releases", "unreleased_seq")

    def __init__(self, log: InflightLog) -> None:
        self.log = log
        self.received_up_to: int | None = None  # next number of the external system at registration
        self.confirmed_seq = 0
        self.cursor = 0
        self.releases: deque[tuple[int, Requirement]] = deque()  # (end, what keepers must hold before it leaves)
        self.unreleased_seq = log.next_seq
        self.held_seq: int | None = None  # output from this number on does not leave, because the job stops before it
        #: Invariant: unreleased_seq < each end in releases, which ascend up to the end of the log
        #: Invariant: received_up_to <= confirmed_seq, once registered; then also log.start_seq <= cursor

    @property
    def has_unconfirmed(self) -> bool:
        """Whether the external system has not confirmed all output."""
        return self.received_up_to is None or self.confirmed_seq < self.log.next_seq

    def open(self, next_number: int) -> None:
        """Continues after what the external system has, which has registered this incarnation."""
        self.received_up_to = self.confirmed_seq = self.cursor = next_number
        self.log.truncate(next_number)

    def append(self, kind: ElementKind, count: int, payload: bytes, requirement: Requirement) -> None:
        """Appends output of the task; it may leave when ``requirement`` is met."""
        self.log.append(kind, count, CheckpointId(0), payload)
        self.releases.append((self.log.next_seq, requirement))
        self.log.truncate(min(self.confirmed_seq, self.log.next_seq))

    def hold_from(self, held_seq: int | None) -> None:
        """Lets no output from this number on leave; None: lets all leave."""
        self.held_seq = held_seq

    def release(self, links: list[KeeperLink], has_keepers: bool) -> list[Chunk]:
        """Returns the chunks that may leave now."""
        if self.received_up_to is None or (has_keepers and not links):
            return []
        while self.releases and self._is_free(self.releases[0], links):
            self.unreleased_seq = self.releases.popleft()[0]
        found = []
        while self.cursor < self.unreleased_seq:
            chunk = self.log.read(self.cursor)
            if chunk is None:
                break
            self.cursor = chunk.first_seq + chunk.count
            found.append(chunk)
        return found

    def _is_free(self, entry: tuple[int, Requirement], links: list[KeeperLink]) -> bool:
        end, requirement = entry
        if self.held_seq is not None and end > self.held_seq:
            return False
        return end <= self.confirmed_seq or all(link.satisfies(requirement) for link in links)

    def validate(self) -> None:
        """Asserts what holds between two events."""
        self.log.validate()
        ends = [self.unreleased_seq, *[end for end, _ in self.releases]]
        assert ends == sorted(ends) and ends[-1] == self.log.next_seq, (ends, self.log.next_seq)
        if self.received_up_to is not None:
            assert self.received_up_to <= self.confirmed_seq, (self.received_up_to, self.confirmed_seq)
            assert self.log.start_seq <= max(self.cursor, self.confirmed_seq), (self.log.start_seq, self.cursor)

    def confirm(self, next_number: int) -> None:
        """Truncates what the external system has, which is all below ``next_number``."""
        self.confirmed_seq = max(self.confirmed_seq, next_number)
        self.log.truncate(min(self.confirmed_seq, self.log.next_seq))
