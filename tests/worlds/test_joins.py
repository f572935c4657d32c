"""Jobs with joins and connected streams in simulated worlds: rows leave as the dumb twin says, whatever dies."""

from __future__ import annotations

from random import Random

import pytest

from clonos_chaos.jobs.join_jobs import ALONE, MATCHED, WAS_LATE, JoinedJob
from clonos_chaos.swarm.environments import Swarm
from tests.worlds.playing import swarmed
from tests.worlds.search import Search

pytestmark = [pytest.mark.worlds, pytest.mark.slow]


@pytest.mark.exhaustive
def test_random_worlds_of_jobs_with_joins_are_correct(search: Search) -> None:
    assert swarmed(search, Swarm("joined"), part=4).checkpoints > 0


def test_the_twin_sees_a_row_that_left_a_join_otherwise() -> None:
    job = next(job for seed in range(99) if not (job := JoinedJob("joined", Random(seed), 40, None)).sleeps)
    kinds = {offset: MATCHED if job.has_match(offset) else ALONE for offset in range(job.records)}
    for offset, kind in kinds.items():
        assert job.complaints_of_rows([(offset, ((1, 0, 0, (kind,), 0, 0),))]) == []
        for wrong in {MATCHED, ALONE, WAS_LATE} - {kind}:
            assert job.complaints_of_rows([(offset, ((1, 0, 0, (wrong,), 0, 0),))])
