"""Drift alignment: what a source reports of its watermark, and how it is held back."""

from __future__ import annotations

from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.ports.operator_chain import NothingToRead
from tests.unit.operators.test_timed_source import SECOND_NS, Readings, fire, head


def test_a_source_reports_the_lowest_of_the_splits_that_count() -> None:
    source = Readings([[10], [30]], [[5], [], [], [20]], idle_after_ns=SECOND_NS)
    made, _, _ = head(source)
    fire(made, 5)
    assert made.reached_ns() == INSTANT_NS_MIN
    made.read(0, 1)
    assert made.reached_ns() == INSTANT_NS_MIN  # split 1 has none yet
    made.read(1, 1)
    assert made.reached_ns() == 5
    fire(made, 5 + SECOND_NS)
    made.read(0, 1)
    assert made.reached_ns() == 5
    made.poll(1)
    while made.next_timer_ns() is None:
        made.poll(1)
    fire(made, 5 + 2 * SECOND_NS)
    assert made.reached_ns() == 30  # split 1 is idle
    made.read(0, 0)
    assert made.reached_ns() == END_OF_TIME_NS  # split 0 has ended


def test_a_source_that_is_held_back_is_not_idle_before_it_was_polled_again() -> None:
    made, sent, _ = head(Readings([[1], [], [], []], idle_after_ns=SECOND_NS))
    fire(made, 0)
    made.read(0, 1)
    fire(made, SECOND_NS)
    assert made.poll(1) is NothingToRead.NOW
    made.hold_back()
    assert made.next_timer_ns() is None
    assert made.poll(1) is NothingToRead.NOW
    fire(made, 2 * SECOND_NS)
    assert sent.elements == [[1], 1, "IDLE"]
