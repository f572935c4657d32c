"""Calls from many threads are made in one thread, in order; a producer that is too fast waits."""

from __future__ import annotations

import threading

from clonos_standby.inbox import DRAIN_MAX, WAITING_MAX, Inbox

LIMIT_S = 25.0


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


def test_a_producer_that_is_faster_than_the_drain_waits_for_space() -> None:
    inbox = Inbox(lambda: None)
    full = threading.Event()
    done = threading.Event()

    def add() -> None:
        for _ in range(WAITING_MAX + 1):
            inbox.put(do_nothing)
        full.set()
        inbox.wait_for_budget()
        done.set()

    adder = threading.Thread(target=add)
    adder.start()
    assert full.wait(LIMIT_S)
    assert not done.wait(0.05)
    while inbox.drain():
        pass
    assert done.wait(LIMIT_S)
    adder.join()


def test_a_closed_inbox_blocks_no_producer_and_queues_no_call() -> None:
    inbox = Inbox(lambda: None)
    for _ in range(WAITING_MAX + 1):
        inbox.put(do_nothing)
    inbox.close()
    inbox.wait_for_budget()
    made: list[int] = []
    inbox.put(made.append, 1)
    while inbox.drain():
        pass
    assert not made
