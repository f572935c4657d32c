"""Trial of a connector in simulated worlds, in which it is called for real while its tasks die in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from clonos.job import Job
from clonos_chaos.connectors.guarantees import Evidence
from clonos_chaos.swarm.shrinking import failure_of
from clonos_chaos.user.user_graph import given_inputs, ready
from clonos_chaos.user.user_world import Judging, Outputs, UserWorld

WITHOUT_ROLLBACK: Final = "kills in worlds"
WITH_ROLLBACK: Final = "rollbacks in worlds"


def simulated(
    make_job: Callable[[str], Job],
    is_called: Callable[[object], bool],
    judge: Callable[[str, Outputs], Evidence],
    seeds: Iterable[int],
) -> dict[str, Evidence]:
    """Runs one world per seed; returns the evidence of those without and of those with a rollback.

    ``make_job`` makes the job that writes to the place of this name; ``judge`` compares what is there.
    """
    found: dict[str, Evidence] = {}
    for seed in seeds:
        place = f"world-{seed}"
        job = make_job(place)
        world = UserWorld(seed, ready(job, given_inputs(job, None), is_called=is_called), Judging())
        failure = failure_of(world)
        complaint = "" if failure is None else f"world {seed}: {failure.complaint}"
        faults = len(world.faults.injected)
        if world.ending is None:
            evidence = Evidence(0, faults, failure=complaint)
        else:
            evidence = Evidence(0, faults, complaints=(complaint,) if complaint else ())
            evidence += judge(place, world.outputs())
        trial = WITH_ROLLBACK if world.outcome.rollbacks else WITHOUT_ROLLBACK
        found[trial] = found[trial] + evidence if trial in found else evidence
    return found
