"""Directed tests 22, 28 to 30, 34 and 37: deaths within the sharing depth, failures of sinks, rows that wait."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from clonos.core.wire.recovery_messages import LogLost
from clonos_chaos.jobs.flushed_jobs import FlushedJob
from clonos_chaos.jobs.fuzz_chain import Work
from clonos_chaos.project.directed.building_blocks import (
    DIRECTED_TESTS,
    EXTERNAL_WRITTEN,
    IMMEDIATE,
    RICH,
    TRANSACTIONAL,
    DirectedTest,
    about,
    after,
    along,
    at,
    both,
    directed,
    directed_test,
    kills,
    kills_all_but,
    kills_it,
    kills_with_keepers,
    line,
    lost,
)
from clonos_chaos.sim.sim_tables import ExternalKind
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS
from clonos_chaos.swarm.world import World


@directed_test("22 linked tasks die within the sharing depth")
def _within_the_depth(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, RICH, sink=TRANSACTIONAL),
        [at("batch delivered", kills("a/0", "b/0"), along("b/0", "c/0"), nth=8)],
        options={"sharing_depth": 2},
    )


@directed_test("37 all processes but one die, and others come")
def _all_but_one(seed: int) -> World:
    """The sink survives with the logs of all tasks. The tasks share its process until other processes come."""
    targeted = at(EXTERNAL_WRITTEN, kills_all_but("sink/0"), nth=20)
    return directed(seed, line(RICH, RICH, RICH, sink=IMMEDIATE), [targeted], records=150)


@directed_test("34 task whose rows wait for a flush dies just after a barrier")
def _flushed_dies(seed: int) -> World:
    return World(
        seed,
        options=replace(OPTIONS, checkpoint_every_ms=10, credit_window_bytes=300),
        settings=SETTINGS,
        job=lambda rng: FlushedJob("flushed", Random(rng.getrandbits(64)), 200, None),
        targeted_faults=[at("aligned", kills_it, nth=nth) for nth in (6, 12, 18)],
    )


@directed_test("29 writer of a table dies")
def _writer_dies(seed: int) -> World:
    targeted_faults = [at(EXTERNAL_WRITTEN, kills("sink/0"), nth=nth) for nth in (4, 12)]
    return directed(seed, line(RICH, RICH, sink=IMMEDIATE), targeted_faults, external=ExternalKind.SQLITE)


def _writer_dies_with_keepers(kind: ExternalKind) -> DirectedTest:
    """Kills the sink with its keepers twice: the second time in the generation that began with the first."""
    targeted_faults = [at(EXTERNAL_WRITTEN, kills_with_keepers("sink/0"), nth=nth) for nth in (6, 14)]
    return lambda seed: directed(
        seed,
        line(RICH, RICH, sink=IMMEDIATE, widths=(1, 2, 2)),
        [replace(targeted) for targeted in targeted_faults],
        external=kind,
    )


@directed_test("30 successor of a writer whose log is lost dies too")
def _successor_dies(seed: int) -> World:
    """The stream does not say what it has, and the keepers of the first successor must not tell the second
    successor that they have the log."""
    first = at(EXTERNAL_WRITTEN, kills_with_keepers("sink/0"), nth=6)
    second = at("log end", kills("sink/0"), both(about("sink/0"), after(first)))
    unheard = lost(LogLost, after(first))
    job = line(RICH, RICH, sink=IMMEDIATE, widths=(1, 2, 2))
    return directed(seed, job, [first, second, unheard], external=ExternalKind.FORGETTING)


_SNAPSHOT = ("aligned", "snapshot written", "metadata begun", "metadata written", "complete")


def _sink_dies(point: str, sink: Work, **options: Any) -> DirectedTest:
    targeted = at(point, kills("sink/0"), nth=4)
    return lambda seed: directed(seed, line(RICH, RICH, sink=sink), [replace(targeted)], options=options)


for _point in (*_SNAPSHOT, "committed"):
    DIRECTED_TESTS[f"28 transactional sink dies at {_point}"] = _sink_dies(_point, TRANSACTIONAL)
for _point in (*_SNAPSHOT, EXTERNAL_WRITTEN):
    DIRECTED_TESTS[f"29 immediate sink dies at {_point}"] = _sink_dies(_point, IMMEDIATE)
DIRECTED_TESTS["30 immediate sink without keepers dies"] = _sink_dies(EXTERNAL_WRITTEN, IMMEDIATE, keepers=0)
for _kind in ExternalKind:
    if _kind is not ExternalKind.ALARMING:
        _what = "stream" if _kind is ExternalKind.FORGETTING else "table"
        DIRECTED_TESTS[f"30 writer of a {_what} dies with its keepers: {_kind}"] = _writer_dies_with_keepers(_kind)
DIRECTED_TESTS["30 transactional sink without keepers dies"] = _sink_dies("snapshot written", TRANSACTIONAL, keepers=0)
