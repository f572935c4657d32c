"""Poll backoff of a source whose reads return few records: waits so that the next one returns more (protocol 2).

Many small reads are expensive: each costs a message in every process downstream and a step in replay. At half of the
maximal load they used all processors, and a successor's replay took three times as long as the work that it repeated.

Backing off begins when the source found nothing to read, or when its reads return much less than its largest read did.
It ends when a pause does not double what a read returns, or when a read returns as much as it may.
"""

from __future__ import annotations

STEPS = 40
"""Pause after a small read, in multiples of the cost of its step; at most ``NS_MAX``."""

NS_MAX = 4_000_000
"""Maximum pause after a small read."""

SMALL_READ = 4
"""Divisor that makes a read small: it returns less than 1/4 of the largest read."""

SMALL_READS_MAX = 8
"""Small reads in a row before the source backs off. A shorter run may only be the end of a file's block."""

READS_BETWEEN_TRIALS = 64
"""Reads between two trial reads without a pause, which measure again what a read returns without waiting."""


class PollBackoff:
    """Poll backoff of one incarnation. It is not logged, because the log has the number of records of each read."""

    __slots__ = ("_small_reads", "_has_waited", "_is_on", "_most", "_reads", "_unpaused_count", "until_ns")

    def __init__(self) -> None:
        self.until_ns = 0
        self._is_on = False
        self._most = 0  # records of the largest read
        self._small_reads = 0  # small reads in a row
        self._has_waited = False  # whether the source pauses before the next read
        self._unpaused_count = 0  # records of the last read without a pause
        self._reads = 0  # reads since then

    def found_nothing(self) -> None:
        """Backs off because there was nothing to read, and more may come."""
        if not self._is_on:
            self._is_on, self._unpaused_count, self._reads = True, 0, 0

    def measure(self, count: int, limit: int, now_ns: int, cost_ns: int) -> None:
        """Updates the backoff by a step begun at ``now_ns`` that read ``count`` of at most ``limit`` records."""
        if not self._is_on:
            self._most = max(self._most, count)
            self._small_reads = self._small_reads + 1 if count < limit and count * SMALL_READ < self._most else 0
            self._is_on, self._has_waited = self._small_reads == SMALL_READS_MAX, False
            if not self._is_on:
                return
        if not self._has_waited:
            self._unpaused_count, self._reads = count, 0
        elif count < 2 * self._unpaused_count or count >= limit:
            self._is_on, self._most, self._small_reads = False, count, 0
            return
        self._reads += 1
        self._has_waited = count < limit and self._reads < READS_BETWEEN_TRIALS
        if self._has_waited:
            self.until_ns = now_ns + min(STEPS * cost_ns, NS_MAX)
