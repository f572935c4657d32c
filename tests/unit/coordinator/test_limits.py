"""A limit that was reached ends the sources in front of it (protocol 5), through the whole machine."""

from __future__ import annotations

from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import LIMIT_KIND, Edge, Partitioning, Plan, StatefulStep, Vertex
from clonos.core.model.progress import TaskCounter
from clonos.core.wire.control_messages import TriggerCheckpoint
from tests.harnesses.coordinator_harness import CoordinatorHarness, sent


def limited() -> CoordinatorHarness:
    """Two sources with two tasks, the first of which leads to a limit (task 4)."""
    vertices = (
        Vertex("first", 2, is_source=True),
        Vertex("second", 2, is_source=True),
        Vertex("limit", 1, steps=(StatefulStep("limit", LIMIT_KIND),)),
        Vertex("sink", 1, is_transactional=True),
    )
    edges = (
        Edge(0, 2, Partitioning.REBALANCE, 0),
        Edge(1, 3, Partitioning.REBALANCE, 0),
        Edge(2, 3, Partitioning.REBALANCE, 0),
    )
    harness = CoordinatorHarness(Plan("job", vertices, edges), Options())
    harness.form(slots=6)
    return harness


def reach(harness: CoordinatorHarness, task: int) -> None:
    """The slot of a task reports that a limit is reached."""
    harness.slots[harness.of(task).hosting_slot].counters = ((TaskCounter.LIMIT_REACHED, 1),)


def ends(harness: CoordinatorHarness, milliseconds: int) -> dict[TaskId, bool]:
    return {message.task: message.then_end for _, message in sent(harness.tick(milliseconds), TriggerCheckpoint)}  # type: ignore[attr-defined]


def test_a_checkpoint_begins_at_once_and_ends_the_sources_in_front_of_the_limit() -> None:
    harness = limited()
    assert ends(harness, 1_000) == {}
    reach(harness, 4)
    assert ends(harness, 600) == {0: True, 1: True, 2: False, 3: False}


def test_without_the_report_every_trigger_leaves_the_sources_running() -> None:
    harness = limited()
    assert ends(harness, 5_100) == {0: False, 1: False, 2: False, 3: False}


def test_a_task_without_a_limit_ends_nothing() -> None:
    harness = limited()
    reach(harness, 5)
    assert ends(harness, 1_000) == {}
    assert ends(harness, 4_100) == {0: False, 1: False, 2: False, 3: False}


def test_later_triggers_end_the_sources_too_because_an_earlier_one_may_be_lost() -> None:
    harness = limited()
    reach(harness, 4)
    ends(harness, 600)
    harness.acknowledge(1, 0, 1, 2, 3, 4, 5)
    harness.durable(1)
    assert ends(harness, 5_100) == {0: True, 1: True, 2: False, 3: False}


def test_after_a_rollback_the_limit_has_to_be_reached_again() -> None:
    harness = limited()
    slot = harness.of(4).hosting_slot
    reach(harness, 4)
    assert ends(harness, 600)[TaskId(0)]
    harness.slots[slot].is_mute = True
    harness.lose_log(0)
    assert not any(ends(harness, 1_000).values())
    harness.slots[slot].is_mute = False
    harness.slots[slot].counters = ()
    assert ends(harness, 6_000) == {0: False, 1: False, 2: False, 3: False}
