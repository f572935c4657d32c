"""Calls from many threads are made in one thread, in order; a producer that is too fast waits."""

from __future__ import annotations

import threading

import pytest

from clonos_standby.inbox import DRAIN_MAX, WAITING_MAX, Inbox


def do_nothing() -> None:
    """A call like any other."""


def test_queued_calls_are_made_in_order_by_the_draining_thread() -> None:
    woken: list[int] = []
    made: list[tuple[int, int]] = []
    inbox = Inbox(lambda: woken.append(1))
    for number in range(5):
        inbox.put(lambda *arguments: made.append(arguments), number, -number)
    assert woken
    assert not made
    assert inbox.drain() is False
    assert made == [(number, -number) for number in range(5)]


def test_a_long_queue_is_drained_in_portions() -> None:
    inbox = Inbox(lambda: None)
    made: list[int] = []
    for number in range(DRAIN_MAX + 1):
        inbox.put(made.append, number)
    assert inbox.drain() is True
    assert len(made) == DRAIN_MAX
    assert inbox.drain() is False


def test_a_producer_that_is_faster_than_the_drain_waits_for_space(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    class DrainedMeanwhile(threading.Event):
        """While the producer waits, the inbox is drained once, which must set the event."""

        def wait(self, timeout: float | None = None) -> bool:
            assert not self.is_set()
            waits.append(len(waits))
            inbox.drain()
            return super().wait(0)

    monkeypatch.setattr("clonos_standby.inbox.Event", DrainedMeanwhile)
    inbox = Inbox(lambda: None)
    for _ in range(WAITING_MAX + DRAIN_MAX + 1):
        inbox.put(do_nothing)
    inbox.wait_for_space()
    assert len(waits) == 2  # after the first drain one call too many is left
    for _ in range(DRAIN_MAX - 1):
        inbox.put(do_nothing)
    inbox.wait_for_space()  # as many calls as may wait
    assert len(waits) == 2


def test_a_closed_inbox_blocks_no_producer_and_queues_no_call() -> None:
    inbox = Inbox(lambda: None)
    for _ in range(WAITING_MAX + 1):
        inbox.put(do_nothing)
    inbox.close()
    inbox.wait_for_space()
    made: list[int] = []
    inbox.put(made.append, 1)
    while inbox.drain():
        pass
    assert not made
