"""Shrinking: a failing world fails in the same way with fewer faults and records, and can be reproduced."""

from __future__ import annotations

import re
import shlex

import pytest

from clonos_chaos.project.mutants.all_mutants import mutated
from clonos_chaos.runs import cli
from clonos_chaos.swarm.environments import Swarm, mixed_settings
from clonos_chaos.swarm.failing_seed import command_of, seed_report, shrunk_seed
from clonos_chaos.swarm.seeds import SwarmResult, swarm
from clonos_chaos.swarm.shrinking import TRIES_MAX, Failure, failure_of
from tests.worlds.playing import swarmed
from tests.worlds.search import Search

pytestmark = pytest.mark.controls

PLAIN = Swarm()
MUTANTS = ("shortest_log_wins", "first_answer_wins")


def first_failure(faults_min: int = 3, first_seed: int = 0) -> Failure:
    """The first failing seed with at least ``faults_min`` faults."""
    for seed in range(first_seed, first_seed + 60):
        failure = failure_of(PLAIN.world(seed))
        if failure is not None and len(failure.world.faults.injected) >= faults_min:
            return failure
    raise AssertionError("the planted mutant is not found")


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_shrunk_world_is_smaller_and_fails_in_the_same_way(mutant: str) -> None:
    with mutated(mutant):
        whole = first_failure()
        shrunk = shrunk_seed(whole.world.seed, PLAIN)
        assert shrunk is not None
        assert shrunk.failure.signature == whole.signature
        assert {number for number, _ in shrunk.injected} <= set(shrunk.faults) <= set(whole.world.faults.injected)
        records = shrunk.failure.world.job.records
        assert shrunk.records in (None, records)
        assert (len(shrunk.faults), records) < (len(whole.world.faults.injected), whole.world.job.records)
        assert records <= whole.world.job.records
        assert shrunk.tries <= TRIES_MAX


def test_the_printed_command_reproduces_the_shrunk_world(capsys: pytest.CaptureFixture[str]) -> None:
    with mutated("shortest_log_wins"):
        seed = first_failure().world.seed
        shrunk = shrunk_seed(seed, PLAIN)
        assert shrunk is not None
        command = shlex.split(command_of(seed, PLAIN, shrunk))
        assert command[:3] == ["clonos", "chaos", "seeds"]
        assert cli.seeds(command[3:]) == cli.BAD
    shown = capsys.readouterr().out
    assert f"seed {seed} " in shown
    complaint = re.split(r"(?<= slot )\d+", shrunk.failure.complaint)  # slots have short names there
    assert all(part in shown for part in complaint)
    assert cli.seeds(command[3:]) == cli.GOOD, "without the mutant the same small world is well"


def test_the_report_of_a_failing_seed_starts_with_one_command_and_shows_only_affected_tasks() -> None:
    with mutated("shortest_log_wins"):
        failure = first_failure(first_seed=27)  # one before fails by its disk alone, without any of its faults
        lines = seed_report(failure.world.seed, PLAIN, "").splitlines()
    assert re.fullmatch(rf"clonos chaos seeds --from {failure.world.seed} --to \d+ --only-faults .*", lines[0])
    assert lines[1].startswith("shrunk to ")
    assert any(line.startswith("fault ") for line in lines)
    event_log = [line for line in lines if re.match(r" *\d+\.\d{3} ", line)]
    assert event_log
    assert not any(re.search(r"\d{15}", line) for line in event_log), "slots have short names"


def test_a_world_with_all_its_faults_listed_is_the_same_world() -> None:
    """Each fault keeps its random numbers, so leaving none out changes nothing."""
    for seed in range(4, 8):
        whole = PLAIN.world(seed)
        outcome = whole.run()
        rngs = {number: injected.rng for number, injected in whole.faults.injected.items()}
        assert PLAIN.world(seed, rngs, 1_000).run().digest == outcome.digest


def test_a_swarm_starts_no_world_after_its_time_limit() -> None:
    total = SwarmResult()
    for tally in swarm(range(10**9), Swarm("chain"), processes=1, is_over=lambda: total.worlds >= 20):
        total.add(tally)
    assert total.worlds == 20


def test_mixed_worlds_draw_cluster_and_faults_at_random() -> None:
    drawn = [mixed_settings(seed) for seed in range(100)]
    assert {settings.tasks_a_slot for settings in drawn} == {1, 2, 3}
    assert len({settings.fault_kinds for settings in drawn}) > 30
    assert len({settings.spare_slots for settings in drawn}) > 2


@pytest.mark.exhaustive
def test_mixed_worlds_show_no_fault(search: Search) -> None:
    swarmed(search, Swarm(is_mixed=True), part=40, share="mixed")
