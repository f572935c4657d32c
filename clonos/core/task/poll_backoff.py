"""When a source waits between two reads: one that lives from hand to mouth gives crumbs.

What there is at once is little then, and each read costs every process behind it a message, and a successor a step: at
half of the maximal load they used all processors, and a successor's replay took three times as long as the work that it
repeated. Such a source has had nothing to read before, or gives much less than it once did; and it gives more after
a while. One that gives no more for being waited for, or all that is asked, has enough: it is not waited for.
"""

from __future__ import annotations

STEPS = 40
NS_MAX = 4_000_000
"""A step that takes less than it may is followed by the next one after so many times what it cost, at most so late."""

SMALL_READ = 4
"""A read gives a crumb when another has given more than so many times as much."""

SMALL_READS_MAX = 8
"""So many in a row are no end of a piece."""

READS_BETWEEN_TRIALS = 64
"""Then one is not waited for, to see what it gives."""


class PollBackoff:
    """Of one incarnation. Nothing of it is logged: how much was read, is."""

    __slots__ = ("_small_reads", "_has_waited", "_is_on", "_most", "_reads", "_without", "until_ns")

    def __init__(self) -> None:
        self.until_ns = 0
        self._is_on = False
        self._most = 0  # records of a read
        self._small_reads = 0  # in a row
        self._has_waited = False  # before the read that comes next
        self._without = 0  # records of the last read that was not waited for
        self._reads = 0  # since one was not

    def found_nothing(self) -> None:
        """There was nothing to read, and more to come."""
        if not self._is_on:
            self._is_on, self._without, self._reads = True, 0, 0

    def gave(self, count: int, limit: int, now_ns: int, cost_ns: int) -> None:
        """A step that began at ``now_ns`` has taken so many records where it could have taken ``limit``."""
        if not self._is_on:
            self._most = max(self._most, count)
            self._small_reads = self._small_reads + 1 if count < limit and count * SMALL_READ < self._most else 0
            self._is_on, self._has_waited = self._small_reads == SMALL_READS_MAX, False
            if not self._is_on:
                return
        if not self._has_waited:
            self._without, self._reads = count, 0
        elif count < 2 * self._without or count >= limit:
            self._is_on, self._most, self._small_reads = False, count, 0
            return
        self._reads += 1
        self._has_waited = count < limit and self._reads < READS_BETWEEN_TRIALS
        if self._has_waited:
            self.until_ns = now_ns + min(STEPS * cost_ns, NS_MAX)
