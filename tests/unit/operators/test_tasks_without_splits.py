"""Tasks of a source that have no split: idle while they may get one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clonos.core.ports.operator_chain import NothingToRead
from tests.unit.operators.test_timed_source import SECOND_NS, Readings, fire, head, read_all


class WatchedReadings(Readings):
    """A source that finds splits while it runs."""

    discovery_interval_ns = SECOND_NS

    def discover(self, known: Any, index: int, parallelism: int) -> list[bytes]:
        return []


def watched(*splits: list[list[int]], idle_after_ns: int = 0) -> Any:
    """A task of a source that watches its input; no split is its own yet."""
    source = WatchedReadings(*splits, idle_after_ns=idle_after_ns)
    source.splits = lambda parallelism: []  # type: ignore[method-assign]
    return source


@pytest.mark.parametrize("idle_after_ns", [0, SECOND_NS])
def test_a_task_without_splits_is_idle_from_its_first_look_until_it_reads_one(idle_after_ns: int) -> None:
    made, sent, state = head(watched([[7]], [[9]], idle_after_ns=idle_after_ns))
    assert made.next_timer_ns() is None  # it may find one at once
    made.discover_splits(0)
    assert made.poll(1) is NothingToRead.NOW
    fire(made, SECOND_NS)
    assert sent.elements == ["IDLE"]
    assert made.next_timer_ns() in ((None,) if not idle_after_ns else (2 * SECOND_NS, 0))
    made.add_splits(msgspec.msgpack.encode([b"0"]))
    read_all(made)
    assert sent.elements[1:4] == ["ACTIVE", [7], 7]
    made.prepare(1)
    restored, later, _ = head(watched([[7]], [[9]], idle_after_ns=idle_after_ns), state)
    restored.restore(made.position())
    assert later.elements == []


def test_a_task_whose_splits_have_all_ended_is_idle_until_it_finds_one() -> None:
    made, sent, _ = head(watched([[7]], [[9]]))
    made.discover_splits(0)
    made.add_splits(msgspec.msgpack.encode([b"0"]))
    read_all(made)
    fire(made, SECOND_NS)
    assert sent.elements == [[7], 7, "IDLE"]
    assert made.next_timer_ns() is None
    made.add_splits(msgspec.msgpack.encode([b"1"]))
    read_all(made)
    assert sent.elements[3:] == ["ACTIVE", [9], 9]


def test_a_task_without_splits_that_will_get_none_sends_nothing_before_its_end() -> None:
    made, sent, _ = head(Readings())
    assert made.poll(1) is NothingToRead.ALL_READ
    assert made.next_timer_ns() is None
    assert sent.elements == []
