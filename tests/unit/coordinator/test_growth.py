"""Work of a coordinator of 2,000 tasks, in executed lines: linear in the number of tasks, not quadratic.

Counted in lines of Python that are run, so that no other load of the machine matters. 10,000 lines take some 1 to 2 ms;
``benchmarks/measures/growth.py`` measures times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from clonos.core.coordinator.coordinator_effects import Effect
from clonos.core.coordinator.coordinator_events import Received, SlotGone, Ticked
from clonos.core.model.ids import SlotId
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.model.progress import TaskCounter
from clonos.core.wire.control_messages import Register, SlotStatus, TriggerCheckpoint
from tests.harnesses.coordinator_harness import MILLISECOND_NS, CoordinatorHarness, HarnessSlot, sent

TASKS = 2_000
HEARTBEAT_NS = 100 * MILLISECOND_NS
TICK_LINES_MAX = 4
"""Of a heartbeat at which nothing is to do, for each task."""

TRIGGERING_LINES_MAX = 8
"""Of one at which a checkpoint begins, for each task."""

VIEW_LINES_MAX = 71
"""Of a death and the view that answers it, for each task."""

STATUS_LINES_MAX = 100
"""Of a slot's heartbeat, however many tasks there are."""


def _wide_harness(**options: int) -> CoordinatorHarness:
    """Four vertices of equal width, a slot for each task."""
    vertices = tuple(Vertex(f"v{i}", TASKS // 4, is_source=i == 0, has_effects=i == 3) for i in range(4))
    edges = tuple(Edge(i, i + 1, Partitioning.FORWARD, 0) for i in range(3))
    plan = Plan("wide", vertices, (*edges, Edge(3, None, Partitioning.EXTERNAL, 0)))
    harness = CoordinatorHarness(plan, Options(**options))  # type: ignore[arg-type]
    harness.begin()
    for number in range(1, TASKS + 1):
        slot = harness.slots[SlotId(number)] = HarnessSlot(SlotId(number), f"domain{number % 100}")
        harness.receive(number, Register(slot.slot, slot.domain, f"host{number % 25}", "", "", b"", "", 1, ()))
    assert harness.coordinator.phase == "running"
    harness.speak()
    return harness


def _lines_of(work: Callable[[], object]) -> int:
    """Counts the lines of Python that a call executes; each turn of a comprehension is one."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _tick(harness: CoordinatorHarness) -> tuple[Effect, ...]:
    harness.now_ns += HEARTBEAT_NS
    return harness.coordinator.handle(Ticked(harness.now_ns))


def test_the_line_counter_counts_loops_and_comprehensions() -> None:
    numbers = range(1_000)
    assert 1_000 < _lines_of(lambda: [number + 1 for number in numbers]) < 1_020


def test_a_tick_executes_a_few_lines_per_task() -> None:
    harness = _wide_harness()
    assert _lines_of(lambda: _tick(harness)) < TICK_LINES_MAX * TASKS


def test_a_tick_that_starts_a_checkpoint_executes_a_few_lines_per_task() -> None:
    harness = _wide_harness(checkpoint_every_ms=50)
    effects: list[Effect] = []
    assert _lines_of(lambda: effects.extend(_tick(harness))) < TRIGGERING_LINES_MAX * TASKS
    assert len(sent(effects, TriggerCheckpoint)) == TASKS // 4


def test_the_view_after_a_death_executes_a_bounded_number_of_lines_per_task() -> None:
    harness = _wide_harness()
    before = harness.number
    assert _lines_of(lambda: harness.coordinator.handle(SlotGone(SlotId(100), "killed"))) < VIEW_LINES_MAX * TASKS
    assert harness.number > before


def test_a_heartbeat_executes_the_same_lines_for_any_number_of_tasks() -> None:
    harness = _wide_harness()
    harness.slots[SlotId(7)].counters = ((TaskCounter.BACKLOG_ELEMENTS, 5), (TaskCounter.RECORDS_IN, 12))
    heartbeat = Received(SlotId(7), harness.slots[SlotId(7)].status())
    assert isinstance(heartbeat.message, SlotStatus)
    assert _lines_of(lambda: harness.coordinator.handle(heartbeat)) < STATUS_LINES_MAX
