"""Directed tests 51: jobs in event time whose source, windows and sink die, and whose source has an idle task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from clonos_chaos.jobs.aggregate_jobs import AggregateJob
from clonos_chaos.jobs.api_jobs import ApiJob
from clonos_chaos.jobs.drifting_jobs import DRIFT_NS, DriftingJob, IdlingJob, UnalignedJob
from clonos_chaos.jobs.timed_jobs import MergingJob, SleepingJob
from clonos_chaos.jobs.window_jobs import LateJob, PatientJob, SlidingJob, WindowJob
from clonos_chaos.project.directed.building_blocks import DirectedTest, at, directed_test, kills_it
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.targeted_faults import FaultAction, PointReached, TargetedFault
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS
from clonos_chaos.swarm.world import World

RECORDS = 480


def _timed(
    seed: int,
    targeted_faults: Sequence[TargetedFault],
    kind: Callable[..., ApiJob] = MergingJob,
    drift_ns: int = 0,
) -> World:
    """Makes a world in which barriers pass at once, because little is on its way."""

    def job(rng: Random) -> ApiJob:
        return kind("timed", Random(rng.getrandbits(64)), RECORDS, None)

    return World(
        seed,
        options=replace(OPTIONS, checkpoint_every_ms=10, credit_window_bytes=300, watermark_drift_max_ns=drift_ns),
        settings=SETTINGS,
        job=job,
        targeted_faults=targeted_faults,
    )


def kills_receiver(world: SimCluster, reached: PointReached) -> None:
    """Kills the slot that receives a message."""
    slot = world.slots.get(reached.receiver)
    if slot is not None:
        world.kill_together([slot])


def _dies(action: FaultAction, point: str, *nths: int) -> DirectedTest:
    return lambda seed: _timed(seed, [at(point, action, nth=nth) for nth in nths])


directed_test("51 task dies with a watermark delivered")(_dies(kills_receiver, "watermark delivered", 40, 80, 120, 160))
directed_test("51 task dies just after a barrier")(_dies(kills_it, "aligned", 15))
directed_test("51 task dies in the middle of a step")(_dies(kills_it, "emission", 60, 260))


@directed_test("51 task of the source is idle")
def _is_idle(seed: int) -> World:
    return _timed(seed, [], SleepingJob)


@directed_test("51 task of sliding windows dies just after a barrier")
def _sliding(seed: int) -> World:
    return _timed(seed, [at("aligned", kills_it, nth=nth) for nth in (8, 15, 22)], SlidingJob)


@directed_test("51 task of windows with late records dies in the middle of a step")
def _late(seed: int) -> World:
    return _timed(seed, [at("emission", kills_it, nth=nth) for nth in (60, 160, 260)], LateJob)


@directed_test("51 task of windows that take late records dies in the middle of a step")
def _patient(seed: int) -> World:
    return _timed(seed, [at("emission", kills_it, nth=nth) for nth in (60, 160, 260)], PatientJob)


@directed_test("51 source waits for another one far behind")
def _drifting(seed: int) -> World:
    return _timed(seed, [], DriftingJob, DRIFT_NS)


@directed_test("51 source does not wait without the option")
def _unaligned(seed: int) -> World:
    return _timed(seed, [], UnalignedJob)


@directed_test("51 source waits for another one until it is idle")
def _idling(seed: int) -> World:
    return _timed(seed, [], IdlingJob, DRIFT_NS)


@directed_test("51 source dies while another one waits for it")
def _drifting_dies(seed: int) -> World:
    return _timed(seed, [at("emission", kills_it, nth=nth) for nth in (60, 160)], DriftingJob, DRIFT_NS)


def _split(kind: type[ApiJob]) -> Callable[..., ApiJob]:
    """Makes jobs of a kind of which a step gets parts of the records of its keys."""

    def made(name: str, rng: Random, records: int, sharing_depth: int | None) -> ApiJob:
        while not (job := kind(name, Random(rng.getrandbits(64)), records, sharing_depth)).has_parts:
            pass
        return job

    return made


@directed_test("51 task of an aggregate that gets parts dies in the middle of a step")
def _split_aggregate(seed: int) -> World:
    return _timed(seed, [at("emission", kills_it, nth=nth) for nth in (20, 60)], _split(AggregateJob))


@directed_test("51 task of windows that get parts and late records dies in the middle of a step")
def _split_late(seed: int) -> World:
    return _timed(seed, [at("emission", kills_it, nth=nth) for nth in (60, 160)], _split(LateJob))


@directed_test("51 task of windows that get parts dies just after a barrier")
def _split_windows(seed: int) -> World:
    return _timed(seed, [at("aligned", kills_it, nth=nth) for nth in (8, 15)], _split(WindowJob))
