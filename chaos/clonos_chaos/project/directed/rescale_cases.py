"""Directed tests 53: changes of widths (protocol 6.12), with a fault in each state of them.

The request comes when the first checkpoint is complete. Before the metadata of the cut is written, a fault gives the
change up; after it, the change is made, whatever fails.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from clonos.core.coordinator.rescale_machine import Steady
from clonos.core.wire.control_messages import View
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.jobs.fuzz_chain import KEYS
from clonos_chaos.jobs.keyed_jobs import KeyedJob
from clonos_chaos.project.directed.building_blocks import (
    DIRECTED_TESTS,
    EFFECTS,
    IMMEDIATE,
    RICH,
    TIMED,
    TRANSACTIONAL,
    DirectedTest,
    about,
    at,
    both,
    directed,
    kills,
    kills_with_keepers,
    line,
    lost,
    nothing,
    pauses,
    received_by,
    replaces_coordinator,
    restarts_coordinator,
)
from clonos_chaos.sim.rare_situations import RESCALED
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_tables import ExternalKind
from clonos_chaos.sim.targeted_faults import FaultAction, PointReached, TargetedFault, Where
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS
from clonos_chaos.swarm.world import World


def changes_widths(world: SimCluster, _reached: PointReached) -> None:
    """Asks for a change of widths."""
    world.request_some_widths(world.fault_rng)


def sets_width(step: str, width: int) -> FaultAction:
    """Asks for a width of one step."""
    return lambda world, _reached: world.request_widths(((step, width),))


def resumes(step: str, width: int) -> FaultAction:
    """Lets all processes die, and resumes the job with a width of one step."""
    return lambda world, _reached: world.restart_job({step: width}, down_ms=50)


def has_chain(world: SimCluster, _reached: PointReached) -> bool:
    """Holds once two checkpoints are complete."""
    return len(world.chain) > 1


def is_cut(world: SimCluster, _reached: PointReached) -> bool:
    """Holds while the latest view names a cut."""
    return world.view.cut > 0


def has_switched(world: SimCluster, _reached: PointReached) -> bool:
    """Holds once a generation has begun at a cut."""
    return world.view.begins_at_cut


def has_settled(world: SimCluster, reached: PointReached) -> bool:
    """Holds once all tasks of a generation that has begun at a cut run."""
    return isinstance(world.coordinator.machine.rescale, Steady) and has_switched(world, reached)


def has_switched_twice(world: SimCluster, reached: PointReached) -> bool:
    """Holds once a second generation has begun at a cut."""
    return has_switched(world, reached) and world.outcome.reached.get(RESCALED, 0) > 1


def places_anew(world: SimCluster, _reached: PointReached) -> None:
    """Asks for another placement of all tasks."""
    world.request_widths((), is_placed_anew=True)


def _changes(point: str, where: Where, action: FaultAction, *others: TargetedFault, records: int = 150) -> DirectedTest:
    def make(seed: int) -> World:
        request = at(FaultPoint.COMPLETE, changes_widths)
        faults = [request, at(point, action, where), *others]
        return directed(seed, line(TIMED, EFFECTS, sink=IMMEDIATE), faults, records=records)

    return make


_STATES: dict[str, tuple[str, Where]] = {
    "when the view with the cut is issued": (FaultPoint.VIEW_ISSUED, is_cut),
    "when a task has stored its snapshot of the cut": (FaultPoint.SNAPSHOT_WRITTEN, is_cut),
    "when the metadata of the cut is begun": (FaultPoint.METADATA_BEGUN, is_cut),
    "when the metadata of the cut is written": (FaultPoint.METADATA_WRITTEN, is_cut),
    "when the next generation begins": (FaultPoint.ROLLBACK_ISSUED, has_switched),
    "when a task of the next generation goes live": (FaultPoint.LIVE, has_switched),
}

_FAULTS: dict[str, FaultAction] = {
    "task is paused": pauses("a/0", 900),
    "source and the task after it die": kills("source/0", "a/0"),
    "task dies": kills("a/0"),
    "another coordinator takes over": replaces_coordinator(100),
    "coordinator restarts": restarts_coordinator(50),
    "sink dies with its keepers": kills_with_keepers("sink/0"),
}
_EVERYWHERE = ("task dies", "coordinator restarts")
"""Faults in each state; each of the others is injected in one of them."""

DIRECTED_TESTS["53 widths change"] = _changes(FaultPoint.LIVE, has_switched, nothing)

for _number, (_state, (_point, _where)) in enumerate(_STATES.items()):
    for _other, (_fault, _action) in enumerate(_FAULTS.items()):
        if _fault in _EVERYWHERE or _other == _number:
            DIRECTED_TESTS[f"53 {_fault} {_state}"] = _changes(_point, _where, _action)

DIRECTED_TESTS["53 view with the cut is lost on its way to one slot"] = _changes(
    FaultPoint.LIVE,
    has_switched,
    nothing,
    lost(View, both(is_cut, received_by("source/0")), times=5),
    records=300,
)


DIRECTED_TESTS["53 tasks are placed anew after a loss"] = lambda seed: directed(
    seed,
    line(TIMED, EFFECTS, sink=IMMEDIATE),
    [at(FaultPoint.COMPLETE, kills("a/0")), at(FaultPoint.COMPLETE, places_anew, nth=4)],
    records=300,
)


def _transactional(action: FaultAction) -> DirectedTest:
    return lambda seed: directed(
        seed,
        line(RICH, RICH, sink=TRANSACTIONAL),
        [at(FaultPoint.COMPLETE, changes_widths), at(FaultPoint.METADATA_WRITTEN, action, is_cut)],
        records=300,
    )


DIRECTED_TESTS["53 sink with prepared output dies when the metadata of the cut is written"] = _transactional(
    kills("sink/0")
)
DIRECTED_TESTS["53 coordinator restarts before the output of the cut is committed"] = _transactional(
    restarts_coordinator(0)
)


def _world(seed: int, job: Callable[[Random], KeyedJob], *faults: TargetedFault) -> World:
    return World(seed, options=OPTIONS, settings=SETTINGS, job=job, targeted_faults=faults)


def _keyed(*faults: tuple[str, FaultAction, Where]) -> DirectedTest:
    """Steps get other widths twice, with these faults."""

    def make(seed: int) -> World:
        requests = [at(FaultPoint.COMPLETE, changes_widths, nth=nth) for nth in (1, 4)]
        others = [at(point, action, where) for point, action, where in faults]
        return _world(seed, lambda rng: KeyedJob("keyed", Random(rng.getrandbits(64)), 150, None), *requests, *others)

    return make


def _with_flush(rng: Random) -> KeyedJob:
    """Returns a job in whose first keyed step rows wait for a flush."""
    while True:
        job = KeyedJob("keyed", Random(rng.getrandbits(64)), 150, None)
        if job.works[1].flush_count > 2:
            return job


def _flushed(*faults: tuple[str, FaultAction, Where]) -> DirectedTest:
    """A step in which rows wait gets other widths twice."""

    def make(seed: int) -> World:
        requests = [at(FaultPoint.COMPLETE, sets_width("a", width), nth=nth) for nth, width in ((1, 4), (4, 2))]
        return _world(seed, _with_flush, *requests, *(at(point, action, where) for point, action, where in faults))

    return make


DIRECTED_TESTS["53 step whose rows wait changes its width"] = _flushed()
DIRECTED_TESTS["53 task whose rows wait dies when it has stored its snapshot of the cut"] = _flushed(
    (FaultPoint.SNAPSHOT_WRITTEN, kills("a/0"), both(about("a/0"), is_cut))
)
_KINDS = (ExternalKind.ALARMING, ExternalKind.SQLITE_UPSERT, ExternalKind.FORGETTING, ExternalKind.DBAPI)


def _with_immediate_sink(rng: Random, kind: ExternalKind) -> KeyedJob:
    """Returns a job of two sources and two sinks that write at once, whose splits appear one after the other."""
    while True:
        job = KeyedJob("keyed", Random(rng.getrandbits(64)), 200, None)
        if (
            job.works[-1].ports
            and job.appears_ns
            and {job.vertices[0].parallelism, job.vertices[-1].parallelism} == {2}
        ):
            job.external_kind = kind
            job.appears_ns = [place * 200 * MILLISECOND_NS for place in rng.sample(range(KEYS), KEYS)]
            return job


def _returning(step: str, *faults: TargetedFault) -> DirectedTest:
    """A step has one task for a while, and then as many as before."""

    def make(seed: int) -> World:
        requests = [at(FaultPoint.COMPLETE, sets_width(step, width), nth=nth) for nth, width in ((1, 1), (5, 2))]
        kind = _KINDS[seed % len(_KINDS)]
        return _world(seed, lambda rng: _with_immediate_sink(rng, kind), *requests, *faults)

    return make


DIRECTED_TESTS["53 sink has fewer tasks for a while"] = _returning("sink")
DIRECTED_TESTS["53 sink has fewer tasks for a while, and the coordinator restarts each time"] = _returning(
    "sink", *(at(FaultPoint.METADATA_WRITTEN, restarts_coordinator(50), is_cut, nth=nth) for nth in (1, 2))
)
DIRECTED_TESTS["53 sink has fewer tasks for a while, and dies with its keepers when they are back"] = _returning(
    "sink", at(FaultPoint.SINK_WRITTEN, kills_with_keepers("sink/1"), both(about("sink/1"), has_switched_twice), nth=2)
)
DIRECTED_TESTS["53 source has fewer tasks for a while"] = _returning("source")
DIRECTED_TESTS["53 source has more tasks than splits, and then fewer"] = lambda seed: _world(
    seed,
    lambda rng: KeyedJob("keyed", Random(rng.getrandbits(64)), 600, None),
    at(FaultPoint.COMPLETE, sets_width("source", KEYS + 1)),
    at(FaultPoint.COMPLETE, sets_width("source", 2), has_settled),
)
DIRECTED_TESTS["53 keyed steps change their widths twice"] = _keyed()
DIRECTED_TESTS["53 keyed steps change their widths, and a task dies before its first checkpoint"] = _keyed(
    (FaultPoint.LIVE, kills("b/0"), has_switched)
)
DIRECTED_TESTS["53 keyed steps change their widths, and the coordinator restarts"] = _keyed(
    (FaultPoint.METADATA_WRITTEN, restarts_coordinator(50), is_cut)
)
DIRECTED_TESTS["53 keyed steps change their widths while a slot is paused"] = _keyed(
    (FaultPoint.METADATA_WRITTEN, pauses("source/0", 300), is_cut)
)
DIRECTED_TESTS["53 job resumes with fewer sinks, and then with as many as before"] = lambda seed: _world(
    seed,
    lambda rng: _with_immediate_sink(rng, _KINDS[seed % len(_KINDS)]),
    at(FaultPoint.SINK_WRITTEN, resumes("sink", 1), about("sink/1"), nth=4),
    at(FaultPoint.SINK_WRITTEN, resumes("sink", 2), nth=9),
)
DIRECTED_TESTS["53 job with prepared output resumes with other widths"] = _keyed(
    (FaultPoint.METADATA_WRITTEN, resumes("a", 4), has_chain)
)
