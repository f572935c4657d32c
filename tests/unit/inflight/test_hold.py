"""Above the soft limit of any slot the coordinator holds the sources and takes a checkpoint."""

from __future__ import annotations

from clonos.core.model.ids import SlotId
from clonos.core.wire.control_messages import Hold
from tests.harnesses.coordinator_harness import CoordinatorHarness, sent


def _source_slots(harness: CoordinatorHarness) -> set[SlotId]:
    return {harness.of(task).hosting_slot for task in harness.plan.sources}


def _above(harness: CoordinatorHarness) -> SlotId:
    """A slot that hosts no source."""
    return next(slot for slot in harness.slots if slot not in _source_slots(harness))


def test_sources_are_held_at_each_heartbeat_while_a_slot_is_above_its_soft_limit() -> None:
    harness = CoordinatorHarness()
    harness.form()
    assert sent(harness.tick(1_000), Hold) == []
    above = _above(harness)
    harness.slots[above].is_over_soft_limit = True
    harness.tick()
    for _ in range(5):
        holds = sent(harness.tick(), Hold)
        assert {(slot, message) for slot, message in holds} == {(slot, Hold(above)) for slot in _source_slots(harness)}
    assert harness.pending() == [1]
    harness.slots[above].is_over_soft_limit = False
    assert sent(harness.tick(1_000), Hold) == []


def test_a_dead_slot_holds_no_source() -> None:
    harness = CoordinatorHarness()
    harness.form()
    above = _above(harness)
    harness.slots[above].is_over_soft_limit = True
    harness.tick()
    harness.gone(above)
    assert sent(harness.tick(1_000), Hold) == []
