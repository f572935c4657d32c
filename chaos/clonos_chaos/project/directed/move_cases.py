"""Directed tests 52: planned moves of tasks that share a process since a loss (protocol 6.11).

There is no spare process, so a task that dies goes on in the process of another task, and moves when a new process has
come. Where a case names a fault, it is injected when the task has made its last step before the move.
"""

from __future__ import annotations

from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.project.directed.building_blocks import (
    DIRECTED_TESTS,
    EFFECTS,
    EXTERNAL_WRITTEN,
    IMMEDIATE,
    RICH,
    DirectedTest,
    about,
    at,
    directed,
    directed_test,
    kills,
    kills_it,
    kills_standbys,
    line,
    nothing,
    pauses,
    replaces_coordinator,
    restarts_coordinator,
)
from clonos_chaos.sim.targeted_faults import FaultAction
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World

_MOVING = ("a/0", "sink/0")
"""A task that makes calls with effects, and a sink that writes to an external system."""


def _moves(name: str, action: FaultAction) -> DirectedTest:
    return lambda seed: directed(
        seed,
        line(RICH, EFFECTS, sink=IMMEDIATE),
        [at(EXTERNAL_WRITTEN, kills(name), nth=2), at(FaultPoint.SUSPENDED, action, about(name))],
        settings={"spare_slots": 0},
        records=300,
    )


_FAULTS: dict[str, FaultAction] = {
    "moves": nothing,
    "dies when it is suspended": kills_it,
    "is paused when it is suspended": pauses("source/0", 800),
    "moves when a new coordinator comes": restarts_coordinator(50),
    "moves while another coordinator takes over": replaces_coordinator(100),
}


@directed_test("52 task with calls goes on when they take longer than a move may")
def _slow_calls(seed: int) -> World:
    return directed(
        seed,
        line(RICH, EFFECTS, sink=IMMEDIATE),
        [at(EXTERNAL_WRITTEN, kills("a/0"), nth=2)],
        options={"move_timeout_ms": 1},
        settings={"spare_slots": 0, "call_ns_max": 40 * MILLISECOND_NS},
        records=300,
    )


@directed_test("52 sink goes on when its keeper answers later than a move may take")
def _slow_keeper(seed: int) -> World:
    return directed(
        seed,
        line(RICH, EFFECTS, sink=IMMEDIATE),
        [
            at(EXTERNAL_WRITTEN, kills("sink/0"), nth=2),
            at(FaultPoint.SUSPENDED, pauses("source/0", 300), about("sink/0")),
        ],
        options={"move_timeout_ms": 50},
        settings={"spare_slots": 0},
        records=300,
    )


for _name, _what in zip(_MOVING, ("task with calls", "sink"), strict=True):
    for _fault, _action in _FAULTS.items():
        DIRECTED_TESTS[f"52 {_what} {_fault}"] = _moves(_name, _action)
    DIRECTED_TESTS[f"52 {_what} moves when its standby has died"] = _moves(_name, kills_standbys(_name))
