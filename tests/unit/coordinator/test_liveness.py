"""Failure detection: provider reports, silence, broken connections, mutual suspicions (protocol 6.1)."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.core.coordinator.coordinator_effects import Milestone, RecoveryEvent, ReleaseSlot
from clonos.core.coordinator.coordinator_events import SlotUnreachable, Ticked
from clonos.core.model.ids import SlotId
from clonos.core.model.options import Options
from clonos.core.wire.control_messages import Release, View
from tests.harnesses.coordinator_harness import MILLISECOND_NS, Desk, of_kind, sent

SHORT = Options(lease_ms=1_000, checkpoint_every_ms=1_000_000)


def _desk() -> Desk:
    desk = Desk(options=SHORT)
    desk.form()
    desk.tick(300)
    return desk


def _home(desk: Desk, task: int) -> int:
    return desk.of(task).hosting_slot


def test_a_slot_that_its_provider_reports_as_ended_is_dead_at_once() -> None:
    desk = _desk()
    slot = _home(desk, 0)
    effects = desk.gone(slot)
    assert len(sent(effects, View)) == 5
    assert desk.of(0).hosting_slot != slot
    assert of_kind(effects, ReleaseSlot) == []  # its process has ended


def test_a_slot_is_dead_after_a_silent_lease_and_not_before() -> None:
    desk = _desk()
    slot = desk.slots[SlotId(_home(desk, 0))]
    slot.is_mute = True
    assert sent(desk.tick(800), View) == []
    slot.is_mute = False
    desk.tick(100)
    slot.is_mute = True
    assert sent(desk.tick(800), View) == []
    effects = desk.tick(200)
    assert len(sent(effects, View)) == 5
    assert [e.slot for e in of_kind(effects, ReleaseSlot)] == [slot.slot]  # it may be paused only: its end is seen to


def test_a_pause_of_the_coordinator_causes_no_death() -> None:
    desk = _desk()
    desk.now_ns += 3_600_000 * MILLISECOND_NS  # ticks stop for an hour, and what slots said is still in the socket
    effects = desk.do(Ticked(desk.now_ns))
    assert of_kind(effects, RecoveryEvent) == []
    assert of_kind(desk.tick(300), RecoveryEvent) == []


def test_a_clock_that_is_set_back_causes_no_death() -> None:
    desk = _desk()
    desk.now_ns -= 200 * MILLISECOND_NS
    assert of_kind(desk.do(Ticked(desk.now_ns)), RecoveryEvent) == []


def test_a_replaced_slot_is_released_whenever_it_sends_a_message() -> None:
    desk = _desk()
    slot = desk.slots[SlotId(_home(desk, 0))]
    slot.is_mute = slot.is_deaf = True
    desk.tick(1_200)
    status = slot.status()
    for _ in range(2):
        effects = desk.say(slot.slot, status)
        assert [(to, type(message)) for to, message in sent(effects, Release)] == [(slot.slot, Release)]


def test_an_unknown_slot_is_released() -> None:
    desk = _desk()
    effects = desk.say(4711, desk.slots[SlotId(1)].status())
    assert [to for to, _ in sent(effects, Release)] == [4711]


def test_a_broken_connection_followed_by_silence_is_a_death_within_a_few_heartbeats() -> None:
    desk = _desk()
    slot = _home(desk, 0)
    desk.slots[SlotId(slot)].is_mute = True
    assert sent(desk.suspect(_home(desk, 1), slot), View) == []
    assert sent(desk.tick(200), View) == []
    assert len(sent(desk.tick(200), View)) == 5


def test_a_broken_connection_of_a_slot_that_keeps_sending_is_not_a_death() -> None:
    desk = _desk()
    desk.suspect(_home(desk, 1), _home(desk, 0))
    assert sent(desk.tick(800), View) == []


def test_suspicions_of_two_peers_are_not_a_death() -> None:
    desk = _desk()
    suspect = _home(desk, 0)
    accusers = [slot for slot in desk.slots if slot != suspect]
    desk.suspect(accusers[0], suspect)
    assert sent(desk.suspect(accusers[1], suspect), View) == []


def test_a_suspicion_and_a_broken_connection_to_the_coordinator_are_a_death_at_once() -> None:
    desk = _desk()
    suspect = _home(desk, 0)
    assert sent(desk.do(SlotUnreachable(SlotId(suspect))), View) == []
    assert len(sent(desk.suspect(_home(desk, 1), suspect), View)) == 5


def test_a_connection_to_the_coordinator_that_comes_back_is_not_a_death() -> None:
    desk = _desk()
    desk.do(SlotUnreachable(SlotId(_home(desk, 0))))
    assert sent(desk.tick(600), View) == []


def _mutual_suspicion(desk: Desk, pairs: Sequence[tuple[int, int]], milliseconds: int) -> list[RecoveryEvent]:
    told: list[RecoveryEvent] = []
    for _ in range(milliseconds // 100):
        for accuser, suspect in pairs:
            if SlotId(suspect) in desk.view_slots() and SlotId(accuser) in desk.view_slots():
                desk.suspect(accuser, suspect)
        told += of_kind(desk.tick(100), RecoveryEvent)
    return [entry for entry in told if entry.milestone is Milestone.DETECTED]


def test_one_of_two_live_peers_that_cannot_reach_each_other_is_replaced_after_a_lease() -> None:
    desk = _desk()
    one, other = sorted((_home(desk, 0), _home(desk, 1)))
    assert _mutual_suspicion(desk, [(one, other), (other, one)], 900) == []
    told = _mutual_suspicion(desk, [(one, other), (other, one)], 300)
    assert len(told) == 1
    assert other not in desk.view_slots()  # the higher id, where both are accused by one
    assert one in desk.view_slots()
    assert _mutual_suspicion(desk, [(one, other), (other, one)], 3_000) == []


def test_the_slot_that_most_peers_suspect_is_replaced() -> None:
    desk = _desk()
    low, *others = sorted(desk.view_slots())
    pairs = [(other, low) for other in others[:2]] + [(low, other) for other in others[:2]]
    _mutual_suspicion(desk, pairs, 1_200)
    assert low not in desk.view_slots()
    assert set(others) <= set(desk.view_slots())


def test_a_suspicion_that_is_not_repeated_expires() -> None:
    desk = _desk()
    for _ in range(5):
        desk.suspect(1, 2)
        assert of_kind(desk.tick(700), RecoveryEvent) == []


def test_a_suspicion_of_a_dead_slot_is_ignored() -> None:
    desk = _desk()
    desk.gone(1)
    assert desk.suspect(2, 1) == ()
