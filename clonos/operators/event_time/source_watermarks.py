"""Watermark of a source's task: the minimum over its splits that are not idle, in event time (protocol 2).

Everything here is a function of what the causal log has: the reads of each split, the ends of splits, and the instants
of the idleness checks. A split is idle if no record of it was read between two checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from clonos.core.model.watermark import ACTIVE, END_OF_TIME_NS, IDLE, INSTANT_NS_MIN, Instant, Watermark
from clonos.core.wire.log_delta import Count


class SplitTime(msgspec.Struct, array_like=True):
    """Event time of one split. ``was_read``: since the last check."""

    reached_ns: Instant | None = None
    is_idle: bool = False
    was_read: bool = False


class _State(msgspec.Struct, frozen=True, array_like=True):
    """State in a snapshot."""

    sent_ns: Instant | None
    is_idle: bool
    check_ns: Count
    splits: dict[int, SplitTime]
    flush_ns: Count


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_State)


def dealt_times(states: Sequence[bytes], numbers: Mapping[int, int], mine: Collection[int]) -> bytes:
    """Returns the state of a task after its source has got another width: empty if a task before had none.

    ``numbers``: the new number of each split by its old one. ``mine``: the new numbers of the splits of the task. It
    has sent what all tasks before had sent, and is idle if all were.
    """
    if not all(states):
        return b""
    before = [_decoder.decode(state) for state in states]
    splits = {numbers[old]: time for each in before for old, time in each.splits.items() if numbers[old] in mine}
    sent = [each.sent_ns for each in before if each.sent_ns is not None]
    return _encoder.encode(
        _State(
            min(sent) if len(sent) == len(before) else None,
            all(each.is_idle for each in before),
            min(each.check_ns for each in before),
            dict(sorted(splits.items())),
            min(each.flush_ns for each in before),
        )
    )


def least_times(states: Sequence[bytes]) -> bytes:
    """Returns the state of a task whose inputs were those of several tasks: its watermark was the least of theirs."""
    before = [_decoder.decode(state) for state in states]
    times = [time for each in before for time in each.splits.items()]
    splits = {split: _least([time for of, time in times if of == split]) for split in sorted({of for of, _ in times})}
    return _encoder.encode(
        _State(
            _least_ns([each.sent_ns for each in before]),
            all(each.is_idle for each in before),
            min(each.check_ns for each in before),
            splits,
            min(each.flush_ns for each in before),
        )
    )


def _least(times: Sequence[SplitTime]) -> SplitTime:
    reached_ns = _least_ns([time.reached_ns for time in times if not time.is_idle])
    return SplitTime(reached_ns, all(time.is_idle for time in times), any(time.was_read for time in times))


def _least_ns(instants: Sequence[int | None]) -> int | None:
    """Returns the least instant; None if there is none, or one is None, which is before all others."""
    return min([each for each in instants if each is not None]) if instants and None not in instants else None


CHECK_AT_ONCE_NS: Final = 0
"""Time of the first check, which only sets the time of the second one."""


class SourceWatermarks:
    """Watermarks of one incarnation of a source's task. Methods return the elements to send, in order."""

    def __init__(self, splits: Iterable[int], every_ns: int, idle_after_ns: int, is_watching: bool = False) -> None:
        """Creates the watermarks of a task. ``is_watching``: it may get further splits."""
        self._is_watching = is_watching
        self._every_ns, self._idle_after_ns = every_ns, idle_after_ns
        self._splits = {split: SplitTime() for split in splits}  # those that have not ended
        self._sent_ns: int | None = None
        self._is_idle = False
        self._check_ns = CHECK_AT_ONCE_NS
        self._flush_ns = 0  # time from which on a watermark that rose by less than ``every_ns`` may be sent
        self._found_empty: set[int] = set()  # splits that had no record when they were last polled; not in the state
        self._has_looked = False  # for further splits, in this incarnation; not in the state

    def restore(self, state: bytes) -> None:
        """Restores the state of a snapshot. Raises what msgspec raises for other bytes."""
        found = _decoder.decode(state)
        self._sent_ns, self._is_idle, self._check_ns = found.sent_ns, found.is_idle, found.check_ns
        self._splits, self._flush_ns = found.splits, found.flush_ns

    def state(self) -> bytes:
        """Returns the state for a snapshot."""
        return _encoder.encode(_State(self._sent_ns, self._is_idle, self._check_ns, self._splits, self._flush_ns))

    def add(self, split: int) -> None:
        """Adds a split that was found at run time."""
        self._splits[split] = SplitTime()

    def reached_ns(self, split: int) -> int | None:
        """Returns the watermark of a split, None before its first one."""
        return self._splits[split].reached_ns

    # --- reads

    def begin(self, split: int) -> list[Watermark]:
        """Begins a read of a split, which makes it active."""
        time = self._splits[split]
        time.is_idle, time.was_read = False, True
        self._found_empty.discard(split)
        if not self._is_idle:
            return []
        self._is_idle = False
        return [ACTIVE]

    def reach(self, split: int, reached_ns: int | None) -> list[Watermark]:
        """Takes the watermark of a split after the records of a read. One that falls changes nothing."""
        time = self._splits[split]
        if reached_ns is None or (time.reached_ns is not None and reached_ns <= time.reached_ns):
            return []
        time.reached_ns = reached_ns
        return self._risen(self._every_ns)

    def end(self, split: int) -> list[Watermark]:
        """Takes the end of a split, which holds the watermark back no more."""
        self._splits.pop(split, None)
        return self._risen(self._every_ns)

    def _risen(self, least_ns: int) -> list[Watermark]:
        """Returns the watermark if it has risen by ``least_ns`` since the last one."""
        return self._sent(self.lowest_ns(), least_ns)

    def _sent(self, reached_ns: int, least_ns: int) -> list[Watermark]:
        if not self._has_risen(reached_ns, least_ns):
            return []
        self._sent_ns = reached_ns
        return [reached_ns]

    def _has_risen(self, reached_ns: int, least_ns: int) -> bool:
        if reached_ns in (INSTANT_NS_MIN, END_OF_TIME_NS):
            return False
        return self._sent_ns is None or reached_ns >= self._sent_ns + least_ns

    def lowest_ns(self) -> int:
        """Returns the minimum over the splits that are not idle and have not ended.

        INSTANT_NS_MIN while one of them has no watermark, END_OF_TIME_NS if there is no such split.
        """
        counted = [time.reached_ns for time in self._splits.values() if not time.is_idle]
        return min([INSTANT_NS_MIN if each is None else each for each in counted], default=END_OF_TIME_NS)

    # --- idleness

    def found_empty(self, split: int) -> None:
        """Notes that a poll has found no record in a split."""
        self._found_empty.add(split)

    def look(self) -> None:
        """Notes that the task has looked for further splits: only then is it idle without any."""
        self._has_looked = True

    def hold_back(self) -> None:
        """Notes that splits are not polled although they may have records, so that none is taken for idle."""
        self._found_empty.clear()

    @property
    def _is_without_splits(self) -> bool:
        return self._is_watching and not self._splits

    def next_check_ns(self) -> int | None:
        """Returns when ``check`` is called next, None if there is nothing to check."""
        instants = [self._next_idle_check_ns(), self._next_flush_ns()]
        return min([each for each in instants if each is not None], default=None)

    def _next_idle_check_ns(self) -> int | None:
        """Returns when idleness is checked next."""
        if self._is_without_splits and not self._is_idle:
            return None if self.holds_checks else CHECK_AT_ONCE_NS
        return self._check_ns if self._idle_after_ns and not self.holds_checks else None

    @property
    def holds_checks(self) -> bool:
        """Whether a check could take a split for idle that has records: it was neither read nor found empty, because
        the task was held back; or the task has not looked for splits yet."""
        if self._is_without_splits:
            return not self._has_looked
        if not self._idle_after_ns or self._check_ns == CHECK_AT_ONCE_NS:
            return False
        quiet = {number for number, time in self._splits.items() if not time.was_read and not time.is_idle}
        return not quiet <= self._found_empty

    def _next_flush_ns(self) -> int | None:
        """Returns when a rise is sent that ``watermark_every`` holds back: only if no split has a record now."""
        if not self._splits.keys() <= self._found_empty:
            return None
        return self._flush_ns if self._has_risen(self.lowest_ns(), 1) else None

    def check(self, instant_ns: int) -> list[Watermark]:
        """Sends a rise that ``watermark_every`` held back, and makes splits without records idle.

        If all become idle, the latest of them counts: one after the other, they would have left it for the last. A task
        without splits is idle until it reads one.
        """
        if self._is_without_splits and not self._is_idle:
            self._is_idle = True
            return [IDLE]
        changes: list[Watermark] = []
        is_idle_check = bool(self._idle_after_ns) and instant_ns >= self._check_ns
        if is_idle_check or instant_ns >= self._flush_ns:
            changes += self._risen(1)
            self._flush_ns = instant_ns + self._every_ns
        if not is_idle_check:
            return changes
        if self._check_ns != CHECK_AT_ONCE_NS:
            for time in self._splits.values():
                time.is_idle, time.was_read = not time.was_read, False
            changes += self._risen(1)
        self._check_ns = instant_ns + self._idle_after_ns
        if not self._is_idle and all(time.is_idle for time in self._splits.values()):
            reached = [time.reached_ns for time in self._splits.values() if time.reached_ns is not None]
            changes += self._sent(max(reached, default=INSTANT_NS_MIN), 1)
            self._is_idle = True
            changes.append(IDLE)
        return changes
