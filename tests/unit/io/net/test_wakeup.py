"""A polling thread is woken once for everything that was queued meanwhile."""

from __future__ import annotations

import os
import select
import threading
from collections import deque

import pytest

from clonos.io.net.wakeup import Wakeup


def is_readable(wakeup: Wakeup) -> bool:
    return bool(select.select([wakeup], [], [], 0)[0])


def test_a_wakeup_stays_set_until_it_is_cleared_however_often_it_was_raised() -> None:
    wakeup = Wakeup()
    assert not is_readable(wakeup)
    wakeup.wake()
    wakeup.wake()
    assert is_readable(wakeup)
    wakeup.clear()
    assert not is_readable(wakeup)
    wakeup.clear()
    wakeup.wake()
    assert is_readable(wakeup)
    wakeup.close()


def test_items_of_many_producers_all_arrive() -> None:
    wakeup = Wakeup()
    queue: deque[int] = deque()
    count = 3_000

    def produce() -> None:
        for number in range(count):
            queue.append(number)
            wakeup.wake()

    producers = [threading.Thread(target=produce) for _ in range(3)]
    for producer in producers:
        producer.start()
    taken = 0
    while taken < 3 * count:
        assert select.select([wakeup], [], [], 10)[0], f"an item was queued, nobody woke: {taken} taken"
        wakeup.clear()
        while queue:
            queue.popleft()
            taken += 1
    for producer in producers:
        producer.join()
    wakeup.close()


def test_a_thread_that_wakes_while_the_wakeup_is_closed_writes_to_no_other_file() -> None:
    wakeup = Wakeup()
    number = wakeup.fileno()
    wakeup.close()
    assert os.fstat(number)  # still the descriptor of the wakeup: no other file can have its number
    del wakeup
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
