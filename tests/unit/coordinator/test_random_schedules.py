"""Seeded schedules of failures around idealised slots: every job ends, and no rule is broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos.core.checkpoint import checkpoint_events
from clonos.core.coordinator import checkpoint_machine, coordinator, event_handlers, failover
from clonos.core.coordinator.checkpoint_ledger import with_counted
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.coordinator.coordinator_events import Begin
from clonos.core.coordinator.coordinator_state import CoordinatorState
from tests.harnesses.ideal_cluster import IdealCluster


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_every_random_schedule_ends_the_job_without_breaking_a_rule(seed: int) -> None:
    world = IdealCluster(seed)
    world.run()
    assert isinstance(world.ending, JobDone), world.ending
    assert world.watch.completed[-1].is_final


def test_one_seed_gives_the_same_world_every_time() -> None:
    def story(seed: int) -> tuple[object, ...]:
        world = IdealCluster(seed)
        world.run()
        return world.now_ms, world.watch.view, world.watch.completed

    assert story(7) == story(7)


# ------------------------------------------------------------------ negative controls: a rule taken away is noticed


def _is_noticed(seeds: range) -> bool:
    for seed in seeds:
        world = IdealCluster(seed)
        try:
            world.run()
        except AssertionError:
            return True
        if not isinstance(world.ending, JobDone):
            return True
    return False


def test_the_checks_catch_a_view_that_does_not_wait_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(failover.GATE, checkpoint_machine.Committing, failover.GATE[checkpoint_machine.Collecting])
    assert _is_noticed(range(1, 21))


@pytest.mark.slow
def test_the_checks_catch_an_acknowledgement_of_a_dead_incarnation_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def count_anyone(
        state: checkpoint_machine.Collecting | checkpoint_machine.Committing, event: checkpoint_events.Acknowledged
    ) -> checkpoint_machine.Step:
        after = replace(state, ledger=with_counted(state.ledger, event.message))
        return checkpoint_machine.advance(after) if isinstance(after, checkpoint_machine.Collecting) else (after, ())

    for state in (checkpoint_machine.Collecting, checkpoint_machine.Committing, checkpoint_machine.Publishing):
        monkeypatch.setitem(checkpoint_machine.HANDLERS, (state, checkpoint_events.Acknowledged), count_anyone)
    assert _is_noticed(range(20, 61))


def test_the_checks_catch_acknowledgements_that_survive_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    for state in (checkpoint_machine.Collecting, checkpoint_machine.Committing, checkpoint_machine.Publishing):
        monkeypatch.setitem(
            checkpoint_machine.HANDLERS, (state, checkpoint_events.Died), lambda state, _event: (state, ())
        )
    assert _is_noticed(range(1, 21))


@pytest.mark.slow
def test_the_checks_catch_messages_that_are_never_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def repeat_nothing(_state: CoordinatorState) -> None:
        return

    monkeypatch.setattr(event_handlers, "REPEAT", repeat_nothing)
    assert _is_noticed(range(40, 60))


def test_every_pair_of_phase_and_event_has_a_row_or_is_impossible() -> None:
    phases = {phase for phase, _ in coordinator.HANDLERS}
    events = {event for _, event in coordinator.HANDLERS} - {Begin}
    missing = {
        (phase.__name__, event.__name__)
        for phase in phases
        for event in events
        if (phase, event) not in coordinator.HANDLERS
    }
    before_begin = {("Idle", event.__name__) for event in events}
    # No slot is known in these phases: a message is answered by a release before the table is used.
    strangers = {(phase, message.__name__) for phase in ("Closing", "Over") for message in coordinator.MESSAGES}
    assert missing <= before_begin | strangers
