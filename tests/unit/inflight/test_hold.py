"""Above the soft limit of any slot the coordinator holds the sources and takes a checkpoint."""

from __future__ import annotations

from clonos.core.model.ids import SlotId
from clonos.core.wire.control_messages import Hold
from tests.harnesses.coordinator_harness import Desk, sent


def _source_slots(desk: Desk) -> set[SlotId]:
    return {desk.of(task).hosting_slot for task in desk.plan.sources}


def _above(desk: Desk) -> SlotId:
    """A slot that hosts no source."""
    return next(slot for slot in desk.slots if slot not in _source_slots(desk))


def test_sources_are_held_at_each_heartbeat_while_a_slot_is_above_its_soft_limit() -> None:
    desk = Desk()
    desk.form()
    assert sent(desk.tick(1_000), Hold) == []
    above = _above(desk)
    desk.slots[above].is_over_soft_limit = True
    desk.tick()
    for _ in range(5):
        holds = sent(desk.tick(), Hold)
        assert {(slot, message) for slot, message in holds} == {(slot, Hold(above)) for slot in _source_slots(desk)}
    assert desk.pending() == [1]
    desk.slots[above].is_over_soft_limit = False
    assert sent(desk.tick(1_000), Hold) == []


def test_a_dead_slot_holds_no_source() -> None:
    desk = Desk()
    desk.form()
    above = _above(desk)
    desk.slots[above].is_over_soft_limit = True
    desk.tick()
    desk.gone(above)
    assert sent(desk.tick(1_000), Hold) == []
