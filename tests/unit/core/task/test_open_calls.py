"""Open asynchronous calls of a task: how many there may be (protocol 7)."""

from __future__ import annotations

from typing import cast

from clonos.core.ports.task_port import TaskPort
from clonos.core.task.async_calls import HELD_MAX, OpenCalls


class IdlePort:
    """Port on which no call begins."""


def test_the_smallest_of_the_limits_of_a_tasks_steps_counts() -> None:
    calls = OpenCalls(cast(TaskPort, IdlePort()), "job/0", False)
    calls.limit(3)
    calls.limit(8)
    assert calls.room == 3
    calls.submit(1, "rates", b"EUR", str)
    assert calls.room == 2
    for number in (2, 3, 4):
        calls.submit(number, "rates", b"EUR", str)
    assert calls.room == 0


def test_records_that_wait_bound_a_step_only_where_some_wait() -> None:
    calls = OpenCalls(cast(TaskPort, IdlePort()), "job/0", False)
    assert calls.room > 1 << 20, "a task without calls takes steps of any size"
    calls.hold(HELD_MAX - 7)
    assert calls.room == 7
    calls.hold(7 - HELD_MAX)
    assert calls.room > 1 << 20
