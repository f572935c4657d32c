"""Causal logs: the byte string of a task's determinants, and the replicas of others' that a holder has.

Offsets are absolute: bytes since the job's start. What lies before the last completed checkpoint is dropped. All copies
of one log are prefixes of it, so bytes that differ where two copies overlap are a divergence, and fatal.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.core.model.errors import LogDiverged
from clonos.core.model.ids import LogId, log_name
from clonos.core.wire.log_delta import Delta, Length


class Replica:
    """A copy of a log from ``start_bytes`` on."""

    __slots__ = ("data", "start_bytes")

    def __init__(self, start_bytes: int, data: bytes = b"") -> None:
        self.start_bytes = start_bytes
        self.data = bytearray(data)

    @property
    def end_bytes(self) -> int:
        """Offset of the next byte."""
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
    """Raises ``LogDiverged`` at the first byte in which two copies of a log differ."""
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
    """What one task, or one keeper, holds: its own log, its journal, and replicas of others' logs."""

    __slots__ = ("replicas", "size_bytes")

    def __init__(self) -> None:
        self.replicas: dict[LogId, Replica] = {}
        self.size_bytes = 0
        #: Invariant: size_bytes is the sum of the lengths of all copies

    def begin(self, log: LogId, offset_bytes: int, data: bytes = b"") -> None:
        """The log begins at ``offset_bytes`` here, with ``data`` adopted as it is."""
        assert log not in self.replicas, log
        self.replicas[log] = Replica(offset_bytes, data)
        self.size_bytes += len(data)

    def append(self, log: LogId, data: bytes) -> None:
        """The owner goes on writing."""
        self.replicas[log].data.extend(data)
        self.size_bytes += len(data)

    def end_bytes(self, log: LogId) -> int:
        """End of the copy of a log; 0 if there is none."""
        replica = self.replicas.get(log)
        return 0 if replica is None else replica.start_bytes + len(replica.data)

    def has_gap(self, delta: Delta) -> bool:
        """Whether bytes are missing between what is held and ``delta``."""
        replica = self.replicas.get(delta.log)
        if delta.restart:
            return False
        return replica is None or delta.offset_bytes > replica.start_bytes + len(replica.data)

    def receive(self, delta: Delta) -> bool:
        """Appends what is new in ``delta``; whether anything was. The caller has asked ``has_gap``."""
        replica = self.replicas.get(delta.log)
        if replica is None:
            self.begin(delta.log, delta.offset_bytes, delta.data)
            return bool(delta.data)
        end = replica.end_bytes
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
        """Drops what lies before ``offset_bytes``: a checkpoint that covers it is complete."""
        replica = self.replicas.get(log)
        if replica is None or offset_bytes <= replica.start_bytes:
            return
        self.size_bytes -= replica.drop_before(offset_bytes)

    def delta(self, log: LogId, from_bytes: int) -> Delta:
        """What a peer that holds the log up to ``from_bytes`` lacks."""
        replica = self.replicas[log]
        if from_bytes <= replica.start_bytes:
            return Delta(log, replica.start_bytes, True, bytes(replica.data))
        return Delta(log, from_bytes, False, bytes(replica.data[from_bytes - replica.start_bytes :]))

    def take_unshipped(self, dirty: dict[LogId, None], shipped: dict[LogId, int]) -> list[Delta]:
        """Of the logs that have grown, ``dirty``, what a peer has not been shipped; counts as shipped from now on."""
        found = []
        for log in dirty:
            end, sent = self.end_bytes(log), shipped.get(log, -1)
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
        """End of every copy, by log."""
        return tuple([Length(log, self.replicas[log].end_bytes) for log in sorted(self.replicas)])

    def deltas(self, logs: Iterable[LogId]) -> tuple[Delta, ...]:
        """All that is held of each of ``logs``."""
        return tuple(self.delta(log, 0) for log in logs if log in self.replicas)
