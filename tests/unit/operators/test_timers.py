"""Timers of a step: what they hold in memory."""

from __future__ import annotations

from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.state.timers import SPARE_MAX, Timers


def test_deleted_timers_leave_memory_and_the_others_keep_their_order() -> None:
    timers = Timers("step/timers", StateBackend(None, 1 << 20))
    timers.set(7_000_000, "b")
    timers.set(7_000_000, "a")
    for instant_ns in range(1, 10_000):
        timers.set(instant_ns * 100, "key")
        timers.delete((instant_ns - 1) * 100, "key")
        assert len(timers) <= 2 * 3 + SPARE_MAX + 1
    assert [due.token[2] for due in timers.due(None)] == ["key", "b", "a"]
