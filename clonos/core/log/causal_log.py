"""Causal logs of a holder: its own log and the replicas of other tasks' logs (protocol 3).

Offsets are absolute, in bytes since the job's start. Bytes before the last completed checkpoint are dropped. All copies
of a log are prefixes of it, so a difference in overlapping bytes is a divergence, which is fatal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from clonos.core.model.errors import LogDiverged
from clonos.core.model.ids import LogId, log_name
from clonos.core.wire.log_delta import Delta, Length

NOTHING_COMPLETED: Mapping[LogId, int] = MappingProxyType({})
"""Offsets of a slot that knows no completed checkpoint."""


class Replica:
    """Copy of a log from the offset ``start_bytes`` on."""

    __slots__ = ("data", "start_bytes")

    def __init__(self, start_bytes: int, data: bytes = b"") -> None:
        self.start_bytes = start_bytes
        self.data = bytearray(data)

    @property
    def end_bytes(self) -> int:
        """Offset of the next byte to append."""
        return self.start_bytes + len(self.data)

    def drop_before(self, offset_bytes: int) -> int:
        """Drops what lies before an offset; returns how many bytes."""
        dropped = min(offset_bytes - self.start_bytes, len(self.data))
        del self.data[:dropped]
        self.start_bytes = offset_bytes
        return dropped


def check_overlap(
    log: LogId, one_start: int, one: bytes | bytearray, other_start: int, other: bytes | bytearray
) -> None:
    """Compares the overlapping bytes of two copies of a log.

    Raises: LogDiverged, with the offset of the first byte that differs.
    """
    first = max(one_start, other_start)
    last = min(one_start + len(one), other_start + len(other))
    if first >= last:
        return
    ours = memoryview(one)[first - one_start : last - one_start]
    theirs = memoryview(other)[first - other_start : last - other_start]
    if ours != theirs:
        at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        raise LogDiverged(log_name(log), first + at)


class CausalLogs:
    """Logs that a task or a keeper holds: its own log, its journal, and replicas of other tasks' logs."""

    __slots__ = ("completed", "replicas", "size_bytes")

    def __init__(self, completed: Mapping[LogId, int] = NOTHING_COMPLETED) -> None:
        """``completed``: the offset of each log, in bytes, at the last completed checkpoint that the slot knows."""
        self.completed = completed
        self.replicas: dict[LogId, Replica] = {}
        self.size_bytes = 0
        #: Invariant: size_bytes is the sum of the lengths of all copies

    def begin(self, log: LogId, offset_bytes: int, data: bytes = b"") -> None:
        """Begins the copy of a log at ``offset_bytes`` with ``data`` as its first bytes."""
        assert log not in self.replicas, log
        self.replicas[log] = Replica(offset_bytes, data)
        self.size_bytes += len(data)

    def append(self, log: LogId, data: bytes) -> None:
        """Appends bytes that the log's owner wrote."""
        self.replicas[log].data.extend(data)
        self.size_bytes += len(data)

    def end_bytes(self, log: LogId) -> int:
        """Returns the end of the copy of a log, 0 if there is none."""
        replica = self.replicas.get(log)
        return 0 if replica is None else replica.start_bytes + len(replica.data)

    def has_gap(self, delta: Delta) -> bool:
        """Returns whether bytes are missing between the copy held here and ``delta``."""
        replica = self.replicas.get(delta.log)
        if delta.restart:
            return False
        return replica is None or delta.offset_bytes > replica.start_bytes + len(replica.data)

    def receive(self, delta: Delta) -> bool:
        """Appends the new bytes of ``delta`` and returns whether there were any. The caller has checked ``has_gap``.

        A copy that begins here drops what its sender holds only because it knows an earlier completed checkpoint.
        """
        replica = self.replicas.get(delta.log)
        if replica is None:
            self.begin(delta.log, delta.offset_bytes, delta.data)
            self.truncate(delta.log, self.completed.get(delta.log, 0))
            return bool(delta.data)
        end = replica.start_bytes + len(replica.data)
        if delta.offset_bytes > end:
            assert delta.restart, delta
            self.size_bytes += len(delta.data) - len(replica.data)
            self.replicas[delta.log] = Replica(delta.offset_bytes, delta.data)
            return True
        fresh = delta.data
        known = end - delta.offset_bytes
        if known:
            check_overlap(delta.log, replica.start_bytes, replica.data, delta.offset_bytes, fresh)
            fresh = fresh[known:]
        if not fresh:
            return False
        replica.data.extend(fresh)
        self.size_bytes += len(fresh)
        return True

    def truncate(self, log: LogId, offset_bytes: int) -> None:
        """Drops the bytes before ``offset_bytes``, which a completed checkpoint covers."""
        replica = self.replicas.get(log)
        if replica is None or offset_bytes <= replica.start_bytes:
            return
        self.size_bytes -= replica.drop_before(offset_bytes)

    def drop_completed(self) -> None:
        """Drops the bytes that the last completed checkpoint covers."""
        for log in self.replicas:  # of the many logs of a large job
            self.truncate(log, self.completed.get(log, 0))

    def delta(self, log: LogId, from_bytes: int) -> Delta:
        """Returns what a peer lacks that holds the log up to ``from_bytes``."""
        replica = self.replicas[log]
        if from_bytes <= replica.start_bytes:
            return Delta(log, replica.start_bytes, True, bytes(replica.data))
        return Delta(log, from_bytes, False, bytes(replica.data[from_bytes - replica.start_bytes :]))

    def take_unshipped(self, dirty: dict[LogId, None], shipped: dict[LogId, int]) -> list[Delta]:
        """Returns what a peer lacks of the logs in ``dirty``, which have grown, and marks it as shipped."""
        found, replicas = [], self.replicas
        for log in dirty:
            replica, sent = replicas.get(log), shipped.get(log, -1)
            end = 0 if replica is None else replica.start_bytes + len(replica.data)
            if end > sent:
                found.append(self.delta(log, max(sent, 0)))
                shipped[log] = end
        dirty.clear()
        return found

    def validate(self) -> None:
        """Asserts what holds between two events."""
        size_bytes = 0
        for log, replica in self.replicas.items():
            assert replica.start_bytes >= 0, (log, replica.start_bytes)
            size_bytes += len(replica.data)
        assert self.size_bytes == size_bytes, (self.size_bytes, size_bytes)

    def lengths(self) -> tuple[Length, ...]:
        """Returns the end of every copy, ordered by log."""
        return tuple([Length(log, self.replicas[log].end_bytes) for log in sorted(self.replicas)])

    def deltas(self, logs: Iterable[LogId]) -> tuple[Delta, ...]:
        """Returns everything held of each of ``logs``."""
        return tuple(self.delta(log, 0) for log in logs if log in self.replicas)
