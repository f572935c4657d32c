"""Sources that cannot be re-read, in simulated worlds: journalled records are output once, for every death.

The producers' own account is part of each world's verdict: what the job must have had, and whether it went back before
what it had acknowledged without an alarm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from clonos.core.external.keeper import Keeper
from clonos.core.external.source_journal import SourceJournal
from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.ids import journal_of
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.task.source import JournalReader
from clonos.core.wire.log_delta import Delta
from clonos.operators import journal_source as journal_head
from clonos_chaos.project.directed.journal_cases import LOST, ROLLED_BACK, SURVIVED, JournalTest
from clonos_chaos.project.mutants.mutation import Mutation
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.sim.producers import SimProducer
from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.world import World
from tests.worlds.playing import swarmed
from tests.worlds.search import Search

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

GOES_BACK = pytest.mark.parametrize("goes_back", [True, False], ids=["producer-goes-back", "producer-forgets"])
SEEDS = range(1)


def played(scene: JournalTest, seed: int, goes_back: bool) -> tuple[World, SimProducer]:
    """A world that ended well and in which the targeted faults were injected, and its only producer."""
    world = scene(seed, goes_back)
    world.run()
    assert all(targeted.injected for targeted in world.faults.targeted_faults), "nothing has happened"
    (producer,) = world.job.producers.values()
    return world, producer


@GOES_BACK
@pytest.mark.parametrize("name", SURVIVED)
def test_d_acknowledged_records_are_output_once_without_a_rollback(name: str, goes_back: bool) -> None:
    for seed in SEEDS:
        world, producer = played(SURVIVED[name], seed, goes_back)
        assert world.outcome.rollbacks == 0
        assert not producer.set_back
        if goes_back:
            assert producer.retained() == producer.offsets


@GOES_BACK
@pytest.mark.parametrize("name", ROLLED_BACK)
def test_a_rollback_keeps_the_journal_in_its_keeper(name: str, goes_back: bool) -> None:
    for seed in SEEDS:
        world, producer = played(ROLLED_BACK[name], seed, goes_back)
        assert world.outcome.rollbacks == 1
        assert not producer.set_back


@GOES_BACK
@pytest.mark.parametrize("name", LOST)
def test_a_lost_journal_causes_a_rollback_and_an_alarm_while_the_producer_continues(name: str, goes_back: bool) -> None:
    for seed in SEEDS:
        world, producer = played(LOST[name], seed, goes_back)
        assert world.outcome.rollbacks == 1
        assert producer.set_back == [0]
        assert (producer.retained() == producer.offsets) is goes_back
        assert any("no keeper has the journal of source/0" in text for text, _ in world.warnings)


@pytest.mark.exhaustive
def test_random_worlds_of_pushed_jobs_are_correct(search: Search) -> None:
    assert swarmed(search, Swarm("pushed"), part=4).checkpoints > 0


# ---------------------------------------------------------------- mutated rules


def _release_at_once(mutation: Mutation) -> None:
    class Flatterer:
        def __init__(self, journal: SourceJournal) -> None:
            self.acknowledged = {journal.id: journal.end_bytes}

    mutation.wrap(SourceJournal, "release", lambda right, self, links: right(self, [Flatterer(self)]))


def _adopt_nothing(mutation: Mutation) -> None:
    mutation.wrap(SourceJournal, "adopt", lambda right, self, start, found, *rest: right(self, start, None, *rest))


def _adopt_half(mutation: Mutation) -> None:
    def adopt(right: Any, self: SourceJournal, start: int, found: Delta | None, *rest: Any) -> None:
        if found is not None:
            half, newline, _ = found.data[: len(found.data) // 2].rpartition(b"\n")
            found = msgspec.structs.replace(found, data=half + newline)
        right(self, start, found, *rest)

    mutation.wrap(SourceJournal, "adopt", adopt)


def _read_what_was_found_at_once(mutation: Mutation) -> None:
    mutation.swap(JournalReader, "recover", JournalReader.feed)


def _acknowledge_what_was_found_at_once(mutation: Mutation) -> None:
    def adopt(right: Any, self: SourceJournal, *arguments: Any) -> None:
        right(self, *arguments)
        self.released_bytes = self.found_bytes

    mutation.wrap(SourceJournal, "adopt", adopt)


def _forget_at_a_rollback(mutation: Mutation) -> None:
    def begin_generation(self: Keeper) -> None:
        self.logs = CausalLogs()

    mutation.swap(Keeper, "begin_generation", begin_generation)


def _leave_nothing_for_the_successor_here(mutation: Mutation) -> None:
    def close(right: Any, self: SourceJournal, *arguments: Any) -> None:
        right(self, *arguments)

    mutation.wrap(SourceJournal, "close", close)


def _leave_what_is_unread_out_of_the_snapshot(mutation: Mutation) -> None:
    def position(right: Any, self: journal_head.JournalHead) -> bytes:
        records, self._records = self._records, type(self._records)()
        try:
            return bytes(right(self))
        finally:
            self._records = records

    mutation.wrap(journal_head.JournalHead, "position", position)


def _truncate_at_the_barrier(mutation: Mutation) -> None:
    def take(right: Any, self: HostedTask, snapshot: Any, *rest: Any) -> None:
        right(self, snapshot, *rest)
        if self.output_gate.journal is not None:
            self.output_gate.truncate_journal(snapshot.journal_offset_bytes)

    mutation.wrap(HostedTask, "take_snapshot", take)


def _keep_only_what_is_new(mutation: Mutation) -> None:
    def keep(right: Any, self: Keeper, *arguments: Any) -> Any:
        acknowledged = right(self, *arguments)
        journal = journal_of(self.task)
        self.logs.truncate(journal, self.logs.end_bytes(journal))
        return acknowledged

    mutation.wrap(Keeper, "keep", keep)


WRONG: dict[Callable[[Mutation], None], JournalTest] = {
    _release_at_once: SURVIVED["the source dies when bytes have come in"],
    _adopt_nothing: SURVIVED["the source dies when the producer gets an acknowledgement"],
    _adopt_half: SURVIVED["the source dies when the producer gets an acknowledgement"],
    _read_what_was_found_at_once: SURVIVED[
        "the source dies, then its successor with the keeper that had more than the other"
    ],
    _acknowledge_what_was_found_at_once: SURVIVED[
        "the source dies, then its successor with the keeper that had more than the other"
    ],
    _forget_at_a_rollback: ROLLED_BACK["an immediate sink, its keeper and the source die together"],
    _leave_nothing_for_the_successor_here: ROLLED_BACK[
        "an immediate sink, its keeper and that of the source die together"
    ],
    _leave_what_is_unread_out_of_the_snapshot: SURVIVED["the keeper, then the source, dies when records are read"],
    _truncate_at_the_barrier: SURVIVED["the source dies, and its snapshot is never acknowledged"],
    _keep_only_what_is_new: SURVIVED["the source dies when the producer gets an acknowledgement"],
}
"""Each with a scene that shows it."""

WRONG_SEEDS = (19, 16, *range(10))
"""In most worlds the two that read or acknowledge at once do no harm; 19 shows them, 16 a rollback that forgets."""


@pytest.mark.parametrize("apply", WRONG, ids=lambda apply: apply.__name__.removeprefix("_"))
def test_a_mutated_rule_of_journals_is_caught(apply: Callable[[Mutation], None]) -> None:
    mutation = Mutation()
    apply(mutation)
    try:
        assert any(_shows(WRONG[apply](seed, goes_back)) for seed in WRONG_SEEDS for goes_back in (False, True))
    finally:
        mutation.undo()


def _shows(world: World) -> bool:
    """Whether the producer, the oracle or the job itself complains."""
    try:
        world.run()
    except WorldFailed:
        return True
    return any(producer.set_back for producer in world.job.producers.values())
