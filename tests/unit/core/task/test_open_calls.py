"""Open asynchronous calls of a task: how many there may be (protocol 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from clonos.core.log.call_usage import CallAccount
from clonos.core.model.metric_series import MetricTable
from clonos.core.ports.recorder import CANCELLED, CallLife
from clonos.core.ports.task_port import TaskPort
from clonos.core.task.async_calls import HELD_MAX, OpenCalls
from clonos.core.task.call_parts import CallParts


class IdlePort:
    """Port on which no call begins."""


class StartingPort:
    """Port on which calls begin when the test calls them."""

    def __init__(self) -> None:
        self.begun: list[Callable[[str], bytes]] = []

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        self.begun.append(function)


def test_a_call_is_cancelled_before_it_has_begun_and_while_it_runs() -> None:
    port, seen = StartingPort(), []
    calls = OpenCalls(cast(TaskPort, port), "job/0", False, CallAccount(MetricTable(), 1))

    def perform(key: str, *, inside: CallLife) -> None:
        seen.append(cast(CallParts, inside).parts.get(CANCELLED))

    for number in (1, 2, 3):
        calls.submit(number, "agent", b"", perform, {})
    calls.cancel(1, b"first")
    calls.cancel(1, b"second")
    calls.begin()
    calls.cancel(2, b"third")
    for function in port.begun:
        function("key")
    assert seen == [b"first", b"third", None]


def test_the_smallest_of_the_limits_of_a_tasks_steps_counts() -> None:
    calls = OpenCalls(cast(TaskPort, IdlePort()), "job/0", False, CallAccount(MetricTable(), 1))
    calls.limit(3)
    calls.limit(8)
    assert calls.room == 3
    calls.submit(1, "rates", b"EUR", str)
    assert calls.room == 2
    for number in (2, 3, 4):
        calls.submit(number, "rates", b"EUR", str)
    assert calls.room == 0


def test_records_that_wait_bound_a_step_only_where_some_wait() -> None:
    calls = OpenCalls(cast(TaskPort, IdlePort()), "job/0", False, CallAccount(MetricTable(), 1))
    assert calls.room > 1 << 20, "a task without calls takes steps of any size"
    calls.hold(HELD_MAX - 7)
    assert calls.room == 7
    calls.hold(7 - HELD_MAX)
    assert calls.room > 1 << 20
