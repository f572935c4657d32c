"""Asynchronous calls in simulated worlds: concurrent, with one answer per record in every incarnation."""

from __future__ import annotations

from itertools import count

import pytest

from clonos import Job, collect, values
from clonos.core.log import determinants as d
from clonos.core.task.record_or_replay import TaskLog
from clonos.testing import Outputs, crash_test
from clonos_chaos.jobs.async_jobs import AsideJob
from clonos_chaos.mutants.mutation import Mutation
from clonos_chaos.swarm.world import World, WorldFailed

pytestmark = pytest.mark.worlds

SEEDS = range(24)


def world(seed: int) -> World:
    return World(seed, job=lambda rng: AsideJob("aside", rng, rng.randint(20, 60), rng.choice((None, None, 1, 2))))


def test_random_worlds_of_jobs_with_concurrent_calls_are_correct() -> None:
    asked, repeated = 0, 0
    for seed in SEEDS:
        played = world(seed)
        played.run()
        answers = played.job.service.answers
        asked += len(answers)
        repeated += len(answers) - len({answer.key for answer in answers})
    assert asked > repeated > 0, "no failure ever repeated a call with its key"


def test_all_records_of_a_key_have_the_answer_in_the_cache_whatever_dies() -> None:
    """Each request has another answer, so a cache that a successor had not would show."""
    numbers = count()

    def check(outputs: Outputs) -> None:
        found = {(n % 7, answer) for n, answer in outputs["found"]}
        assert sorted(n for n, _ in outputs["found"]) == list(range(80))
        assert sorted(key for key, _ in found) == list(range(7))

    def make_job() -> Job:
        job = Job("enriched", checkpoint_every="1s")
        rows = job.source(values([{"n": n, "key": n % 7} for n in range(80)]), name="rows").rebalance()
        rows.enrich(
            "http://host/{key}",
            select=lambda row, answer: (row["n"], answer["answer"]),
            cache=10,
            capacity=3,
            parallelism=1,
        ).sink(collect(), name="found")
        return job

    report = crash_test(
        make_job, seeds=SEEDS, check=check, http=lambda request: {"answer": next(numbers)}, compare=False
    )
    assert report.injected["kill"] > 3


def test_outcomes_that_are_not_logged_are_detected() -> None:
    mutation = Mutation()
    mutation.wrap(TaskLog, "append", lambda right, log, entry: entry[0] == d.COMPLETION or right(log, entry))
    try:
        assert any(_fails(seed) for seed in SEEDS)
    finally:
        mutation.undo()


def _fails(seed: int) -> bool:
    try:
        world(seed).run()
    except WorldFailed:
        return True
    return False
