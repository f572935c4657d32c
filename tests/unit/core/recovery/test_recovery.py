"""Recovery of an incarnation (protocol 6.6 to 6.8): every pair of the table, and the lost-log rule."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from clonos.core.channel.sender import Behind
from clonos.core.model.errors import InternalError
from clonos.core.model.ids import ChannelId, Incarnation, SlotId, TaskId
from clonos.core.recovery import recovery_machine as r
from clonos.core.recovery.gathering import Gathering, Holder
from tests.harnesses.sample_plans import number

WAITING = Gathering(number(1), frozenset({Holder(TaskId(1), False, SlotId(2))}))
DONE = Gathering(number(1), frozenset())
POSITIONS = ((ChannelId(0), 5), (ChannelId(1), 7))
BEHIND = Behind(ChannelId(0), 5, 9)
FENCED = r.IncarnationFenced(2, Incarnation(3))

STATES: tuple[r.State, ...] = (
    r.Recovering(WAITING, False),
    r.Connecting(),
    r.Replaying(),
    r.Stalled(POSITIONS),
    r.Live(),
    r.Lost(BEHIND),
)
EVENTS: tuple[r.Event, ...] = (
    r.Gathered(DONE),
    r.Restored(),
    r.HandshakesReceived(False),
    r.LogEnded(POSITIONS, None, False),
    r.JournalMissing(),
    FENCED,
)

STAYS = {
    (r.Recovering, r.HandshakesReceived),
    (r.Connecting, r.Gathered),
    (r.Replaying, r.HandshakesReceived),
    (r.Live, r.HandshakesReceived),
    (r.Live, r.LogEnded),
    (r.Lost, r.HandshakesReceived),
    (r.Lost, r.LogEnded),
    (r.Lost, r.JournalMissing),
    (r.Lost, r.IncarnationFenced),
}
MOVES = {
    (r.Recovering, r.Gathered),
    (r.Recovering, r.Restored),
    (r.Connecting, r.HandshakesReceived),
    (r.Replaying, r.LogEnded),
    (r.Replaying, r.JournalMissing),
    (r.Stalled, r.HandshakesReceived),
    (r.Stalled, r.LogEnded),
    (r.Connecting, r.IncarnationFenced),
    (r.Replaying, r.IncarnationFenced),
    (r.Stalled, r.IncarnationFenced),
    (r.Live, r.IncarnationFenced),
}


def test_the_table_has_just_these_rows() -> None:
    assert set(r.HANDLERS) == STAYS | MOVES


@pytest.mark.parametrize("state", STATES, ids=r.phase_of)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_stay_row_keeps_the_state_and_a_missing_row_raises_with_the_history(state: r.State, event: r.Event) -> None:
    pair = (type(state), type(event))
    if pair in STAYS:
        assert r.step(state, event) == (state, ())
    elif pair not in MOVES:
        with pytest.raises(InternalError, match=f"{type(event).__name__} in state {type(state).__name__}"):
            r.step(state, event)


def test_a_task_needs_log_and_state_in_either_order() -> None:
    waiting, none = r.step(r.Recovering(WAITING, False), r.Restored())
    assert (waiting, none) == (r.Recovering(WAITING, True), ())
    assert r.step(waiting, r.Gathered(DONE)) == (r.Connecting(), (r.Connect(DONE),))
    waiting, none = r.step(r.Recovering(WAITING, False), r.Gathered(DONE))
    assert (waiting, none) == (r.Recovering(DONE, False), ())
    assert r.step(waiting, r.Restored()) == (r.Connecting(), (r.Connect(DONE),))


def test_replay_begins_when_every_receiver_has_sent_its_handshake() -> None:
    assert r.step(r.Connecting(), r.HandshakesReceived(True)) == (r.Connecting(), ())
    assert r.step(r.Connecting(), r.HandshakesReceived(False)) == (r.Replaying(), (r.Start(),))


@dataclass(frozen=True)
class End:
    """End of a log, and the expected result."""

    behind: Behind | None
    is_awaiting: bool
    then: r.State
    effects: tuple[r.Effect, ...]


@pytest.mark.parametrize("state", [r.Replaying(), r.Stalled(POSITIONS)], ids=r.phase_of)
@pytest.mark.parametrize(
    "end",
    [
        End(None, False, r.Live(), (r.GoLive(),)),
        End(BEHIND, False, r.Lost(BEHIND), (r.ReportLost(),)),
        End(None, True, r.Stalled(POSITIONS), ()),
    ],
)
def test_g36_at_the_end_of_its_log_a_task_goes_live_is_lost_or_waits_for_a_receivers_successor(
    state: r.State, end: End
) -> None:
    assert r.step(state, r.LogEnded(POSITIONS, end.behind, end.is_awaiting)) == (end.then, end.effects)


def test_a_stalled_task_compares_again_with_every_handshake() -> None:
    for is_missing in (False, True):
        stalled = r.Stalled(POSITIONS)
        assert r.step(stalled, r.HandshakesReceived(is_missing)) == (stalled, (r.Compare(POSITIONS),))


def test_a_lost_task_stays_lost_after_any_handshake() -> None:
    lost = r.Lost(BEHIND)
    assert r.step(lost, r.HandshakesReceived(False)) == (lost, ())


@pytest.mark.parametrize("state", STATES[1:5], ids=r.phase_of)
def test_a_fenced_sink_reports_the_incarnation_that_fenced_it(state: r.State) -> None:
    assert r.step(state, FENCED) == (r.Lost(FENCED), (r.ReportLost(),))


def test_a_source_whose_journal_is_shorter_than_its_log_is_lost() -> None:
    missing = r.JournalMissing()
    assert r.step(r.Replaying(), missing) == (r.Lost(missing), (r.ReportLost(),))


def test_every_state_has_a_different_name_in_the_status() -> None:
    assert [r.phase_of(state) for state in STATES] == [
        "recovering",
        "connecting",
        "replaying",
        "stalled",
        "live",
        "lost",
    ]
