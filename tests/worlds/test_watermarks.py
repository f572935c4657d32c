"""Jobs in event time in simulated worlds: windows equal those of a dumb twin, whatever dies and whatever is idle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.model.metric_series import late_records
from clonos_chaos.jobs.drifting_jobs import HELD_MAX, DriftingJob
from clonos_chaos.jobs.timed_jobs import LATE, TimedJob
from clonos_chaos.jobs.window_jobs import LATE_PLACE, LateJob, Spec
from clonos_chaos.project.directed.building_blocks import at, kills_it
from clonos_chaos.project.directed.directed_tests import DIRECTED_TESTS
from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS
from clonos_chaos.swarm.world import World
from tests.worlds.playing import is_done, played_scene, scenes_of, swarmed
from tests.worlds.search import Search

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

IDLE_SCENE = "51 task of the source is idle"
DRIFTING = "51 source waits for another one far behind"
UNALIGNED = "51 source does not wait without the option"
FAULTLESS = (IDLE_SCENE, DRIFTING, UNALIGNED, "51 source waits for another one until it is idle")


def rows_of(world: World) -> list[Any]:
    immediate = [row for external in world.externals.values() for row in external.rows]
    return [*immediate, *(row for rows in world.committed.values() for row in rows)]


@pytest.mark.exhaustive
def test_random_worlds_of_jobs_in_event_time_are_correct(search: Search) -> None:
    assert swarmed(search, Swarm("timed"), part=4).checkpoints > 0


@pytest.mark.exhaustive
def test_random_worlds_of_windows_are_correct(search: Search) -> None:
    assert swarmed(search, Swarm("windows"), part=4).checkpoints > 0


@pytest.mark.slow
@pytest.mark.parametrize("scene", [scene for scene in scenes_of(51) if scene not in FAULTLESS])
def test_windows_are_the_same_when_their_task_dies(scene: str) -> None:
    for world in played_scene(scene):
        assert is_done(world)
        assert len(world.oracle.incarnations) > 0
        assert world.outcome.views > 1


def test_windows_fire_while_a_task_of_the_source_is_idle() -> None:
    for seed in range(3):
        world = DIRECTED_TESTS[IDLE_SCENE](seed)
        world.run()
        assert isinstance(world.job, TimedJob)
        assert not world.job.was_held_back
        kinds = Counter(entry[3][0] for row in rows_of(world) for entry in row[1])
        assert kinds[LATE] > 0, "nothing came behind the watermark, so nobody was ahead of the idle task"


def held_max(scene: str, seed: int) -> int:
    """Runs a world and returns the maximum number of rows that the windows of a task have held."""
    world = DIRECTED_TESTS[scene](seed)
    world.run()
    assert is_done(world)
    assert isinstance(world.job, DriftingJob)
    return world.job.held_max


@pytest.mark.parametrize("seed", range(3))
def test_windows_hold_little_of_a_source_that_is_far_ahead_with_the_option_only(seed: int) -> None:
    assert held_max(DRIFTING, seed) <= HELD_MAX < held_max(UNALIGNED, seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_source_that_becomes_idle_holds_no_other_back(seed: int) -> None:
    assert held_max("51 source waits for another one until it is idle", seed) <= HELD_MAX


class RefusingJob(LateJob):
    """Job whose windows refuse many rows."""

    disorders_ms = (600,)
    latenesses = (None,)

    def _spec(self, rng: Random) -> Spec:
        return Spec("tumbling", 20, 20, False)


def test_late_records_are_counted_once_whatever_dies() -> None:
    options = replace(OPTIONS, checkpoint_every_ms=10, credit_window_bytes=300)
    faults = [at("emission", kills_it, nth=nth) for nth in (200, 400, 600, 800)]
    refused = 0
    for seed in range(4):
        job = RefusingJob("windows", Random(seed), 300, None)
        world = World(seed, options=options, settings=SETTINGS, job=lambda _: job, targeted_faults=faults)  # noqa: B023
        world.run()
        entries = world.chain[max(world.chain)].tasks
        snapshots = [decode_snapshot(world.store[each.objects[-1]][0], "") for each in entries]
        counted = sum(sum(late_records(snapshot.metrics).values()) for snapshot in snapshots)
        late = [entry for row in rows_of(world) for entry in row[1] if entry[0] % 100 == LATE_PLACE]
        assert counted == len(late), seed
        assert world.outcome.views > 2, seed
        refused += counted
    assert refused > 100


def test_the_twin_sees_a_row_that_left_another_window_or_too_early() -> None:
    job = next(job for seed in range(99) if not (job := TimedJob("timed", Random(seed), 40, None)).sleeps)
    windows = job.twin()[7]
    lineage: tuple[Any, ...] = tuple((n, 0, 0, ("fired", None, *window), 0, 0) for n, window in enumerate(windows, 1))
    assert job.complaints_of_rows([(7, lineage)]) == []
    end_ns, size = windows[0]
    for wrong in (("fired", None, end_ns + 1, size), ("fired", None, end_ns, size + 1), ("late", end_ns, end_ns, size)):
        assert job.complaints_of_rows([(7, ((1, 0, 0, wrong, 0, 0), *lineage[1:]))])
    assert job.complaints_of_rows([(7, ((1, 0, 0, ("fired", end_ns, end_ns, size), 0, 0), *lineage[1:]))])
