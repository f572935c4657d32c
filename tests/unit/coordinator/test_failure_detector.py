"""Failure detection: provider reports, silence, broken connections, mutual suspicions (protocol 6.1)."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.core.coordinator.coordinator_effects import Milestone, RecoveryEvent, ReleaseSlot
from clonos.core.coordinator.coordinator_events import SlotUnreachable, Ticked
from clonos.core.model.ids import SlotId
from clonos.core.model.options import Options
from clonos.core.wire.control_messages import Release, View
from tests.harnesses.coordinator_harness import MILLISECOND_NS, CoordinatorHarness, of_kind, sent

SHORT = Options(lease_ms=1_000, checkpoint_every_ms=1_000_000)


def _harness() -> CoordinatorHarness:
    harness = CoordinatorHarness(options=SHORT)
    harness.form()
    harness.tick(300)
    return harness


def _home(harness: CoordinatorHarness, task: int) -> int:
    return harness.of(task).hosting_slot


def test_a_slot_that_its_provider_reports_as_ended_is_dead_at_once() -> None:
    harness = _harness()
    slot = _home(harness, 0)
    effects = harness.gone(slot)
    assert len(sent(effects, View)) == 5
    assert harness.of(0).hosting_slot != slot
    assert of_kind(effects, ReleaseSlot) == []  # its process has ended


def test_a_slot_is_dead_after_a_silent_lease_and_not_before() -> None:
    harness = _harness()
    slot = harness.slots[SlotId(_home(harness, 0))]
    slot.is_mute = True
    assert sent(harness.tick(800), View) == []
    slot.is_mute = False
    harness.tick(100)
    slot.is_mute = True
    assert sent(harness.tick(800), View) == []
    effects = harness.tick(200)
    assert len(sent(effects, View)) == 5
    assert [e.slot for e in of_kind(effects, ReleaseSlot)] == [slot.slot]  # it may be paused only: its end is seen to


def test_a_pause_of_the_coordinator_causes_no_death() -> None:
    harness = _harness()
    harness.now_ns += 3_600_000 * MILLISECOND_NS  # ticks stop for an hour, and what slots said is still in the socket
    effects = harness.do(Ticked(harness.now_ns))
    assert of_kind(effects, RecoveryEvent) == []
    assert of_kind(harness.tick(300), RecoveryEvent) == []


def test_a_clock_that_is_set_back_causes_no_death() -> None:
    harness = _harness()
    harness.now_ns -= 200 * MILLISECOND_NS
    assert of_kind(harness.do(Ticked(harness.now_ns)), RecoveryEvent) == []


def test_a_replaced_slot_is_released_whenever_it_sends_a_message() -> None:
    harness = _harness()
    slot = harness.slots[SlotId(_home(harness, 0))]
    slot.is_mute = slot.is_deaf = True
    harness.tick(1_200)
    status = slot.status()
    for _ in range(2):
        effects = harness.receive(slot.slot, status)
        assert [(to, type(message)) for to, message in sent(effects, Release)] == [(slot.slot, Release)]


def test_an_unknown_slot_is_released() -> None:
    harness = _harness()
    effects = harness.receive(4711, harness.slots[SlotId(1)].status())
    assert [to for to, _ in sent(effects, Release)] == [4711]


def test_a_broken_connection_followed_by_silence_is_a_death_within_a_few_heartbeats() -> None:
    harness = _harness()
    slot = _home(harness, 0)
    harness.slots[SlotId(slot)].is_mute = True
    assert sent(harness.suspect(_home(harness, 1), slot), View) == []
    assert sent(harness.tick(200), View) == []
    assert len(sent(harness.tick(200), View)) == 5


def test_a_broken_connection_of_a_slot_that_still_sends_is_not_a_death() -> None:
    harness = _harness()
    harness.suspect(_home(harness, 1), _home(harness, 0))
    assert sent(harness.tick(800), View) == []


def test_suspicions_of_two_peers_are_not_a_death() -> None:
    harness = _harness()
    suspect = _home(harness, 0)
    accusers = [slot for slot in harness.slots if slot != suspect]
    harness.suspect(accusers[0], suspect)
    assert sent(harness.suspect(accusers[1], suspect), View) == []


def test_a_suspicion_and_a_broken_connection_to_the_coordinator_are_a_death_at_once() -> None:
    harness = _harness()
    suspect = _home(harness, 0)
    assert sent(harness.do(SlotUnreachable(SlotId(suspect))), View) == []
    assert len(sent(harness.suspect(_home(harness, 1), suspect), View)) == 5


def test_a_connection_to_the_coordinator_that_comes_back_is_not_a_death() -> None:
    harness = _harness()
    harness.do(SlotUnreachable(SlotId(_home(harness, 0))))
    assert sent(harness.tick(600), View) == []


def _mutual_suspicion(
    harness: CoordinatorHarness, pairs: Sequence[tuple[int, int]], milliseconds: int
) -> list[RecoveryEvent]:
    events: list[RecoveryEvent] = []
    for _ in range(milliseconds // 100):
        for reporter, suspect in pairs:
            if SlotId(suspect) in harness.view_slots() and SlotId(reporter) in harness.view_slots():
                harness.suspect(reporter, suspect)
        events += of_kind(harness.tick(100), RecoveryEvent)
    return [entry for entry in events if entry.milestone is Milestone.DETECTED]


def test_one_of_two_live_peers_that_cannot_reach_each_other_is_replaced_after_a_lease() -> None:
    harness = _harness()
    one, other = sorted((_home(harness, 0), _home(harness, 1)))
    assert _mutual_suspicion(harness, [(one, other), (other, one)], 900) == []
    events = _mutual_suspicion(harness, [(one, other), (other, one)], 300)
    assert len(events) == 1
    assert other not in harness.view_slots()  # the higher id, where both are accused by one
    assert one in harness.view_slots()
    assert _mutual_suspicion(harness, [(one, other), (other, one)], 3_000) == []


def test_the_slot_that_most_peers_suspect_is_replaced() -> None:
    harness = _harness()
    low, *others = sorted(harness.view_slots())
    pairs = [(other, low) for other in others[:2]] + [(low, other) for other in others[:2]]
    _mutual_suspicion(harness, pairs, 1_200)
    assert low not in harness.view_slots()
    assert set(others) <= set(harness.view_slots())


def test_a_suspicion_that_is_not_repeated_expires() -> None:
    harness = _harness()
    for _ in range(5):
        harness.suspect(1, 2)
        assert of_kind(harness.tick(700), RecoveryEvent) == []


def test_a_suspicion_of_a_dead_slot_is_ignored() -> None:
    harness = _harness()
    harness.gone(1)
    assert harness.suspect(2, 1) == ()
