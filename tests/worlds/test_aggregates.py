"""Jobs of named aggregates in simulated worlds: each result is that of a dumb twin, whatever dies."""

from __future__ import annotations

from random import Random

import pytest

from clonos_chaos.jobs.aggregate_jobs import STAGE, AggregateJob, twin
from clonos_chaos.swarm.environments import Swarm
from tests.worlds.playing import swarmed
from tests.worlds.search import Search

pytestmark = pytest.mark.worlds


@pytest.mark.exhaustive
def test_random_worlds_of_jobs_with_named_aggregates_are_correct(search: Search) -> None:
    assert swarmed(search, Swarm("aggregates"), part=4).checkpoints > 0


def test_the_twin_sees_a_record_that_was_added_twice_or_not_at_all() -> None:
    job = AggregateJob("aggregates", Random(0), 40, None)
    offsets = (3, 17, 10, 24)
    right = twin(offsets)
    assert job.complaints_of_rows([(10, ((STAGE, 0, 0, (offsets, right), 0, 0),))]) == []
    for wrong in (twin((*offsets, 24)), twin(offsets[:-1]), (*right[:2], right[2] + 1e-9, *right[3:])):
        assert job.complaints_of_rows([(10, ((STAGE, 0, 0, (offsets, wrong), 0, 0),))])
    assert job.complaints_of_rows([(10, ((STAGE, 0, 0, ((*offsets, 24), twin((*offsets, 24))), 0, 0),))])
    assert job.complaints_of_rows([(11, ((STAGE, 0, 0, (offsets, right), 0, 0),))])
